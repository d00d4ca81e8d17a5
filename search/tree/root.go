package tree

import (
	"math"

	"github.com/azserve/azserve/internal/vecmath"
)

// RootInput is what a search starts from. Slices belong to the caller and aren't kept.
type RootInput struct {
	Logits []float32 // [A] the evaluator's prior logits; nil means all equal
	Value  float32   // the evaluator's value, from the view of the player to move
	Legal  []bool    // [A] the simulator's legal actions; nil means all. None: the root is terminal

	// Invalid masks actions as mctx's invalid_actions does, beside Legal; nil means none. If it
	// masks all that is legal, every simulation goes to the first legal action, as in mctx, where that is
	// action 0.
	Invalid []bool

	// Dirichlet is noise that is mixed into the prior with weight Fraction (MuZero, AlphaZero). MuZero
	// mixes it before masking, as mctx does; AlphaZero after. Nil means none.
	Dirichlet []float32
	Fraction  float32

	// Gumbel is noise, already scaled, that is added to the logits when actions are compared at the
	// root (Gumbel). Nil means none.
	Gumbel []float32

	// Simulations is the budget, at most the configured one; 0 means that one. Fast leaves forced playouts
	// away; give a fast search no noise either. Both are for playout cap randomisation (Wu 2019, section
	// 3.1): few searches are full ones, and learnt from.
	Simulations int
	Fast        bool

	Seed     uint64 // of the draws where chance nodes are passed
	Terminal bool   // the game is over here: no simulation is done
}

// SetRoot begins the search. Call it once after Reset, or after an Advance that kept nothing.
func (t *Tree) SetRoot(in *RootInput) {
	n := &t.nodes[Root]
	*n = node{sum: float64(in.Value), mean: in.Value, visits: 1, raw: in.Value, parent: NoParent, kind: open}
	if t.cfg.Solve {
		n.limits = t.addLimits(0)
	}
	t.root.raw, t.root.seed = in.Value, in.Seed
	if in.Simulations > 0 {
		t.budget = min(t.budget, in.Simulations)
	}
	if t.cfg.LCB > 0 {
		t.squares[Root] = float64(in.Value) * float64(in.Value)
	}
	t.setRootLogits(in)
	if in.Terminal {
		n.kind = terminal
		return
	}
	t.openRoot(in)
}

// openRoot computes the root's priors and what selection at the root needs. Edges that are there
// already keep their statistics.
func (t *Tree) openRoot(in *RootInput) {
	r := &t.root
	r.key, r.stuck, r.forced = nil, false, t.cfg.ForcedPlayouts
	if in.Fast {
		r.forced = 0
	}
	valid := 0
	for _, bad := range r.invalid {
		if !bad {
			valid++
		}
	}
	priors := t.priors(Root)
	vecmath.Softmax(r.logits, priors)
	if valid == 0 {
		r.stuck = true
		first := r.firstLegal()
		r.invalid[first] = false
		priors[first] = 1 / float32(t.actions)
	}
	for a, bad := range r.invalid {
		if bad {
			priors[a] = priorIllegal
		}
	}
	n := &t.nodes[Root]
	n.flat = false
	for k := range t.edges(n) {
		e := &t.slab[n.first+int32(k)]
		a := e.action
		e.prior = max(priors[a], 0)
		e.share = t.cfg.share(e)
		priors[a] = priorVisited
	}
	if t.cfg.Policy == Gumbel {
		t.setGumbel(in.Gumbel, valid)
	}
	t.rank(Root)
}

// firstLegal is the first action that the simulator allows.
func (r *root) firstLegal() int {
	for a := range r.logits {
		if !r.illegal(a) {
			return a
		}
	}
	return 0
}

// setRootLogits computes the root's logits: noise mixed in, masked.
func (t *Tree) setRootLogits(in *RootInput) {
	r := &t.root
	r.logits, r.invalid = grow(r.logits, t.actions), grow(r.invalid, t.actions)
	for a := range r.logits {
		r.logits[a], r.invalid[a] = 0, in.Legal != nil && !in.Legal[a]
		if in.Logits != nil {
			r.logits[a] = in.Logits[a]
		}
		if r.invalid[a] {
			r.logits[a] = vecmath.NegInf
		}
	}
	evenOut(r.logits, r.invalid)
	switch t.cfg.Policy {
	case MuZero, Stochastic:
		mixNoise(r.logits, in)
		t.maskRoot(in.Invalid)
	case AlphaZero:
		t.maskRoot(in.Invalid)
		mixNoise(r.logits, in)
	default:
		t.maskRoot(in.Invalid)
	}
	t.keepLogits(Root, r.logits, nil)
}

// evenOut makes logits that are -Inf for every legal action equal: a prior with all its mass on
// illegal actions says nothing about the legal ones.
func evenOut(logits []float32, illegal []bool) {
	if !math.IsInf(float64(vecmath.Max(logits)), -1) {
		return
	}
	for a := range logits {
		if illegal == nil || !illegal[a] {
			logits[a] = 0
		}
	}
}

// mixNoise makes the logits ln((1-f)*softmax + f*noise). Illegal actions stay illegal.
func mixNoise(logits []float32, in *RootInput) {
	illegal := func(a int) bool { return math.IsInf(float64(logits[a]), -1) }
	f := in.Fraction
	if in.Dirichlet == nil {
		f = 0
	}
	top := vecmath.Max(logits)
	sum := float32(0)
	for _, l := range logits {
		sum += vecmath.Exp(l - top)
	}
	for a, l := range logits {
		if illegal(a) {
			continue
		}
		p := vecmath.Exp(l-top) / sum
		if f > 0 {
			p = (1-f)*p + f*in.Dirichlet[a]
		}
		logits[a] = vecmath.Log(max(p, vecmath.Tiny))
	}
}

// maskRoot applies the caller's mask as mctx does: the largest logit of all actions, masked ones
// too, is subtracted, and masked ones get the least float32.
func (t *Tree) maskRoot(invalid []bool) {
	if invalid == nil {
		return
	}
	r := &t.root
	top := vecmath.Max(r.logits)
	for a := range r.logits {
		if math.IsInf(float64(r.logits[a]), -1) {
			continue
		}
		r.logits[a] -= top
		if invalid[a] {
			r.logits[a], r.invalid[a] = vecmath.InvalidLogit, true
		}
	}
}

// setGumbel prepares sequential halving over the best of valid actions.
func (t *Tree) setGumbel(noise []float32, valid int) {
	r := &t.root
	r.keys = grow(r.keys, t.actions)
	r.key = r.keys
	top := vecmath.Max(r.logits)
	for a, l := range r.logits {
		g := float32(0)
		if noise != nil {
			g = noise[a]
		}
		r.key[a] = max(lowScore, g+(l-top))
	}
	considered := min(t.cfg.MaxNumConsidered, valid)
	r.halving = appendHalving(r.halving[:0], considered, t.budget)
	r.before = grow(r.before, t.actions)
	clear(r.before)
	n := &t.nodes[Root]
	for _, e := range t.edges(n) {
		r.before[e.action] = e.visits
	}
}

// lowScore is the least score of an action that is considered (mctx).
const lowScore = -1e9
