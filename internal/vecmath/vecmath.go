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

// Constants of Exp.
const (
	perLn2 = 64 / math.Ln2
	high   = 0.01082611083984375 // ln(2)/64 in two parts, the first so short that its product with k is exact
	low    = 4.313856607041089e-06
	round  = 3 << 22 // a sum with it has no fraction, and its last bits are the whole number
)

// Exp returns e^x within 2 units in the last place for x <= 88, 0 below -87.3, where the result would not
// be a normal number. It is 2^n * 2^(k/64) * e^r with 2^(k/64) from a table and |r| <= ln(2)/128, where a
// polynomial of degree 3 is enough (Tang 1989).
func Exp(x float32) float32 {
	if !(x > -87.3) { // NaN too
		if x != x {
			return x
		}
		return 0
	}
	if x > 88.3 {
		x = 88.3
	}
	return exp(x)
}

// exp is Exp of -87.3 < x <= 88.3.
func exp(x float32) float32 {
	t := x*perLn2 + round
	f := t - round
	k := math.Float32bits(t) - (0x4b400000 - 127<<6) // with the exponent's bias, so never below 0
	r := x - f*high - f*low
	s := exp64[k&63]
	return (s + s*(r+r*r*(0.5+r*(1./6)))) * math.Float32frombits(k>>6<<23)
}

// ExpAll replaces every x by e^(x - top), for x <= top, and returns the sum. NaN stays what it is, and isn't
// part of the sum. It is Exp of many, which the processor works on at the same time.
func ExpAll(x []float32, top float32) (sum float32) {
	for i, v := range x {
		v -= top
		if !(v > -87.3) {
			if v == v {
				x[i] = 0
			}
			continue
		}
		y := exp(v)
		x[i] = y
		sum += y
	}
	return sum
}

// exp64[k] is 2^(k/64).
var exp64 = func() (table [64]float32) {
	for k := range table {
		table[k] = float32(math.Exp2(float64(k) / 64))
	}
	return table
}()

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
	copy(out, logits)
	sum := ExpAll(out, top)
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
