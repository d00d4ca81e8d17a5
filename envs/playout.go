package envs

import (
	"math/bits"

	"github.com/azserve/azserve/internal/rng"
)

// Playout plays random legal actions from each slot's state, on a copy, to the end or for at most
// maxSteps steps, and writes the sum of the rewards from the view of the player to move in that state:
// his own count, the others' are taken off. From an afterstate nature draws first. seeds has one number
// a slot that all draws come from.
func (a *arena[S]) Playout(slots []int32, seeds []uint64, maxSteps int, value []float32) {
	sc := a.tmp.Get().(*scratch[S])
	defer a.tmp.Put(sc)
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		a.clone(&sc.state, a.at(slabs, slot))
		rnd := rng.New(seeds[i])
		value[i] = a.playout(&sc.state, sc, &rnd, maxSteps)
	}
}

func (a *arena[S]) playout(s *S, sc *scratch[S], rnd *rng.Stream, maxSteps int) (value float32) {
	k, legal := a.k, sc.legal
	first := k.toPlay(s)
	if out := k.settleChance(s, sc.chance, rnd); out != (Outcome{}) {
		if value = out.Reward; out.Terminated || out.Truncated {
			return value
		}
	}
	for range maxSteps {
		action := k.pick(s, legal, rnd.Uint64())
		if action < 0 {
			return value
		}
		mover := k.toPlay(s)
		out := k.rules.Step(s, action)
		if mover == first {
			value += out.Reward
		} else {
			value -= out.Reward
		}
		if out.Terminated || out.Truncated {
			return value
		}
	}
	return value
}

// toPlay returns the player to move.
func (k *kernel[S]) toPlay(s *S) int32 {
	if k.turn == nil {
		return 0
	}
	return k.turn.ToPlay(s)
}

func (a *arena[S]) Pick(slots []int32, random []uint64, actions []int32) {
	sc := a.tmp.Get().(*scratch[S])
	defer a.tmp.Put(sc)
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		actions[i] = a.k.pick(a.at(slabs, slot), sc.legal, random[i])
	}
}

// pick draws a legal action, -1 if there is none.
func (k *kernel[S]) pick(s *S, legal []bool, r uint64) int32 {
	switch {
	case k.picker != nil:
		return k.picker.Pick(s, r)
	case k.mask == nil:
		return int32(nth(r, len(legal)))
	}
	k.mask.Mask(s, legal)
	count := 0
	for _, ok := range legal {
		if ok {
			count++
		}
	}
	if count == 0 {
		return -1
	}
	left := nth(r, count)
	for a, ok := range legal {
		if !ok {
			continue
		}
		if left == 0 {
			return int32(a)
		}
		left--
	}
	return -1
}

// nth is floor(r * n / 2^64): one of 0..n-1, each as likely but for n in 2^64.
func nth(r uint64, n int) int {
	hi, _ := bits.Mul64(r, uint64(n))
	return int(hi)
}

// nthBit returns the position of the n-th set bit, from 0; there are more than n.
func nthBit(set uint64, n int) int {
	for range n {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}
