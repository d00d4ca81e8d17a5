package envs

import "github.com/azserve/azserve/internal/rng"

func (a *arena[S]) Decide(parents, children, actions []int32, out []Outcome) {
	a.eachChild(parents, children, func(i int, s *S) { out[i] = a.k.chance.Decide(s, actions[i]) })
}

func (a *arena[S]) Happen(parents, children, outcomes []int32, out []Outcome) {
	a.eachChild(parents, children, func(i int, s *S) { out[i] = a.k.chance.Happen(s, outcomes[i]) })
}

// eachChild clones each parent to its child and calls f with the child's state.
func (a *arena[S]) eachChild(parents, children []int32, f func(i int, s *S)) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, child := range children {
		row = i
		s := a.at(slabs, child)
		a.clone(s, a.at(slabs, parents[i]))
		f(i, s)
	}
}

func (a *arena[S]) Chances(slots []int32, chances []float32) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	n := a.k.spec.NumOutcomes
	for i, slot := range slots {
		row = i
		a.k.chance.Chances(a.at(slabs, slot), chances[i*n:(i+1)*n])
	}
}

// drawOutcome draws an outcome by its probability, -1 if all are 0.
func drawOutcome(chances []float32, rnd *rng.Stream) int32 {
	sum := float32(0)
	for _, p := range chances {
		sum += p
	}
	left, last := float32(rnd.Float64())*sum, int32(-1)
	for o, p := range chances {
		if p <= 0 {
			continue
		}
		last = int32(o)
		if left -= p; left < 0 {
			break
		}
	}
	return last
}

// settleChance draws what nature has to draw in a state where a playout begins, and returns the reward.
func (k *kernel[S]) settleChance(s *S, chances []float32, rnd *rng.Stream) Outcome {
	if k.chance == nil {
		return Outcome{}
	}
	k.chance.Chances(s, chances)
	if o := drawOutcome(chances, rnd); o >= 0 {
		return k.chance.Happen(s, o)
	}
	return Outcome{}
}
