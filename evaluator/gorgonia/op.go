package gorgonia

import (
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The operations of this package work on float32 tensors: matrices [rows, columns], vectors, and the
// scalar of the loss. An operation is one node of one graph and writes into memory of its own, which
// stands until the graph's next run: so a run allocates nothing that grows with the batch.

var (
	matrixType = gorgonia.TensorType{Dims: 2, Of: tensor.Float32}
	vectorType = gorgonia.TensorType{Dims: 1, Of: tensor.Float32}
	scalarType = tensor.Float32
)

// op is what all operations share. name tells them apart, settings included.
type op struct {
	name   string
	inputs []hm.Type
	output hm.Type
	// shape infers the output's shape from the inputs'.
	shape func(in []tensor.Shape) tensor.Shape
	// do computes the output from the inputs' numbers. Everything in out must be written.
	do func(out []float32, shape tensor.Shape, in [][]float32, shapes []tensor.Shape)

	out    *tensor.Dense // where the result is; nil before the first run
	data   [][]float32   // the inputs of a run
	shapes []tensor.Shape
}

// Arity is the number of inputs.
func (o *op) Arity() int { return len(o.inputs) }

// Type is the operation's type, for Gorgonia's inference.
func (o *op) Type() hm.Type {
	return hm.NewFnType(append(slices.Clip(o.inputs), o.output)...)
}

// InferShape is the output's shape.
func (o *op) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	shapes := make([]tensor.Shape, len(in))
	for i, s := range in {
		shape, ok := s.(tensor.Shape)
		if !ok {
			return nil, fmt.Errorf("gorgonia: %s: input %d has no shape", o.name, i)
		}
		shapes[i] = shape
	}
	return o.shape(shapes), nil
}

// Do computes the result.
func (o *op) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	o.data, o.shapes = o.data[:0], o.shapes[:0]
	for _, v := range in {
		o.data, o.shapes = append(o.data, floats(v)), append(o.shapes, v.Shape())
	}
	if o.output == hm.Type(scalarType) {
		var one [1]float32
		o.do(one[:], nil, o.data, o.shapes)
		return gorgonia.NewF32(one[0]), nil
	}
	if o.out == nil {
		o.out = tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(o.shape(o.shapes)...))
	}
	o.do(floats(o.out), o.out.Shape(), o.data, o.shapes)
	return o.out, nil
}

// floats returns the numbers of a value.
func floats(v gorgonia.Value) []float32 {
	switch x := v.Data().(type) {
	case []float32:
		return x
	case float32:
		return []float32{x}
	default:
		return nil
	}
}

// ReturnsPtr is true: the result is memory of the operation.
func (o *op) ReturnsPtr() bool { return true }

// CallsExtern is false.
func (o *op) CallsExtern() bool { return false }

// OverwritesInput is -1: inputs stay.
func (o *op) OverwritesInput() int { return -1 }

// WriteHash writes what tells operations apart.
func (o *op) WriteHash(h hash.Hash) { _, _ = h.Write([]byte(o.name)) }

// Hashcode hashes the same.
func (o *op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *op) String() string { return o.name }
