package gorgonia

import (
	"fmt"
	"math"

	"github.com/azserve/azserve/internal/vecmath"
	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// loss is the AlphaZero loss of a batch (Silver et al. 2017, eq. 1, without the L2 term):
//
//	sum over rows of weight * (cross-entropy + valueWeight * (z - v)^2) / sum of weights
//
// Inputs: the network's output [B, A+1], the policy to learn [B, A], legal actions as 1 or 0 [B, A],
// values to learn z [B], row weights [B]. Illegal actions take no part in the softmax.
type loss struct {
	op
	valueWeight float32
	bounded     bool // v = tanh of the last column
}

func newLoss(valueWeight float32, bounded bool) *loss {
	l := &loss{valueWeight: valueWeight, bounded: bounded}
	l.op = op{
		name:   fmt.Sprintf("azserve.loss value=%v bounded=%v", valueWeight, bounded),
		inputs: []hm.Type{matrixType, matrixType, matrixType, vectorType, vectorType},
		output: scalarType,
		shape:  func([]tensor.Shape) tensor.Shape { return tensor.ScalarShape() },
		do: func(out []float32, _ tensor.Shape, in [][]float32, s []tensor.Shape) {
			policy, value := l.parts(in, s[1][1])
			out[0] = policy + l.valueWeight*value
		},
	}
	return l
}

// row is one sample of a batch.
type row struct {
	logits, policy, legal []float32
	v, z, weight          float32
}

// rows calls f for each sample.
func (l *loss) rows(in [][]float32, a int, f func(i int, r *row)) {
	for i, w := range in[4] {
		out := in[0][i*(a+1) : (i+1)*(a+1)]
		r := row{
			logits: out[:a], policy: in[1][i*a : (i+1)*a], legal: in[2][i*a : (i+1)*a],
			v: valueOf(out[a], l.bounded), z: in[3][i], weight: w,
		}
		f(i, &r)
	}
}

// valueOf turns the network's last column into a value.
func valueOf(x float32, bounded bool) float32 {
	if bounded {
		return float32(math.Tanh(float64(x)))
	}
	return x
}

// parts returns the weighted means of cross-entropy and squared error.
func (l *loss) parts(in [][]float32, a int) (policy, value float32) {
	total := sum(in[4])
	l.rows(in, a, func(_ int, r *row) {
		lse := r.logSumExp()
		ce := float32(0)
		for j, p := range r.policy {
			if p != 0 {
				ce -= p * (r.logits[j] - lse)
			}
		}
		policy += r.weight * ce / total
		value += r.weight * (r.z - r.v) * (r.z - r.v) / total
	})
	return policy, value
}

// logSumExp is over the legal actions.
func (r *row) logSumExp() float32 {
	top := vecmath.NegInf
	for j, l := range r.logits {
		if r.legal[j] != 0 {
			top = max(top, l)
		}
	}
	s := float32(0)
	for j, l := range r.logits {
		if r.legal[j] != 0 {
			s += vecmath.Exp(l - top)
		}
	}
	return top + vecmath.Log(s)
}

// DiffWRT says that only the network's output has a gradient.
func (l *loss) DiffWRT(int) []bool { return []bool{true, false, false, false, false} }

// SymDiff builds the gradient: softmax - policy, and the squared error's.
func (l *loss) SymDiff(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	grad := &op{
		name:   l.name + " grad",
		inputs: append(l.inputs[:5:5], scalarType), output: matrixType,
		shape: func(s []tensor.Shape) tensor.Shape { return s[0].Clone() },
		do:    l.backward,
	}
	d, err := gorgonia.ApplyOp(grad, append(in[:5:5], g)...)
	return gorgonia.Nodes{d, nil, nil, nil, nil}, err
}

func (l *loss) backward(out []float32, s tensor.Shape, in [][]float32, _ []tensor.Shape) {
	a := s[1] - 1
	scale := in[5][0] / sum(in[4])
	l.rows(in, a, func(i int, r *row) {
		d := out[i*(a+1) : (i+1)*(a+1)]
		w := r.weight * scale
		mass := sum(r.policy) // 1, or 0 for a row without a policy to learn
		lse := r.logSumExp()
		for j := range r.logits {
			d[j] = 0
			if r.legal[j] != 0 {
				d[j] = w * (mass*vecmath.Exp(r.logits[j]-lse) - r.policy[j])
			}
		}
		d[a] = w * l.valueWeight * 2 * (r.v - r.z)
		if l.bounded {
			d[a] *= 1 - r.v*r.v
		}
	})
}
