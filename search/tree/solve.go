package tree

// With Solve every node has bounds of its exact value, from its mover's view (score-bounded MCTS:
// Cazenave and Saffidine 2010, after Winands, Björnsson and Saito 2008). They start at MinValue and
// MaxValue, close where the game ends, and a node is proven when they meet. An action that can't be
// better than what its node has for certain is not searched any more.

// edgeBounds returns the bounds of an edge's Q.
func (t *Tree) edgeBounds(l *link) (low, high float32) {
	c := &t.nodes[l.child]
	if c.kind == pending { // the edge has no reward and discount yet
		return t.cfg.MinValue, t.cfg.MaxValue
	}
	low, high = l.reward+l.discount*c.low, l.reward+l.discount*c.high
	if l.discount < 0 {
		low, high = high, low
	}
	return low, high
}

// solve takes the bounds of child n into its parent p, and returns the value to back up further: p's
// exact value once it is proven, else the one given.
func (t *Tree) solve(n, p *node, value float32) float32 {
	if !p.proven && (n.low <= t.cfg.MinValue && n.high >= t.cfg.MaxValue || !t.tighten(p)) {
		return value
	}
	// A proven node's value is exact, whatever was averaged before or is still on its way.
	p.mean = p.raw
	p.sum = float64(p.raw) * float64(p.visits)
	return p.raw
}

// tighten computes a node's bounds from its edges. It returns true if they meet.
func (t *Tree) tighten(p *node) bool {
	low, high := t.cfg.MinValue, t.cfg.MinValue
	if p.next >= 0 {
		high = t.cfg.MaxValue
	}
	for k := range p.count {
		a, b := t.edgeBounds(&t.cold[p.first+k])
		low, high = max(low, a), max(high, b)
	}
	p.low, p.high = low, high
	if low < high {
		return false
	}
	p.proven, p.raw = true, low
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
	_, high := t.edgeBounds(&t.cold[n.first+int32(k)])
	return high <= n.low
}

// provenActions calls f for each of the root's actions that is certain to have its proven value.
func (t *Tree) provenActions(f func(action int32)) {
	n := &t.nodes[Root]
	for k := range n.count {
		l := &t.cold[n.first+k]
		if low, _ := t.edgeBounds(l); low >= n.raw {
			f(l.action)
		}
	}
}
