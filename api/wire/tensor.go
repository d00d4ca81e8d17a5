// Package wire turns azserve's own types into messages of azserve.v1 and back: tensors, errors, specifications,
// settings. Server and client share it.
package wire

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/envs"
)

// Element is what a tensor can hold.
type Element interface {
	float32 | float64 | int32 | uint8 | bool | uint64
}

func dtypeOf[T Element]() pb.DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return pb.DType_DTYPE_FLOAT32
	case float64:
		return pb.DType_DTYPE_FLOAT64
	case int32:
		return pb.DType_DTYPE_INT32
	case uint8:
		return pb.DType_DTYPE_UINT8
	case bool:
		return pb.DType_DTYPE_BOOL
	}
	return pb.DType_DTYPE_UINT64
}

// Any is a dimension of Read that may have any size.
const Any = -1

// Of returns a tensor of a shape that shares memory with x: x must not change until the message has been sent.
func Of[T Element](x []T, shape ...int) *pb.Tensor {
	t := &pb.Tensor{Dtype: dtypeOf[T](), Shape: make([]int64, len(shape))}
	for i, n := range shape {
		t.Shape[i] = int64(n)
	}
	if len(x) > 0 {
		t.Data = unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
	}
	return t
}

// Vector is Of with one dimension.
func Vector[T Element](x []T) *pb.Tensor { return Of(x, len(x)) }

// Read returns a tensor's elements, which may share its memory. The shape must be as wanted, where Any takes any
// size; path names the field in errors. A tensor that isn't set has no elements.
func Read[T Element](path string, t *pb.Tensor, shape ...int) ([]T, error) {
	if t == nil {
		return nil, nil
	}
	if want := dtypeOf[T](); t.Dtype != want {
		return nil, Bad(path, "is %s; want %s", dtypeName(t.Dtype), dtypeName(want))
	}
	fits := len(t.Shape) == len(shape)
	count := int64(1)
	for i, n := range t.Shape {
		if n < 0 || (n > 0 && count > math.MaxInt32*16/n) {
			return nil, Bad(path, "has shape %v; want %s", t.Shape, shapeName(shape))
		}
		count *= n
		fits = fits && (shape[min(i, len(shape)-1)] == Any || int64(shape[i]) == n)
	}
	var zero T
	size := int64(unsafe.Sizeof(zero))
	switch {
	case !fits:
		return nil, Bad(path, "has shape %v; want %s", t.Shape, shapeName(shape))
	case int64(len(t.Data)) != count*size:
		return nil, Bad(path, "has %d bytes; want %d, those of shape %v", len(t.Data), count*size, t.Shape)
	case count == 0:
		return []T{}, nil
	}
	if _, ok := any(zero).(bool); ok {
		if i := slices.IndexFunc(t.Data, func(b byte) bool { return b > 1 }); i >= 0 {
			return nil, Bad(path, "byte %d is %d; want 0 or 1", i, t.Data[i])
		}
	}
	return elements[T](t.Data, int(count)), nil
}

// elements returns bytes as elements; a copy where they aren't aligned.
func elements[T Element](data []byte, n int) []T {
	at := unsafe.Pointer(&data[0])
	if uintptr(at)%unsafe.Alignof(*new(T)) == 0 {
		return unsafe.Slice((*T)(at), n)
	}
	out := make([]T, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(data)), data)
	return out
}

// Rows returns a one-dimensional tensor's elements; it must be set.
func Rows[T Element](path string, t *pb.Tensor) ([]T, error) {
	if t == nil {
		return nil, Bad(path, "isn't set; want %s with one entry a row", dtypeName(dtypeOf[T]()))
	}
	return Read[T](path, t, Any)
}

func shapeName(shape []int) string {
	names := make([]string, len(shape))
	for i, n := range shape {
		names[i] = fmt.Sprint(n)
		if n == Any {
			names[i] = "any"
		}
	}
	return "[" + strings.Join(names, ", ") + "]"
}

var dtypeNames = map[pb.DType]string{
	pb.DType_DTYPE_FLOAT32: "float32", pb.DType_DTYPE_FLOAT64: "float64", pb.DType_DTYPE_INT32: "int32",
	pb.DType_DTYPE_UINT8: "uint8", pb.DType_DTYPE_BOOL: "bool", pb.DType_DTYPE_UINT64: "uint64",
}

func dtypeName(d pb.DType) string {
	if name, ok := dtypeNames[d]; ok {
		return name
	}
	return fmt.Sprintf("dtype %d", d)
}

// Arrays returns the first n rows of arrays as tensors, sharing memory.
func Arrays(specs []envs.ArraySpec, arrays []envs.Array, n int) []*pb.Tensor {
	out := make([]*pb.Tensor, 0, len(arrays))
	for k := range arrays {
		s, a := &specs[k], &arrays[k]
		shape := append([]int{n}, s.Shape...)
		m := n * a.Size()
		var t *pb.Tensor
		switch s.DType {
		case envs.Float32:
			t = Of(a.F32[:m], shape...)
		case envs.Float64:
			t = Of(a.F64[:m], shape...)
		case envs.Int32:
			t = Of(a.I32[:m], shape...)
		case envs.Uint8:
			t = Of(a.U8[:m], shape...)
		case envs.Bool:
			t = Of(a.Bool[:m], shape...)
		}
		t.Name = s.Name
		out = append(out, t)
	}
	return out
}

// ReadArrays returns tensors as arrays of a specification, all with the same number of rows, which may share memory.
func ReadArrays(path string, specs []envs.ArraySpec, tensors []*pb.Tensor) (arrays []envs.Array, n int, err error) {
	if len(tensors) != len(specs) {
		return nil, 0, Bad(path, "has %d arrays; want %d", len(tensors), len(specs))
	}
	n = Any
	for k, t := range tensors {
		s := &specs[k]
		at := fmt.Sprintf("%s[%d]", path, k)
		if t.GetName() != s.Name {
			return nil, 0, Bad(at, "is named %q; want %q", t.GetName(), s.Name)
		}
		var a envs.Array
		shape := append([]int{n}, s.Shape...)
		switch s.DType {
		case envs.Float32:
			a.F32, err = Read[float32](at, t, shape...)
		case envs.Float64:
			a.F64, err = Read[float64](at, t, shape...)
		case envs.Int32:
			a.I32, err = Read[int32](at, t, shape...)
		case envs.Uint8:
			a.U8, err = Read[uint8](at, t, shape...)
		case envs.Bool:
			a.Bool, err = Read[bool](at, t, shape...)
		}
		if err != nil {
			return nil, 0, err
		}
		n = int(t.Shape[0])
		arrays = append(arrays, a.WithSize(s.Len()))
	}
	return arrays, n, nil
}
