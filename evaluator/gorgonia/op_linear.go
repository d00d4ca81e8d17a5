package gorgonia

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

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
		relu(y)
	}
}

// DiffWRT says that w and b have gradients, and x where it isn't the network's input.
func (l *linear) DiffWRT(int) []bool { return []bool{!l.first, true, true} }

// SymDiff builds the gradients: dx = g*w', dw = x'*g, db = the columns' sums of g.
func (l *linear) SymDiff(in gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error) {
	var err error
	if l.relu {
		if g, err = gorgonia.ApplyOp(newReluGrad(), y, g); err != nil {
			return nil, err
		}
	}
	out := make(gorgonia.Nodes, 3)
	if !l.first {
		if out[0], err = gorgonia.ApplyOp(newProduct(false, true), g, in[1]); err != nil {
			return nil, err
		}
	}
	if out[1], err = gorgonia.ApplyOp(newProduct(true, false), in[0], g); err != nil {
		return nil, err
	}
	out[2], err = gorgonia.ApplyOp(newSums(in[2].Shape()[0]), g)
	return out, err
}

// newReluGrad passes the gradient where the output y is positive.
func newReluGrad() *op {
	return &op{
		name: "azserve.reluGrad", inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
		shape: func(in []tensor.Shape) tensor.Shape { return in[0].Clone() },
		do: func(out []float32, _ tensor.Shape, in [][]float32, _ []tensor.Shape) {
			reluGrad(out, in[0], in[1])
		},
	}
}

// newProduct is the product of two matrices, each transposed before if ta, tb.
func newProduct(ta, tb bool) *op {
	return &op{
		name: fmt.Sprintf("azserve.product %v %v", ta, tb), inputs: []hm.Type{matrixType, matrixType},
		output: matrixType,
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

// newSums adds the rows of a matrix, read as rows of n numbers: what the gradient of a bias is, of a dense layer's
// and of a convolution's, whose matrix has several cells a row.
func newSums(n int) *op {
	return &op{
		name: fmt.Sprintf("azserve.sums %d", n), inputs: []hm.Type{matrixType}, output: vectorType,
		shape: func([]tensor.Shape) tensor.Shape { return tensor.Shape{n} },
		do: func(out []float32, _ tensor.Shape, in [][]float32, _ []tensor.Shape) {
			sumRows(in[0], out)
		},
	}
}
