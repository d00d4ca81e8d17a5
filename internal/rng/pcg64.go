package rng

import "math/bits"

// PCG64 is NumPy's default bit generator (PCG XSL-RR 128/64, O'Neill 2014), so that environments
// whose reference draws from numpy.random reproduce it bit for bit. It is plain data.
// Go's math/rand/v2.PCG is another variant (DXSM) and gives other numbers.
type PCG64 struct {
	StateHi, StateLo uint64
	IncHi, IncLo     uint64
}

const (
	pcgMulHi = 0x2360ed051fc65da4
	pcgMulLo = 0x4385df649fccf645
)

// NewPCG64 returns numpy.random.default_rng(seed)'s generator.
func NewPCG64(seed uint64) PCG64 {
	w := seedSequence(seed)
	p := PCG64{IncHi: w[2]<<1 | w[3]>>63, IncLo: w[3]<<1 | 1}
	p.step()
	var carry uint64
	p.StateLo, carry = bits.Add64(p.StateLo, w[1], 0)
	p.StateHi, _ = bits.Add64(p.StateHi, w[0], carry)
	p.step()
	return p
}

// step advances the 128-bit linear congruential state.
func (p *PCG64) step() {
	hi, lo := bits.Mul64(p.StateLo, pcgMulLo)
	hi += p.StateHi*pcgMulLo + p.StateLo*pcgMulHi
	var carry uint64
	p.StateLo, carry = bits.Add64(lo, p.IncLo, 0)
	p.StateHi, _ = bits.Add64(hi, p.IncHi, carry)
}

// Uint64 returns the next 64 random bits.
func (p *PCG64) Uint64() uint64 {
	p.step()
	return bits.RotateLeft64(p.StateHi^p.StateLo, -int(p.StateHi>>58))
}

// Uniform returns Generator.uniform(low, high). The products are rounded one by one, as NumPy does:
// the conversions keep the compiler from fusing them.
func (p *PCG64) Uniform(low, high float64) float64 {
	u := float64(p.Uint64()>>11) * 0x1p-53
	return low + float64((high-low)*u)
}

// seedSequence is numpy.random.SeedSequence(seed).generate_state(4, uint64), for seeds below 2^64
// (O'Neill's seed_seq_fe with a pool of four 32-bit words).
func seedSequence(seed uint64) [4]uint64 {
	const (
		initA, multA = 0x43b0d7e5, 0x931e8875
		initB, multB = 0x8b51f9dd, 0x58f38ded
		mixL, mixR   = 0xca01f9dd, 0x4973f715
	)
	h := uint32(initA)
	hash := func(v uint32) uint32 {
		v ^= h
		h *= multA
		v *= h
		return v ^ v>>16
	}
	pool := [4]uint32{uint32(seed), uint32(seed >> 32)}
	for i := range pool {
		pool[i] = hash(pool[i])
	}
	for src := range pool {
		for dst := range pool {
			if src != dst {
				m := mixL*pool[dst] - mixR*hash(pool[src])
				pool[dst] = m ^ m>>16
			}
		}
	}
	var out [4]uint64
	h = initB
	for i := range 8 {
		v := pool[i%4] ^ h
		h *= multB
		v *= h
		v ^= v >> 16
		out[i/2] |= uint64(v) << (32 * (i % 2))
	}
	return out
}
