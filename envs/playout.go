package envs

import "github.com/azserve/azserve/internal/rng"

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
		action := int32(-1)
		if k.mask == nil {
			action = int32(rnd.IntN(len(legal)))
		} else {
			k.mask.Mask(s, legal)
			action = pick(legal, rnd)
		}
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

// pick draws a true entry, -1 if there is none.
func pick(legal []bool, rnd *rng.Stream) int32 {
	count := 0
	for _, ok := range legal {
		if ok {
			count++
		}
	}
	if count == 0 {
		return -1
	}
	k := rnd.IntN(count)
	for a, ok := range legal {
		if !ok {
			continue
		}
		if k == 0 {
			return int32(a)
		}
		k--
	}
	return -1
}
