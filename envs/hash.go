package envs

import (
	"encoding/binary"
	"math/bits"
)

// HashKey hashes numbers into one key: what a [Hasher] returns. Their order matters.
func HashKey(parts ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h = hashStep(h, p)
	}
	return h
}

// hashStep folds a 128-bit product, as wyhash does: every bit of both halves reaches every bit.
func hashStep(h, p uint64) uint64 {
	hi, lo := bits.Mul64(h^p^0xa0761d6478bd642f, h^bits.RotateLeft64(p, 32)^0xe7037ed1a0b428db)
	return hi ^ lo
}

// hashBytes is HashKey of a byte string.
func hashBytes(b []byte) uint64 {
	h := HashKey(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = hashStep(h, binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h = hashStep(h, uint64(c))
	}
	return h
}

// Hash writes the key of each slot's state: the rules' own, else of all the bytes of the state, which
// is right for every environment, but makes states differ that differ in nothing but their random
// stream or their clock.
func (a *arena[S]) Hash(slots []int32, keys []uint64) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	if a.k.hash != nil {
		for i, slot := range slots {
			row = i
			keys[i] = a.k.hash.Hash(a.at(slabs, slot))
		}
		return
	}
	sc := a.tmp.Get().(*scratch[S])
	defer a.tmp.Put(sc)
	for i, slot := range slots {
		row = i
		sc.bytes = a.k.appendState(sc.bytes[:0], a.at(slabs, slot))
		keys[i] = hashBytes(sc.bytes)
	}
}
