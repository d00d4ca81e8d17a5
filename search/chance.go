package search

import (
	"slices"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/vecmath"
)

// chance is the memory of a step where there is chance. Entry i is of leaf roots+i.
type chance struct {
	outcomes int
	chances  []float32 // [n, outcomes] of leaves that are chance nodes
	logits   []float32 // [n, outcomes]
	possible []bool    // [n, outcomes]

	// One half of the leaves at a time: those that are chance nodes, then those below one.
	which               []int32
	parent, slot, moves []int32
	out                 []envs.Outcome
}

func (c *chance) reserve(n, outcomes int) {
	c.outcomes = outcomes
	c.chances, c.logits = make([]float32, n*outcomes), make([]float32, n*outcomes)
	c.possible = make([]bool, n*outcomes)
	c.which, c.out = make([]int32, 0, n), make([]envs.Outcome, n)
	c.parent, c.slot, c.moves = make([]int32, 0, n), make([]int32, 0, n), make([]int32, 0, n)
}

// stepChance steps the simulator to the leaves where there is chance: to afterstates by actions, and from
// afterstates by outcomes. Where chance nodes are passed, a leaf that is one becomes its outcome. It is about the
// leaves from number first on.
func (s *Search) stepChance(first int) {
	l, a := &s.leaves, s.block.Arena
	c := &l.chance
	s.gather(first, true)
	a.Decide(c.parent, c.slot, c.moves, c.out)
	s.scatter()
	a.Chances(c.slot, c.chances[first*c.outcomes:])
	s.spreadChances(first)
	if s.cfg.Passes() {
		s.passChance()
	}
	s.gather(first, false)
	a.Happen(c.parent, c.slot, c.moves, c.out)
	s.scatter()
}

// gather collects the leaves that are chance nodes, or those that aren't.
func (s *Search) gather(first int, isChance bool) {
	l, c := &s.leaves, &s.leaves.chance
	c.which, c.parent, c.slot, c.moves = c.which[:0], c.parent[:0], c.slot[:0], c.moves[:0]
	for i := first; i < len(l.parent); i++ {
		if l.leaf[l.roots+i].Chance != isChance {
			continue
		}
		c.which = append(c.which, int32(i))
		c.parent = append(c.parent, l.parent[i])
		c.slot = append(c.slot, l.slot[l.roots+i])
		c.moves = append(c.moves, l.action[i])
	}
}

// scatter brings what was collected back to its places.
func (s *Search) scatter() {
	for k, i := range s.leaves.chance.which {
		s.leaves.outcome[i] = s.leaves.chance.out[k]
	}
}

// spreadChances moves the chances of the collected leaves, from place first on, to the leaves' places, from the
// last to the first, since they move to higher places.
func (s *Search) spreadChances(first int) {
	c := &s.leaves.chance
	for k, to := range slices.Backward(c.which) {
		copy(rowPart(c.chances, int(to), c.outcomes), rowPart(c.chances, first+k, c.outcomes))
	}
}

// passChance opens the collected chance nodes and puts their outcomes in their places.
func (s *Search) passChance() {
	l, c := &s.leaves, &s.leaves.chance
	for _, i := range c.which {
		at := l.roots + int(i)
		if l.outcome[i].Terminated {
			continue
		}
		base := l.row[at] * int32(s.stride)
		s.turns[l.slot[at]] = s.turns[l.parent[i]]
		leaf := s.trees[l.row[at]].Through(l.leaf[at], l.outcome[i].Reward, rowPart(c.chances, int(i), c.outcomes))
		l.leaf[at], l.action[i] = leaf, leaf.Action
		l.parent[i], l.slot[at] = base+leaf.Parent, base+leaf.Node
	}
}

// markChance marks the rows of the batch that are afterstates.
func (s *Search) markChance(ask []int32) {
	b := &s.leaves.batch
	for i, at := range ask {
		b.Chance[i] = s.isChance(at)
		if b.Chance[i] && b.Legal != nil {
			legal := rowPart(b.Legal, i, s.actions)
			for a := range legal {
				legal[a] = true
			}
		}
	}
}

// isChance says that entry at of the step is an afterstate that waits for its evaluation.
func (s *Search) isChance(at int32) bool { return s.leaves.leaf[at].Chance }

// prior returns the logits of leaf i's outcomes, and which of them can happen.
func (c *chance) prior(i int) (logits []float32, possible []bool) {
	logits, possible = rowPart(c.logits, i, c.outcomes), rowPart(c.possible, i, c.outcomes)
	for o, p := range rowPart(c.chances, i, c.outcomes) {
		logits[o], possible[o] = vecmath.Log(p), p > 0
	}
	return logits, possible
}
