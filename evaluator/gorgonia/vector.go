package gorgonia

import "math"

// relu replaces negative numbers by 0, without a branch: the signs of activations can't be predicted. What
// is no number stays so.
func relu(x []float32) {
	for i, v := range x {
		x[i] = 0.5 * (v + math.Float32frombits(math.Float32bits(v)&^(1<<31)))
	}
}

// reluGrad writes g where y, the output of relu, is positive, else 0.
func reluGrad(out, y, g []float32) {
	y, g = y[:len(out)], g[:len(out)]
	for i := range out {
		mask := uint32(int32(-math.Float32bits(y[i])) >> 31) // y is 0 or positive: all bits, or none
		out[i] = math.Float32frombits(math.Float32bits(g[i]) & mask)
	}
}

// addBias is y = x + bias in every row of len(bias) numbers.
func addBias(y, x, bias []float32) {
	n := len(bias)
	for at := 0; at+n <= len(y); at += n {
		to, from := y[at:at+n], x[at:at+n]
		for j, b := range bias {
			to[j] = from[j] + b
		}
	}
}

func sum(x []float32) float32 {
	s := float32(0)
	for _, v := range x {
		s += v
	}
	return s
}

// sumRows writes the sum of the rows of len(out) numbers.
func sumRows(x, out []float32) {
	clear(out)
	n := len(out)
	for at := 0; at+n <= len(x); at += n {
		for j, v := range x[at : at+n] {
			out[j] += v
		}
	}
}
