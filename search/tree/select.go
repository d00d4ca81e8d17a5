package tree

import (
	"math"

	"github.com/azserve/azserve/internal/vecmath"
)

// Leaf is a node that waits for its evaluation: the state after Action in the state of node Parent.
// Its own state is to be kept under the number Node.
type Leaf struct {
	Parent, Action, Node int32
	Chance               bool // the leaf is a chance node (Stochastic)
}

// Select begins simulations until it has leaves to evaluate, at most len(out) of them beside those
// in flight, and writes them. It returns how many; 0 if the budget is used up, or if the tree has
// nothing more to offer before a leaf in flight is applied. Simulations that end in a terminal node
// need no evaluation and are backed up at once.
func (t *Tree) Select(out []Leaf) int {
	count := 0
	limit := min(len(out), t.cfg.LeavesPerStep-t.leaves)
	for count < limit && t.started < t.budget && t.nodes[Root].kind == open && !t.Proven() {
		leaf, kind := t.descend()
		if kind == collision {
			break
		}
		if kind == foundLeaf {
			out[count] = leaf
			count++
			t.leaves++
		}
	}
	return count
}

// arrival is how a walk down the tree ended.
type arrival uint8

const (
	foundLeaf arrival = iota
	backedUp          // at a terminal node: nothing to evaluate
	collision         // at a leaf in flight: the walk was undone
)

// descend walks from the root to a leaf. On the way it counts itself as in flight.
func (t *Tree) descend() (Leaf, arrival) {
	at := Root
	for depth := 1; ; depth++ {
		n := &t.nodes[at]
		if n.next == unranked {
			t.ready(at)
		}
		k := t.choose(n, depth == 1)
		if k < 0 && n.next < 0 {
			return Leaf{}, t.exhausted(at)
		}
		if k < 0 {
			t.depth = max(t.depth, depth)
			return t.newLeaf(at), foundLeaf
		}
		e, l := &t.hot[n.first+k], &t.cold[n.first+k]
		child := &t.nodes[l.child]
		if child.kind == pending {
			t.land(at)
			return Leaf{}, collision
		}
		if t.cfg.Solve {
			t.settleTwin(child)
		}
		n.inFlight++
		e.enter()
		if child.kind == terminal {
			t.skipNumber()
			t.backUp(l.child, child.raw, child.raw)
			return Leaf{}, backedUp
		}
		if depth == t.cfg.MaxDepth {
			t.skipNumber()
			t.depth = max(t.depth, depth)
			return Leaf{Parent: at, Action: l.action, Node: l.child, Chance: child.chance}, foundLeaf
		}
		at = l.child
	}
}

// skipNumber counts a simulation that makes no node: its number stays unused, as in mctx.
func (t *Tree) skipNumber() {
	t.started++
	t.nodes[t.kept+t.started] = node{parent: NoParent, via: -1}
}

// newLeaf gives node i a child for its best unvisited action.
func (t *Tree) newLeaf(i int32) Leaf {
	t.started++
	child := int32(t.kept + t.started)
	action := t.nodes[i].next
	k := t.addEdge(i, child)
	n := &t.nodes[i]
	chance := t.cfg.Policy == Stochastic && !n.chance
	t.nodes[child] = node{
		parent: i, via: k, kind: pending, chance: chance, limits: unknown,
	}
	n.inFlight++
	t.hot[n.first+k].enter()
	return Leaf{Parent: i, Action: action, Node: child, Chance: chance}
}

// land takes a walk's in-flight counts back, from the edge into node i upwards.
func (t *Tree) land(i int32) {
	for i != Root {
		n := &t.nodes[i]
		p := &t.nodes[n.parent]
		e := &t.hot[p.first+n.via]
		e.inFlight--
		e.share = e.prior / float32(1+e.visits+e.inFlight)
		p.inFlight--
		i = n.parent
	}
}

// choose returns which edge of a node to follow, -1 for its best unvisited action.
func (t *Tree) choose(n *node, atRoot bool) int32 {
	switch {
	case n.chance:
		return t.chooseOutcome(n)
	case t.cfg.Policy == UCT:
		return t.chooseUCB(n)
	case t.cfg.Policy != Gumbel:
		return t.choosePUCT(n)
	case atRoot:
		return t.chooseConsidered(n)
	}
	return t.chooseImproved(n)
}

// chooseOutcome takes the outcome whose probability / (visits + 1) is largest: no sampling, but
// outcomes are visited in proportion to their probabilities.
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
	f := t.transform(n, edges)
	c := t.cfg.PbCInit * float32(math.Sqrt(math.Log(float64(n.visits+n.inFlight))))
	best, at := vecmath.NegInf, int32(-1)
	for k := range edges {
		e := &edges[k]
		s := f.ofEdge(e) + c/float32(math.Sqrt(float64(e.visits+e.inFlight)))
		if s > best && !t.settled(n, k) {
			best, at = s, int32(k)
		}
	}
	return at
}

// choosePUCT is PUCT: the largest of exploration * prior / (visits + 1) + Q, first action on
// equality.
func (t *Tree) choosePUCT(n *node) int32 {
	edges := t.edges(n)
	f := t.transform(n, edges)
	c := t.cfg.exploration(n.visits + n.inFlight)
	best, at := vecmath.NegInf, int32(-1)
	if n.next >= 0 {
		best = c*n.nextPrior + f.unvisited
	}
	solve := t.cfg.Solve
	for k := range edges {
		e := &edges[k]
		s := c*e.share + f.ofEdge(e)
		if s < best || (solve && t.settled(n, k)) {
			continue
		}
		if s > best || t.before(n, int32(k), at) {
			best, at = s, int32(k)
		}
	}
	return at
}

// before breaks a tie: the action of edge k has the lower number than that of edge at, or than the best
// unvisited action where at is -1.
func (t *Tree) before(n *node, k, at int32) bool {
	action := n.next
	if at >= 0 {
		action = t.cold[n.first+at].action
	}
	return action < 0 || t.cold[n.first+k].action < action
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
		a := t.cold[n.first+int32(k)].action
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
	f := t.transform(n, edges)
	top := vecmath.NegInf
	if n.next >= 0 {
		top = f.unvisited
	}
	visits := int32(1)
	for k := range edges {
		e := &edges[k]
		visits += e.visits + e.inFlight
		top = max(top, f.ofEdge(e))
	}
	// weight(a) = prior(a) * exp(transformed Q(a) - top) is the softmax before it is divided by sum.
	rest := vecmath.Exp(min(f.unvisited-top, 0)) // with nothing unvisited it is multiplied by 0
	sum := n.rest * rest
	t.scores = grow(t.scores, len(edges))
	weights := t.scores
	for k := range edges {
		weights[k] = edges[k].prior * vecmath.Exp(f.ofEdge(&edges[k])-top)
		sum += weights[k]
	}
	perVisit, scale := 1/float32(visits), 1/sum
	best, at := vecmath.NegInf, int32(-1)
	if n.next >= 0 {
		best = n.nextPrior * rest * scale
	}
	for k := range edges {
		e := &edges[k]
		s := weights[k]*scale - float32(e.visits+e.inFlight)*perVisit
		if s < best || (t.cfg.Solve && t.settled(n, k)) {
			continue
		}
		if s > best || t.before(n, int32(k), at) {
			best, at = s, int32(k)
		}
	}
	return at
}
