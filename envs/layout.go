package envs

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"unsafe"
)

// layout is the portable form of a plain state: its numbers in order of declaration, little-endian,
// without padding. Equal states have equal bytes, on every machine.
type layout struct {
	fields []field
	size   int    // bytes in memory
	packed int    // bytes in portable form
	print  uint32 // fingerprint of the kinds, so that bytes of another shape are refused
}

// field is one number of the state. int and uint are always written as 8 bytes.
type field struct {
	offset uintptr
	kind   reflect.Kind
}

// layoutOf returns S's layout, and whether S is plain.
func layoutOf[S any]() (layout, bool) {
	t := reflect.TypeFor[S]()
	l := layout{size: int(t.Size())}
	plain := l.add(t, 0)
	h := fnv.New32a()
	for _, f := range l.fields {
		_, _ = h.Write([]byte{byte(f.kind)})
		l.packed += packedSize(f.kind)
	}
	l.print = h.Sum32()
	return l, plain
}

// add appends the numbers of a value of type t at an offset. It returns false at the first kind that
// isn't plain data.
func (l *layout) add(t reflect.Type, offset uintptr) bool {
	switch t.Kind() {
	case reflect.Struct:
		for f := range t.Fields() {
			if !l.add(f.Type, offset+f.Offset) {
				return false
			}
		}
		return true
	case reflect.Array:
		for i := range t.Len() {
			if !l.add(t.Elem(), offset+uintptr(i)*t.Elem().Size()) {
				return false
			}
		}
		return true
	default:
		if packedSize(t.Kind()) == 0 {
			return false
		}
		l.fields = append(l.fields, field{offset, t.Kind()})
		return true
	}
}

// packedSize returns the bytes of a number in portable form, 0 for what isn't a number.
func packedSize(k reflect.Kind) int {
	switch k {
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		return 1
	case reflect.Int16, reflect.Uint16:
		return 2
	case reflect.Int32, reflect.Uint32, reflect.Float32:
		return 4
	case reflect.Int64, reflect.Uint64, reflect.Float64, reflect.Int, reflect.Uint:
		return 8
	default:
		return 0
	}
}

// pack appends the portable bytes of the state at p, which must be of the layout's type.
func (l *layout) pack(dst []byte, p unsafe.Pointer) []byte {
	le := binary.LittleEndian
	for _, f := range l.fields {
		at := unsafe.Add(p, f.offset)
		switch f.kind {
		case reflect.Int:
			dst = le.AppendUint64(dst, uint64(int64(*(*int)(at))))
		case reflect.Uint:
			dst = le.AppendUint64(dst, uint64(*(*uint)(at)))
		default:
			switch packedSize(f.kind) {
			case 1:
				dst = append(dst, *(*uint8)(at))
			case 2:
				dst = le.AppendUint16(dst, *(*uint16)(at))
			case 4:
				dst = le.AppendUint32(dst, *(*uint32)(at))
			case 8:
				dst = le.AppendUint64(dst, *(*uint64)(at))
			}
		}
	}
	return dst
}

// unpack fills the state at p, which must be of the layout's type, from portable bytes.
func (l *layout) unpack(src []byte, p unsafe.Pointer) error {
	if len(src) != l.packed {
		return fmt.Errorf("%d bytes of state; want %d", len(src), l.packed)
	}
	le := binary.LittleEndian
	for i, f := range l.fields {
		at, n := unsafe.Add(p, f.offset), packedSize(f.kind)
		switch {
		case f.kind == reflect.Bool && src[0] > 1:
			return fmt.Errorf("number %d of the state is the boolean %d; want 0 or 1", i, src[0])
		case f.kind == reflect.Int:
			v := int64(le.Uint64(src))
			if v != int64(int(v)) {
				return fmt.Errorf("number %d of the state is %d; want at most %d", i, v, math.MaxInt)
			}
			*(*int)(at) = int(v)
		case f.kind == reflect.Uint:
			*(*uint)(at) = uint(le.Uint64(src))
		case n == 1:
			*(*uint8)(at) = src[0]
		case n == 2:
			*(*uint16)(at) = le.Uint16(src)
		case n == 4:
			*(*uint32)(at) = le.Uint32(src)
		case n == 8:
			*(*uint64)(at) = le.Uint64(src)
		}
		src = src[n:]
	}
	return nil
}
