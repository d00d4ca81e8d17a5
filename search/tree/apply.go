package tree

import (
	"math"
	"slices"

	"github.com/azserve/azserve/internal/vecmath"
)

// Evaluation is what the simulator and the evaluator say of a leaf. Slices belong to the caller and
// aren't kept.
type Evaluation struct {
	Reward   float32 // of the step into the leaf, to the player who moved
	Discount float32 // of that step: -1 if the mover changed, 0 into a terminal state, else 1 or less

	// Ended says that nothing can be played here; Value is then 0 for a terminal state, and the
	// evaluator's value where only a time limit cut the episode off. Proven tells them apart: the
	// rules ended the game, so that the value is certain.
	Ended, Proven bool

	Logits []float32 // [A] prior logits, of a chance node [Outcomes]; nil means all equal
	Legal  []bool    // [A] nil means all; a leaf without any is an end
	Value  float32   // from the view of the player to move at the leaf

	Key uint64 // of the position, 0 for none: what Solve proves of one holds for all with its key
}

// Apply evaluates a leaf that Select returned: it is expanded, and its value backed up. Leaves may be
// applied in any order, but for equal results on every run in the order of Select.
func (t *Tree) Apply(l Leaf, v *Evaluation) {
	n := &t.nodes[l.Node]
	n.reward, n.discount = v.Reward, v.Discount
	if n.kind == pending {
		t.expand(l.Node, n, v)
	}
	// A node evaluated once more, at MaxDepth, falls back to its raw value and counts a visit (mctx).
	n.raw = v.Value
	n.visits++
	n.sum, n.mean = float64(v.Value)*float64(n.visits), v.Value
	if t.cfg.LCB > 0 {
		t.squares[l.Node] = float64(v.Value) * n.sum
	}
	t.leaves--
	t.done++
	t.propagate(l.Node, v.Value)
}

// expand makes a pending node open or terminal.
func (t *Tree) expand(i int32, n *node, v *Evaluation) {
	if v.Ended || (v.Legal != nil && !slices.Contains(v.Legal, true)) {
		n.kind, n.proven = terminal, v.Proven
		if v.Proven && t.cfg.Solve {
			n.limits = int32(len(t.limits))
			t.limits = append(t.limits, limits{v.Value, v.Value})
		}
		n.next = Unvisited
		return
	}
	n.kind = open
	if t.cfg.Solve {
		n.limits = t.addLimits(v.Key)
	}
	t.keepLogits(i, v.Logits, v.Legal)
	if v.Logits == nil {
		n.openEvenly(t.priors(i), v.Legal)
		return
	}
	load(t.priors(i), v.Logits, v.Legal)
	n.next = unranked
}

// openEvenly gives all legal actions equal priors: there are no logits to wait for.
func (n *node) openEvenly(row []float32, legal []bool) {
	count := len(row)
	if legal != nil {
		count = 0
		for _, ok := range legal {
			if ok {
				count++
			}
		}
	}
	p := 1 / float32(count)
	n.flat, n.nextPrior, n.rest, n.next = true, p, 1, 0
	for a := range row {
		row[a] = p
	}
	if legal == nil {
		return
	}
	for a, ok := range legal {
		if !ok {
			row[a] = priorIllegal
		}
	}
	n.next = int32(slices.Index(legal, true))
}

// keepLogits remembers a node's logits for Export, -Inf where there is no such action.
func (t *Tree) keepLogits(i int32, logits []float32, legal []bool) {
	if len(t.logits) == 0 {
		return
	}
	at := t.logits[int(i)*t.stride : (int(i)+1)*t.stride]
	clear(at)
	copy(at, logits)
	width := t.width(i)
	for a := range at {
		if a >= width || (legal != nil && !legal[a]) {
			at[a] = vecmath.NegInf
		}
	}
}

// load copies logits to where a node's priors will be, NaN where an action is illegal. The softmax waits
// until a simulation passes the node: most nodes are never passed.
func load(row, logits []float32, legal []bool) {
	copy(row, logits)
	if legal == nil {
		return
	}
	for a, ok := range legal {
		if !ok {
			row[a] = illegalLogit
		}
	}
}

// illegalLogit marks an illegal action among loaded logits: a NaN, so that every comparison skips it.
var illegalLogit = float32(math.NaN())

// soften turns loaded logits into priors: the softmax over the legal actions, and the mark of the
// others. If all are equal, or no legal action has any prior (-Inf), the priors are equal. It returns the
// action with the largest prior, the first if several have it, and whether all are equal.
func soften(row []float32) (next int32, equal bool) {
	low, top := float32(math.Inf(1)), vecmath.NegInf
	count, next := 0, Unvisited
	for a, l := range row {
		if l != l {
			continue
		}
		count++
		if l > top || next < 0 {
			top, next = l, int32(a)
		}
		if l < low {
			low = l
		}
	}
	if low == top || math.IsInf(float64(top), -1) {
		uniform(row, 1/float32(count))
		return next, true
	}
	scale := 1 / vecmath.ExpAll(row, top)
	for a, e := range row {
		row[a] = e * scale
		if e != e {
			row[a] = priorIllegal
		}
	}
	return next, false
}

// uniform gives every legal action the prior p.
func uniform(row []float32, p float32) {
	for a, l := range row {
		row[a] = p
		if l != l {
			row[a] = priorIllegal
		}
	}
}

// backUp counts one more visit of a terminal node and backs its value up.
func (t *Tree) backUp(i int32, raw, value float32) {
	n := &t.nodes[i]
	n.add(raw)
	if t.cfg.LCB > 0 {
		t.squares[i] += float64(raw) * float64(raw)
	}
	t.done++
	t.propagate(i, value)
}

// note keeps what few settings need of a value backed up into node i, by an edge with this Q.
func (t *Tree) note(i int32, value, q float32, chance bool) {
	if t.cfg.LCB > 0 {
		t.squares[i] += float64(value) * float64(value)
	}
	if !chance {
		t.qLow, t.qHigh = min(t.qLow, q), max(t.qHigh, q)
	}
}

// propagate backs a value up from node i, whose own statistics are done: every ancestor's value
// becomes the mean of one more return, every edge's Q its child's new value, and the walk's
// in-flight counts are taken back.
func (t *Tree) propagate(i int32, value float32) {
	for i != Root {
		n := &t.nodes[i]
		p := &t.nodes[n.parent]
		e := &t.slab[p.first+int32(n.via)]
		value = n.reward + n.discount*value
		p.add(value)
		p.inFlight--
		e.q = n.reward + n.discount*n.mean
		e.visits++
		e.inFlight--
		if t.extra {
			t.note(n.parent, value, e.q, p.chance)
		}
		if t.cfg.Solve {
			value = t.solve(n, p, value)
		}
		i = n.parent
	}
}
