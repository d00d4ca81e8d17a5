// Package rng draws random numbers from counter-based streams: value n of a stream is a pure
// function of the stream's key and n. Nothing is shared between streams, so what a search row or an
// environment draws never depends on threads, batches or the order of other work.
package rng

import (
	"math"
	"math/bits"

	"github.com/azserve/azserve/internal/vecmath"
)

// golden is the odd 64-bit constant nearest 2^64 divided by the golden ratio (SplitMix64).
const golden = 0x9e3779b97f4a7c15

// Stream is one sequence of numbers. It is plain data: copying it forks the sequence, so it can be
// part of an environment's state. The zero Stream is valid, and the same for everybody.
// Not safe for concurrent use.
type Stream struct {
	Key uint64 // names the stream
	N   uint64 // how many 64-bit values were drawn
}

// New returns the stream named by a seed and a path, e.g. New(seed, row). Different names give
// independent streams.
func New(seed uint64, path ...uint64) Stream {
	return Stream{Key: Derive(seed, path...)}
}

// Derive hashes a seed and a path into one seed.
func Derive(seed uint64, path ...uint64) uint64 {
	key := mix(seed + golden)
	for _, p := range path {
		key = mix(key ^ mix(p+golden))
	}
	return key
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014; variant 13 of Stafford).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint64 returns the next 64 random bits.
func (s *Stream) Uint64() uint64 {
	s.N++
	return mix(s.Key + s.N*golden)
}

// Float64 returns a uniform number in [0, 1) with 53 random bits.
func (s *Stream) Float64() float64 {
	return float64(s.Uint64()>>11) * 0x1p-53
}

// open returns a uniform number in (0, 1): its logarithm is finite.
func (s *Stream) open() float64 {
	return (float64(s.Uint64()>>12) + 0.5) * 0x1p-52
}

// IntN returns a uniform integer in [0, n). n must be positive. The bias of the multiplication
// method is below n/2^64.
func (s *Stream) IntN(n int) int {
	hi, _ := bits.Mul64(s.Uint64(), uint64(n))
	return int(hi)
}

// Gumbel returns a draw of the standard Gumbel distribution: -ln(-ln u).
func (s *Stream) Gumbel() float32 {
	return float32(-math.Log(-math.Log(s.open())))
}

// Norm returns a draw of the standard normal distribution (Box and Muller 1958, one of the pair).
func (s *Stream) Norm() float64 {
	r := math.Sqrt(-2 * math.Log(s.open()))
	return r * math.Cos(2*math.Pi*s.Float64())
}

// logGamma returns the logarithm of a Gamma(alpha, 1) draw. Small alphas underflow as plain numbers
// (alpha 0.03 often gives 1e-40), hence the logarithm. Marsaglia and Tsang 2000, boosted below 1.
func (s *Stream) logGamma(alpha float64) float64 {
	boost := 0.0
	if alpha < 1 {
		boost = math.Log(s.open()) / alpha
		alpha++
	}
	d := alpha - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := s.Norm()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		u, logV := s.open(), math.Log(v)
		// The first test implies the second, and spares its logarithm nearly always.
		if u < 1-0.0331*x*x*x*x || math.Log(u) < 0.5*x*x+d-d*v+d*logV {
			return math.Log(d) + logV + boost
		}
	}
}

// Dirichlet fills out, over the entries where legal is true, with a draw of the symmetric Dirichlet
// distribution of concentration alpha > 0; other entries become 0. A nil legal means all. With no
// legal entry everything is 0.
func (s *Stream) Dirichlet(alpha float64, legal []bool, out []float32) {
	for i := range out {
		out[i] = vecmath.NegInf
		if legal == nil || legal[i] {
			out[i] = float32(s.logGamma(alpha))
		}
	}
	vecmath.Softmax(out, out)
}
