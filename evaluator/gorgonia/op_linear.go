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
// scalar of the loss. Each writes into the memory that the tape machine gives it.

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

// Do computes into fresh memory.
func (o *op) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	shapes := make([]tensor.Shape, len(in))
	for i, v := range in {
		shapes[i] = v.Shape()
	}
	if o.output == hm.Type(scalarType) {
		return o.UsePreallocDo(gorgonia.NewF32(0), in...)
	}
	return o.UsePreallocDo(tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(o.shape(shapes)...)), in...)
}

// UsePreallocDo computes into memory that the machine gives.
func (o *op) UsePreallocDo(out gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	data, shapes := make([][]float32, len(in)), make([]tensor.Shape, len(in))
	for i, v := range in {
		data[i], shapes[i] = floats(v), v.Shape()
	}
	if s, ok := out.(*gorgonia.F32); ok {
		var one [1]float32
		o.do(one[:], nil, data, shapes)
		*s = gorgonia.F32(one[0])
		return s, nil
	}
	o.do(floats(out), out.Shape(), data, shapes)
	return out, nil
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

// ReturnsPtr is true: the output is memory of the machine.
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

// linear is y = x*w + b, with negative numbers replaced by 0 if relu is set.
// x is [B, in], w [in, out], b [out], y [B, out].
type linear struct {
	op
	relu  bool
	first bool // x is the network's input: it has no gradient
}

func newLinear(relu, first bool) *linear {
	l := &linear{relu: relu, first: first}
	l.op = op{
		name:   fmt.Sprintf("azserve.linear relu=%v first=%v", relu, first),
		inputs: []hm.Type{matrixType, matrixType, vectorType}, output: matrixType,
		shape: func(in []tensor.Shape) tensor.Shape { return tensor.Shape{in[0][0], in[1][1]} },
		do:    l.forward,
	}
	return l
}

func (l *linear) forward(y []float32, shape tensor.Shape, in [][]float32, s []tensor.Shape) {
	b := in[2]
	for i := range shape[0] {
		copy(y[i*len(b):], b)
	}
	k := s[0][1]
	gemm(false, false, shape[0], shape[1], k, in[0], k, in[1], shape[1], 1, y, shape[1])
	if l.relu {
		for i, v := range y {
			y[i] = max(v, 0)
		}
	}
}

// DiffWRT says that w and b have gradients, and x where it isn't the network's input.
func (l *linear) DiffWRT(int) []bool { return []bool{!l.first, true, true} }

// SymDiff builds the gradients: dx = g*w', dw = x'*g, db = the columns' sums of g.
func (l *linear) SymDiff(in gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error) {
	var err error
	if l.relu {
		if g, err = gorgonia.ApplyOp(reluGrad, y, g); err != nil {
			return nil, err
		}
	}
	out := make(gorgonia.Nodes, 3)
	if !l.first {
		if out[0], err = gorgonia.ApplyOp(productNT, g, in[1]); err != nil {
			return nil, err
		}
	}
	if out[1], err = gorgonia.ApplyOp(productTN, in[0], g); err != nil {
		return nil, err
	}
	out[2], err = gorgonia.ApplyOp(columnSums, g)
	return out, err
}

// reluGrad passes the gradient where the output y is positive.
var reluGrad = &op{
	name: "azserve.reluGrad", inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
	shape: func(in []tensor.Shape) tensor.Shape { return in[0].Clone() },
	do: func(out []float32, _ tensor.Shape, in [][]float32, _ []tensor.Shape) {
		y, g := in[0], in[1]
		for i := range out {
			out[i] = 0
			if y[i] > 0 {
				out[i] = g[i]
			}
		}
	},
}

// productNT is a*b' and productTN a'*b.
var (
	productNT = newProduct("azserve.productNT", false, true)
	productTN = newProduct("azserve.productTN", true, false)
)

func newProduct(name string, ta, tb bool) *op {
	return &op{
		name: name, inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
		shape: func(in []tensor.Shape) tensor.Shape {
			rows, cols := in[0][0], in[1][1]
			if ta {
				rows = in[0][1]
			}
			if tb {
				cols = in[1][0]
			}
			return tensor.Shape{rows, cols}
		},
		do: func(out []float32, shape tensor.Shape, in [][]float32, s []tensor.Shape) {
			k := s[0][1]
			if ta {
				k = s[0][0]
			}
			gemm(ta, tb, shape[0], shape[1], k, in[0], s[0][1], in[1], s[1][1], 0, out, shape[1])
		},
	}
}

// columnSums adds the rows of a matrix.
var columnSums = &op{
	name: "azserve.columnSums", inputs: []hm.Type{matrixType}, output: vectorType,
	shape: func(in []tensor.Shape) tensor.Shape { return tensor.Shape{in[0][1]} },
	do: func(out []float32, _ tensor.Shape, in [][]float32, s []tensor.Shape) {
		clear(out)
		for i := range s[0][0] {
			for j, v := range in[0][i*len(out) : (i+1)*len(out)] {
				out[j] += v
			}
		}
	},
}
