package tree

import "github.com/azserve/azserve/internal/vecmath"

// choose returns which edge of a node to follow, -1 for its best unvisited action.
func (t *Tree) choose(i int32) int32 {
	n := &t.nodes[i]
	switch {
	case n.chance && t.cfg.passing:
		return t.drawOutcome(i)
	case n.chance:
		return t.chooseOutcome(n)
	case t.cfg.rule == ruleUCB:
		return t.chooseUCB(n)
	case t.cfg.rule == rulePUCT:
		return t.choosePUCT(n)
	case i == Root:
		return t.chooseConsidered(n)
	}
	return t.chooseImproved(n)
}

// chooseOutcome takes the outcome whose probability / (visits + 1) is largest, as mctx does: no sampling,
// but outcomes are visited in proportion to their probabilities.
func (t *Tree) chooseOutcome(n *node) int32 {
	best, at := vecmath.NegInf, int32(-1)
	if n.next >= 0 {
		best = n.nextPrior
	}
	for k, e := range t.edges(n) {
		if e.share > best || (e.share == best && t.before(n, int32(k), at)) {
			best, at = e.share, int32(k)
		}
	}
	return at
}

// chooseUCB is UCB1: the largest of Q + c * sqrt(ln(visits of the node) / visits), in the order of
// first visits on equality.
func (t *Tree) chooseUCB(n *node) int32 {
	if n.next >= 0 {
		return -1
	}
	edges := t.edges(n)
	low, width, unvisited := t.span(n, edges)
	c := width * t.cfg.exploration(n.visits+n.inFlight)
	best, at := vecmath.NegInf, int32(-1)
	for k := range edges {
		e := &edges[k]
		s := e.score(c, low, unvisited)
		if s > best && !t.settled(n, k) {
			best, at = s, int32(k)
		}
	}
	return at
}

// choosePUCT is PUCT: the largest of exploration * prior / (visits + 1) + transformed Q, first action on
// equality. All scores are multiplied by the range of Q, which saves a division at every level.
func (t *Tree) choosePUCT(n *node) int32 {
	edges := t.edges(n)
	if t.root.forced > 0 && n == &t.nodes[Root] {
		if k := t.forcedEdge(n); k >= 0 {
			return k
		}
	}
	low, width, unvisited := t.span(n, edges)
	c := width * t.cfg.exploration(n.visits+n.inFlight)
	best, at := vecmath.NegInf, int32(-1)
	if n.next >= 0 {
		best = c*n.nextPrior + unvisited
	}
	solve := t.cfg.Solve
	for k := range edges {
		e := &edges[k]
		s := e.score(c, low, unvisited)
		if s < best || (solve && t.settled(n, k)) {
			continue
		}
		if s > best || t.before(n, int32(k), at) {
			best, at = s, int32(k)
		}
	}
	return at
}

// score is an edge's Q above low, or that of the unvisited, and c times its share of the exploration.
func (e *edge) score(c, low, unvisited float32) float32 {
	if e.visits > 0 {
		unvisited = e.q - low
	}
	return unvisited + c*e.share
}

// before breaks a tie: the action of edge k has the lower number than that of edge at, or than the best
// unvisited action where at is -1.
func (t *Tree) before(n *node, k, at int32) bool {
	action := n.next
	if at >= 0 {
		action = t.slab[n.first+at].action
	}
	return action < 0 || t.slab[n.first+k].action < action
}

// chooseConsidered is the root of Gumbel MuZero: among the actions with as many visits as sequential
// halving considers now, the largest of noise + logit + transformed Q.
func (t *Tree) chooseConsidered(n *node) int32 {
	edges := t.edges(n)
	considered := t.root.halving[t.started]
	f := t.transform(n, edges)
	best, at, action := vecmath.NegInf, int32(0), int32(0)
	if considered == 0 && n.next >= 0 { // the unvisited share their Q: the best of them is known
		best, at, action = max(lowScore, t.root.key[n.next]+f.unvisited), -1, n.next
	}
	found := at < 0
	for k := range edges {
		e := &edges[k]
		a := e.action
		if e.visits+e.inFlight-t.root.before[a] != considered || t.settled(n, k) {
			continue
		}
		found = true
		if s := t.considered(e, f, a); s > best || (s == best && a < action) {
			best, at, action = s, int32(k), a
		}
	}
	if !found && t.cfg.Solve {
		return t.leastVisited(n)
	}
	return at
}

// leastVisited returns the unproven edge with the fewest visits, -1 for an unvisited action: where
// Solve has proven the actions that sequential halving would go on with.
func (t *Tree) leastVisited(n *node) int32 {
	if n.next >= 0 {
		return -1
	}
	least, at := int32(-1), int32(-1)
	for k, e := range t.edges(n) {
		if v := e.visits + e.inFlight; !t.settled(n, k) && (least < 0 || v < least) {
			least, at = v, int32(k)
		}
	}
	return at
}

// considered is mctx's score_considered for an action with the right number of visits.
func (t *Tree) considered(e *edge, f affine, action int32) float32 {
	return max(lowScore, t.root.key[action]+f.ofEdge(e))
}

// chooseImproved is the interior of Gumbel MuZero: the largest of improved policy(a) - visits(a) /
// (1 + all visits), so that visits approach softmax(logits + transformed Q) without noise. The
// softmax is over all actions, but the unvisited share one factor, so it costs one exponential a
// visited action.
func (t *Tree) chooseImproved(n *node) int32 {
	edges := t.edges(n)
	if len(edges) == 0 {
		return -1
	}
	f, top := t.topOf(n, edges)
	if n.next >= 0 && f.unvisited > top {
		top = f.unvisited
	}
	// weight(a) = prior(a) * exp(transformed Q(a) - top) is the improved policy times sum.
	rest := float32(0)
	if n.next >= 0 {
		rest = vecmath.Exp(f.unvisited - top)
	}
	sum, visits := n.rest*rest, int32(1)
	t.scores = grow(t.scores, len(edges))
	weights := t.scores
	for k := range edges {
		e := &edges[k]
		visits += e.visits + e.inFlight
		weights[k] = e.prior * vecmath.Exp(f.ofEdge(e)-top)
		sum += weights[k]
	}
	// The scores are multiplied by sum as well: one division in place of two.
	perVisit := sum / float32(visits)
	best, at := vecmath.NegInf, int32(-1)
	if n.next >= 0 {
		best = n.nextPrior * rest
	}
	for k := range edges {
		e := &edges[k]
		s := weights[k] - float32(e.visits+e.inFlight)*perVisit
		if s < best || (t.cfg.Solve && t.settled(n, k)) {
			continue
		}
		if s > best || t.before(n, int32(k), at) {
			best, at = s, int32(k)
		}
	}
	return at
}

// topOf is transform with the largest transformed Q of an edge.
func (t *Tree) topOf(n *node, edges []edge) (f affine, top float32) {
	if t.cfg.scaling == scaleCompleted && n.inFlight == 0 {
		return t.completed(n, edges)
	}
	f, top = t.transform(n, edges), vecmath.NegInf
	for k := range edges {
		top = max(top, f.ofEdge(&edges[k]))
	}
	return f, top
}
