// Package vecmath holds the small float32 kernels that search, evaluators and learners share. They
// take flat slices, allocate nothing and have no state.
package vecmath

import "math"

// Tiny is the smallest normal float32: what mctx clips probabilities to before a logarithm.
const Tiny = 1.1754944e-38

// InvalidLogit is mctx's logit of an invalid action: the float32 minimum.
const InvalidLogit = -3.4028235e+38

// NegInf is minus infinity as a float32.
var NegInf = float32(math.Inf(-1))

// Exp returns e^x within 2 units in the last place for x <= 88 (Cephes' expf), 0 below -87.3, where
// the result would not be a normal number.
func Exp(x float32) float32 {
	const log2e = 1.44269504088896341
	if !(x > -87.3) { // NaN too: it must not reach the conversion below
		if x != x {
			return x
		}
		return 0
	}
	x = min(x, 88.3)
	half := float32(0.5)
	if x < 0 {
		half = -0.5
	}
	n := int32(x*log2e + half)
	f := float32(n)
	x -= f * 0.693359375
	x -= f * -2.12194440e-4
	y := float32(1.9875691500e-4)
	y = y*x + 1.3981999507e-3
	y = y*x + 8.3334519073e-3
	y = y*x + 4.1665795894e-2
	y = y*x + 1.6666665459e-1
	y = y*x + 5.0000001201e-1
	y = y*x*x + x + 1
	return y * math.Float32frombits(uint32(n+127)<<23)
}

// Log returns the natural logarithm of x.
func Log(x float32) float32 { return float32(math.Log(float64(x))) }

// Max returns the largest entry, and minus infinity for an empty slice.
func Max(x []float32) float32 {
	m := NegInf
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// ArgMax returns the index of the first largest entry, 0 if all are minus infinity or NaN.
func ArgMax(x []float32) int {
	best, at := NegInf, 0
	for i, v := range x {
		if v > best {
			best, at = v, i
		}
	}
	return at
}

// Softmax writes softmax(logits) to out; they may be the same slice. Entries of minus infinity get
// 0. If every entry is minus infinity the result is 0 everywhere.
func Softmax(logits, out []float32) {
	top := Max(logits)
	if math.IsInf(float64(top), -1) {
		clear(out)
		return
	}
	sum := float32(0)
	for i, l := range logits {
		out[i] = Exp(l - top)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
}

// LogSumExp returns ln(sum(exp(x))), minus infinity if every entry is.
func LogSumExp(x []float32) float32 {
	top := Max(x)
	if math.IsInf(float64(top), -1) {
		return top
	}
	sum := float32(0)
	for _, v := range x {
		sum += Exp(v - top)
	}
	return top + Log(sum)
}
