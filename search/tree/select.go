package tree

// Leaf is a node that waits for its evaluation: the state after Action in the state of node Parent.
// Its own state is to be kept under the number Node.
type Leaf struct {
	Parent, Action, Node int32
	Chance               bool // the leaf is a chance node: the state after the action alone
	Outcome              bool // Parent is a chance node, and Action what nature draws
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
	for depth := 1; ; {
		n := &t.nodes[at]
		if n.next == unranked {
			t.ready(at)
		}
		n.passed = int32(t.started)
		k := t.choose(at)
		if k < 0 && n.next < 0 {
			return Leaf{}, t.exhausted(at)
		}
		if k < 0 && !t.makeRoom() {
			return t.fullUp(at, depth)
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
			child.passed = int32(t.started)
			t.skipNumber()
			t.backUp(l.child, child.raw, child.raw)
			return Leaf{}, backedUp
		}
		if depth == t.cfg.MaxDepth && !t.passes(child) {
			t.skipNumber()
			t.depth = max(t.depth, depth)
			return Leaf{at, l.action, l.child, child.chance, n.chance}, foundLeaf
		}
		if !t.passes(child) {
			depth++
		}
		at = l.child
	}
}

// skipNumber counts a simulation that makes no node: its number stays unused, as in mctx.
func (t *Tree) skipNumber() {
	t.started++
	if t.cfg.MaxNodes == 0 {
		t.last++
		t.nodes[t.last] = node{parent: NoParent, via: -1}
	}
}

// newLeaf begins a simulation that makes a child of node i.
func (t *Tree) newLeaf(i int32) Leaf {
	t.started++
	return t.addChild(i)
}

// addChild gives node i a child for its best unvisited action, and counts it as in flight.
func (t *Tree) addChild(i int32) Leaf {
	child := t.newNumber()
	action := t.nodes[i].next
	k := t.addEdge(i, child)
	n := &t.nodes[i]
	chance := t.cfg.Outcomes > 0 && !n.chance
	t.nodes[child] = node{
		parent: i, via: k, kind: pending, chance: chance, limits: unknown, passed: n.passed,
	}
	n.inFlight++
	t.hot[n.first+k].enter()
	return Leaf{i, action, child, chance, n.chance}
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
