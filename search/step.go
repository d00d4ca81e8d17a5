package search

import (
	"fmt"
	"math"
	"time"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/search/tree"
)

// Select goes on until there are states to evaluate, and returns them; N is 0 when every row is
// done. The first batch is the roots. What it returns is valid until the next call.
func (s *Search) Select() (batch *evaluator.Batch, err error) {
	defer safe.Recover(&err)
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.waiting:
		return nil, fmt.Errorf("%w: Select before Expand", ErrOrder)
	}
	s.leaves.clear()
	if s.ended { // by a bad answer to the last batch
		s.dropDone()
	}
	for len(s.leaves.order) == 0 && len(s.active) > 0 {
		s.leaves.clear()
		s.selectRoots()
		s.advanceRows(s.active)
		for s.refills && len(s.leaves.again) > 0 && s.hasRoom() {
			s.advanceRows(s.leaves.again)
		}
		if s.ended {
			s.dropDone()
		}
	}
	s.fillBatch()
	s.waiting = s.leaves.batch.N > 0
	return &s.leaves.batch, nil
}

// hasRoom says whether all rows could have one more leaf in this step.
func (s *Search) hasRoom() bool { return len(s.leaves.row)+len(s.leaves.again) <= cap(s.leaves.row) }

// advanceRows does a simulation in each of some rows, up to its evaluation: those that need none are in
// leaves.again afterwards.
func (s *Search) advanceRows(rows []int32) {
	l := &s.leaves
	first := len(l.parent)
	s.selectLeaves(rows)
	l.again = l.again[:0]
	s.stepLeaves(first)
	if s.cfg.Cache != nil {
		s.find()
	}
}

func (l *leaves) clear() {
	l.row, l.leaf, l.order, l.again = l.row[:0], l.leaf[:0], l.order[:0], l.again[:0]
	l.parent, l.slot, l.action = l.parent[:0], l.slot[:0], l.action[:0]
	l.found.clear()
}

// selectRoots gathers the roots that wait for an evaluation.
func (s *Search) selectRoots() {
	l := &s.leaves
	l.roots = 0
	if !s.waits {
		return
	}
	s.waits = false
	for _, row := range s.active {
		if !s.fresh[row] {
			continue
		}
		l.order = append(l.order, int32(len(l.row)))
		l.row = append(l.row, row)
		l.leaf = append(l.leaf, tree.Leaf{Node: tree.Root})
		l.slot = append(l.slot, row*int32(s.stride))
	}
	l.roots = len(l.row)
	if s.keyed {
		s.block.Arena.Hash(l.slot, l.keys)
	}
}

// selectLeaves asks the trees of some rows for leaves.
func (s *Search) selectLeaves(of []int32) {
	l, each := &s.leaves, s.cfg.LeavesPerStep
	at := len(l.row)
	all := l.leaf[:cap(l.leaf)]
	rows, slots := l.row[:cap(l.row)], l.slot[:cap(l.slot)]
	parents, actions := l.parent[:cap(l.parent)], l.action[:cap(l.action)]
	for _, row := range of {
		if s.fresh[row] {
			continue
		}
		n := s.trees[row].Select(all[at : at+each])
		if n < each { // it may be done
			s.ended = true
		}
		base := row * int32(s.stride)
		for range n {
			leaf := &all[at] // no copy: it was written a moment ago, in smaller parts
			rows[at], slots[at] = row, base+leaf.Node
			parents[at-l.roots], actions[at-l.roots] = base+leaf.Parent, leaf.Action
			at++
		}
	}
	l.leaf, l.row, l.slot = all[:at], rows[:at], slots[:at]
	l.parent, l.action = parents[:at-l.roots], actions[:at-l.roots]
}

// stepLeaves steps the simulator to the leaves from number first on. Those where the game ended are backed up
// at once.
func (s *Search) stepLeaves(first int) {
	l, a := &s.leaves, s.block.Arena
	slots := l.slot[l.roots+first:]
	turn := l.turn[first:]
	if s.cfg.Outcomes > 0 {
		s.stepChance(first)
	} else {
		a.Step(l.parent[first:], slots, l.action[first:], l.outcome[first:])
	}
	a.ToPlay(slots, turn)
	if s.env.Capabilities().Discounts {
		a.Discount(slots, l.discount[first:])
	} else {
		s.discounts(first)
	}
	if s.keyed {
		a.Hash(slots, l.keys[l.roots+first:])
	}
	for i := range slots {
		s.turns[slots[i]] = turn[i]
		at := l.roots + first + i
		switch settled := s.settle(first+i, at); {
		case !settled:
			l.order = append(l.order, int32(at))
		case s.refills:
			l.again = append(l.again, l.row[at])
		}
	}
}

// settle backs a leaf up that needs no evaluation: where the game ended, or whose value is proven.
func (s *Search) settle(i, at int) bool {
	l := &s.leaves
	t, o := s.trees[l.row[at]], &l.outcome[i]
	value, known := float32(0), o.Terminated
	if !known && s.cfg.Solve {
		value, known = t.Known(l.keys[at])
	}
	if known {
		t.Apply(l.leaf[at], &tree.Evaluation{
			Reward: o.Reward, Discount: l.discount[i], Ended: true, Proven: true, Value: value,
		})
	}
	return known
}

// discounts writes the discount of each leaf's step from number first on: 0 into a terminal state, -1 where the mover
// changes, the configured one where there is one player.
func (s *Search) discounts(first int) {
	l := &s.leaves
	same := float32(1)
	if s.env.Spec().NumPlayers == 1 {
		same = s.cfg.Discount
	}
	for i := first; i < len(l.parent); i++ {
		d := same
		switch {
		case l.outcome[i].Terminated:
			d = 0
		case l.leaf[l.roots+i].Chance: // the discount is the outcome's
			d = 1
		case l.turn[i] != s.turns[l.parent[i]]:
			d = -1
		}
		l.discount[i] = d
	}
}

// dropDone forgets the rows that have nothing left to do. Those whose root waits for its evaluation stay.
func (s *Search) dropDone() {
	s.ended = false
	var now time.Time
	if s.roots.Deadlines != nil {
		now = time.Now()
	}
	kept := s.active[:0]
	for _, row := range s.active {
		searching := !s.trees[row].Done() && !s.late(row, now)
		if s.errs[row] == nil && (s.fresh[row] || searching) {
			kept = append(kept, row)
		}
	}
	s.active = kept
}

// late says that a row's deadline has passed.
func (s *Search) late(row int32, now time.Time) bool {
	return s.roots.Deadlines != nil && now.After(s.roots.Deadlines[row])
}

// fillBatch reads the states to evaluate.
func (s *Search) fillBatch() {
	l, b, a := &s.leaves, &s.leaves.batch, s.block.Arena
	ask := s.asked()
	b.N = len(ask)
	if b.N == 0 {
		return
	}
	slots := b.Slots[:b.N]
	for i, at := range ask {
		slots[i] = l.slot[at]
	}
	if b.Obs != nil {
		a.Observe(slots, b.Obs, 0)
	}
	if b.Legal != nil {
		a.Mask(slots, b.Legal)
	}
	if b.Chance != nil {
		s.markChance(ask)
	}
	if s.needs.States {
		b.Arena = a
		for i, at := range ask {
			b.Seeds[i] = rng.Derive(s.seed(l.row[at]), streamLeaf, uint64(l.leaf[at].Node))
		}
	}
	s.stats.Evaluations += b.N
	s.stats.Batches++
	s.stats.Room += max(s.Rows()*s.cfg.LeavesPerStep, b.N)
}

// Expand takes the evaluator's answer to the batch that Select returned: logits [N, A] (nil means
// all equal) and values [N] from the view of the player to move. A row with a number that isn't
// finite is given up (see Err); a logit of minus infinity is a prior of 0.
func (s *Search) Expand(logits, values []float32) error { return s.expand(logits, values, nil) }

// expand is Expand with the rows that have no answer, [N] or nil.
func (s *Search) expand(logits, values []float32, errs []error) error {
	n := s.leaves.batch.N
	switch {
	case s.closed:
		return ErrClosed
	case !s.waiting:
		return fmt.Errorf("%w: Expand before Select", ErrOrder)
	case len(values) < n || (logits != nil && len(logits) < n*s.actions):
		return fmt.Errorf("%w: %d logits and %d values; want %d and %d", ErrEvaluator, len(logits),
			len(values), n*s.actions, n)
	}
	s.waiting = false
	if s.cfg.Cache != nil {
		s.remember(logits, values, errs)
	}
	s.applyAll(logits, values, errs)
	if s.roots.Deadlines != nil {
		s.dropDone()
	}
	return nil
}

// applyAll gives every leaf of the step its answer, in the order in which they were selected.
func (s *Search) applyAll(logits, values []float32, errs []error) {
	for i := range s.leaves.order {
		s.applyEntry(i, logits, values, errs)
	}
}

// applyEntry gives entry i of the step its answer.
func (s *Search) applyEntry(i int, logits, values []float32, errs []error) {
	at := s.leaves.order[i]
	row := s.leaves.row[at]
	if s.errs[row] != nil {
		return
	}
	v := &s.leaves.eval
	err := s.answer(v, i, logits, values, errs)
	if s.isChance(at) {
		v.Logits = nil
	}
	if err == nil {
		err = checkAnswer(v.Logits, v.Value)
	}
	if err != nil {
		s.errs[row], s.ended = err, true
		return
	}
	if s.isChance(at) {
		v.Logits, v.Legal = s.leaves.chance.prior(int(at) - s.leaves.roots)
	}
	s.apply(row, at, v)
}

// answer writes what is known of entry i of the step: the evaluator's answer, or the cache's.
func (s *Search) answer(v *tree.Evaluation, i int, logits, values []float32, errs []error) error {
	legal := s.leaves.batch.Legal
	if s.cfg.Cache != nil {
		f := &s.leaves.found
		if hit := f.place[i]; hit < 0 {
			logits, values, i, errs = f.logits, f.values, int(-1-hit), nil
			legal = f.legal
		} else {
			i = int(hit)
		}
		if s.leaves.batch.Legal == nil {
			legal = nil
		}
	}
	v.Value, v.Logits, v.Legal = values[i], rowPart(logits, i, s.actions), rowPart(legal, i, s.actions)
	if errs != nil {
		return errs[i]
	}
	return nil
}

// apply expands a leaf, or sets up a root.
func (s *Search) apply(row, at int32, v *tree.Evaluation) {
	l := &s.leaves
	if int(at) < l.roots {
		in := s.rootInput(row, v.Legal)
		in.Logits, in.Value = v.Logits, v.Value
		s.trees[row].SetRoot(in)
		s.fresh[row] = false
		return
	}
	i := int(at) - l.roots
	o := &l.outcome[i]
	v.Reward, v.Discount, v.Ended, v.Key = o.Reward, l.discount[i], o.Truncated, l.keys[at]
	s.trees[row].Apply(l.leaf[at], v)
}

// checkAnswer names the first number that no evaluator should give.
func checkAnswer(logits []float32, value float32) error {
	if value-value != 0 {
		return fmt.Errorf("value is %v; want a finite number", value)
	}
	const sign, infinity = 1 << 31, 0x7f800000
	most := uint32(0)
	for _, l := range logits {
		most = max(most, math.Float32bits(l)&^sign) // infinities and NaN are above all other numbers
	}
	if most < infinity {
		return nil
	}
	for a, l := range logits {
		if l != l || l > -vecmath.InvalidLogit {
			return fmt.Errorf("logit of action %d is %v; want a finite number or -Inf", a, l)
		}
	}
	return nil
}

// seed returns what a row draws from in this round.
func (s *Search) seed(row int32) uint64 {
	if s.round == 0 {
		return s.roots.Seeds[row]
	}
	return rng.Derive(s.roots.Seeds[row], s.round)
}

// rootInput returns a root's masks and noise.
func (s *Search) rootInput(row int32, legal []bool) *tree.RootInput {
	seed := s.seed(row)
	in := &tree.RootInput{Legal: legal, Seed: rng.Derive(seed, streamChance)}
	if s.roots.Simulations != nil {
		in.Simulations = int(s.roots.Simulations[row])
	}
	if s.roots.Invalid != nil {
		in.Invalid = rowPart(s.roots.Invalid, int(row), s.actions)
	}
	if in.Fast = s.roots.Fast != nil && s.roots.Fast[row]; in.Fast {
		return in
	}
	if s.cfg.Policy == tree.Gumbel {
		in.Gumbel = s.rootGumbel(row, seed)
	} else if s.cfg.Policy != tree.UCT && s.cfg.DirichletFraction > 0 {
		in.Fraction = s.cfg.DirichletFraction
		in.Dirichlet = s.dirichlet(row, seed, legal, in.Invalid)
	}
	return in
}

// dirichlet returns a row's noise, over the actions that may be chosen.
func (s *Search) dirichlet(row int32, seed uint64, legal, invalid []bool) []float32 {
	if x := s.roots.Noise.Dirichlet; x != nil {
		return rowPart(x, int(row), s.actions)
	}
	valid := make([]bool, s.actions)
	for a := range valid {
		valid[a] = (legal == nil || legal[a]) && (invalid == nil || !invalid[a])
	}
	out := make([]float32, s.actions)
	rnd := rng.New(seed, streamDirichlet)
	rnd.Dirichlet(float64(s.cfg.DirichletAlpha), valid, out)
	return out
}

// rootGumbel returns a row's scaled noise, nil for none.
func (s *Search) rootGumbel(row int32, seed uint64) []float32 {
	if s.cfg.GumbelScale == 0 {
		return nil
	}
	out := s.gumbel(s.roots.Noise.RootGumbel, row, seed, streamRootGumbel)
	scaled := make([]float32, len(out))
	for a, g := range out {
		scaled[a] = g * s.cfg.GumbelScale
	}
	return scaled
}

// gumbel returns a row of given noise, or draws it.
func (s *Search) gumbel(given []float32, row int32, seed, stream uint64) []float32 {
	if given != nil {
		return rowPart(given, int(row), s.actions)
	}
	rnd := rng.New(seed, stream)
	out := make([]float32, s.actions)
	for a := range out {
		out[a] = rnd.Gumbel()
	}
	return out
}
