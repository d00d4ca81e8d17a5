package tree

// With Solve every node has bounds of its exact value, from its mover's view (score-bounded MCTS:
// Cazenave and Saffidine 2010, after Winands, Björnsson and Saito 2008). They start at MinValue and
// MaxValue, close where the game ends, and a node is proven when they meet. An action that can't be
// better than what its node has for certain is not searched any more.
//
// Nodes of one position (the same Evaluation.Key) share their bounds, so that what one of them proves
// is proven for all. Their statistics stay apart: the tree remains a tree.

// limits are the bounds of a position's exact value.
type limits struct{ low, high float32 }

// unknown is the index of the bounds of what hasn't been evaluated: MinValue and MaxValue.
const unknown = int32(0)

func (t *Tree) resetLimits() {
	if !t.cfg.Solve {
		return
	}
	t.limits = append(t.limits[:0], limits{t.cfg.MinValue, t.cfg.MaxValue})
	if t.limitsOf == nil {
		t.limitsOf = map[uint64]int32{}
	}
	clear(t.limitsOf)
}

// addLimits returns where the bounds of a position are.
func (t *Tree) addLimits(key uint64) int32 {
	at, known := t.limitsOf[key]
	if known && key != 0 {
		return at
	}
	at = int32(len(t.limits))
	t.limits = append(t.limits, t.limits[unknown])
	if key != 0 {
		t.limitsOf[key] = at
	}
	return at
}

// Known returns the proven value of the position with a key, and whether there is one: it needs no
// evaluation.
func (t *Tree) Known(key uint64) (value float32, proven bool) {
	l := t.limits[t.limitsOf[key]]
	return l.low, l.low == l.high
}

// settleTwin closes an open node whose position was proven elsewhere in the tree. The root has bounds
// of its own: its answer needs actions that are proven, not only a value.
func (t *Tree) settleTwin(n *node) {
	if l := t.limits[n.limits]; l.low == l.high && !n.proven {
		n.kind, n.proven, n.raw = terminal, true, l.low
		n.settle()
	}
}

// exhausted ends a walk at a node whose every action is settled: by twins of its children, so that the
// node itself didn't notice.
func (t *Tree) exhausted(i int32) arrival {
	n := &t.nodes[i]
	t.tighten(n)
	n.settle()
	t.skipNumber()
	t.backUp(i, n.raw, n.raw)
	return backedUp
}

// settle gives a proven node its exact value, whatever was averaged before.
func (n *node) settle() {
	n.mean, n.sum = n.raw, float64(n.raw)*float64(n.visits)
}

// rerootLimits gives the root of a kept tree bounds of its own, from its edges, and forgets those that
// no kept node has.
func (t *Tree) rerootLimits() {
	if !t.cfg.Solve {
		return
	}
	kept := make([]int32, len(t.limits)) // new places by old ones; 0 is unknown in both
	all := append(make([]limits, 0, len(t.limits)), t.limits[unknown])
	for i := Root + 1; i <= t.last; i++ {
		at := &t.nodes[i].limits
		if *at != unknown && kept[*at] == 0 {
			kept[*at] = int32(len(all))
			all = append(all, t.limits[*at])
		}
		*at = kept[*at]
	}
	t.limits = all
	for key, at := range t.limitsOf {
		if t.limitsOf[key] = kept[at]; kept[at] == 0 {
			delete(t.limitsOf, key)
		}
	}
	n := &t.nodes[Root]
	n.limits, n.proven = t.addLimits(0), false
	if t.tighten(n) {
		n.settle()
	}
}

// edgeBounds returns the bounds of an edge's Q.
func (t *Tree) edgeBounds(e *edge) (low, high float32) {
	c := &t.nodes[e.child]
	if c.kind == pending { // the edge has no reward and discount yet
		return t.cfg.MinValue, t.cfg.MaxValue
	}
	of := t.limits[c.limits]
	low, high = c.reward+c.discount*of.low, c.reward+c.discount*of.high
	if c.discount < 0 {
		low, high = high, low
	}
	return low, high
}

// solve takes the bounds of child n into its parent p, and returns the value to back up further: p's
// exact value once it is proven, else the one given.
func (t *Tree) solve(n, p *node, value float32) float32 {
	if !p.proven && (t.limits[n.limits] == t.limits[unknown] || !t.tighten(p)) {
		return value
	}
	p.settle()
	return p.raw
}

// tighten computes a node's bounds from its edges. It returns true if they meet.
func (t *Tree) tighten(p *node) bool {
	low, high := t.cfg.MinValue, t.cfg.MinValue
	if p.next != Unvisited {
		high = t.cfg.MaxValue
	}
	for k := range t.edges(p) {
		a, b := t.edgeBounds(&t.slab[p.first+int32(k)])
		low, high = max(low, a), max(high, b)
	}
	l := &t.limits[p.limits]
	l.low, l.high = max(l.low, low), min(l.high, high)
	if l.low < l.high {
		return false
	}
	p.proven, p.raw = true, l.low
	if p != &t.nodes[Root] {
		p.kind = terminal
	}
	return true
}

// settled says that an edge needs no more visits: it can't be better than what the node has.
func (t *Tree) settled(n *node, k int) bool {
	if !t.cfg.Solve {
		return false
	}
	_, high := t.edgeBounds(&t.slab[n.first+int32(k)])
	return high <= t.limits[n.limits].low
}

// provenActions calls f for each of the root's actions that is certain to have its proven value.
func (t *Tree) provenActions(f func(action int32)) {
	n := &t.nodes[Root]
	for k := range t.edges(n) {
		e := &t.slab[n.first+int32(k)]
		if low, _ := t.edgeBounds(e); low >= n.raw {
			f(e.action)
		}
	}
}
