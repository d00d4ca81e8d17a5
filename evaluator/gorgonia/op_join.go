package gorgonia

import (
	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// join puts the columns of two matrices side by side: the logits [B, A] and the value [B, 1].
type join struct{ op }

func newJoin() *join {
	return &join{op{
		name: "azserve.join", inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
		shape: func(s []tensor.Shape) tensor.Shape { return tensor.Shape{s[0][0], s[0][1] + s[1][1]} },
		do: func(out []float32, shape tensor.Shape, in [][]float32, s []tensor.Shape) {
			a, b := s[0][1], s[1][1]
			for i := range shape[0] {
				copy(out[i*(a+b):], in[0][i*a:(i+1)*a])
				copy(out[i*(a+b)+a:], in[1][i*b:(i+1)*b])
			}
		},
	}}
}

// DiffWRT says that both have gradients.
func (*join) DiffWRT(int) []bool { return []bool{true, true} }

// SymDiff takes the gradient apart.
func (*join) SymDiff(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	out := make(gorgonia.Nodes, 2)
	for i, right := range []bool{false, true} {
		var err error
		if out[i], err = gorgonia.ApplyOp(columns(right), g, in[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// columns takes the left or the right columns of its first input, as many as its second has.
func columns(right bool) *op {
	name := "azserve.columns left"
	if right {
		name = "azserve.columns right"
	}
	return &op{
		name: name, inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
		shape: func(s []tensor.Shape) tensor.Shape { return s[1].Clone() },
		do: func(out []float32, shape tensor.Shape, in [][]float32, s []tensor.Shape) {
			n, all, from := shape[1], s[0][1], 0
			if right {
				from = all - n
			}
			for i := range shape[0] {
				copy(out[i*n:(i+1)*n], in[0][i*all+from:])
			}
		},
	}
}
