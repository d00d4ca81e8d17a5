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
	for count < limit && t.started < t.budget && t.searching() {
		kind := t.descend(&out[count])
		if kind == collision {
			break
		}
		if kind == foundLeaf {
			count++
			t.leaves++
		}
	}
	return count
}

// searching says that more simulations may change something.
func (t *Tree) searching() bool {
	root := &t.nodes[Root]
	if t.cfg.EarlyStop && t.decided() {
		return false
	}
	return root.kind == open && !root.proven
}

// arrival is how a walk down the tree ended.
type arrival uint8

const (
	foundLeaf arrival = iota
	backedUp          // at a terminal node: nothing to evaluate
	collision         // at a leaf in flight: the walk was undone
)

// descend walks from the root to a leaf, and writes it. On the way it counts itself as in flight.
func (t *Tree) descend(out *Leaf) arrival {
	at := Root
	for depth := 1; ; {
		n := &t.nodes[at]
		if n.next == unranked {
			t.ready(at)
		}
		if t.cfg.bounded {
			t.passed[at] = int32(t.started)
		}
		k := t.choose(at)
		if k < 0 && n.next < 0 {
			return t.exhausted(at)
		}
		if k < 0 && !t.makeRoom() {
			return t.fullUp(at, depth)
		}
		if k < 0 {
			t.depth = max(t.depth, depth)
			t.started++
			t.addChild(at, out)
			return foundLeaf
		}
		e := &t.slab[n.first+k]
		child := &t.nodes[e.child]
		if child.kind == pending {
			t.land(at)
			return collision
		}
		if t.cfg.Solve {
			t.settleTwin(child)
		}
		n.inFlight++
		e.inFlight++
		e.share = t.cfg.share(e)
		if child.kind == terminal {
			if t.cfg.bounded {
				t.passed[e.child] = int32(t.started)
			}
			t.skipNumber()
			t.backUp(e.child, child.raw, child.raw)
			return backedUp
		}
		if depth == t.cfg.MaxDepth && !t.passes(child) {
			t.skipNumber()
			t.depth = max(t.depth, depth)
			*out = Leaf{at, e.action, e.child, child.chance, n.chance}
			return foundLeaf
		}
		if !t.passes(child) {
			depth++
		}
		at = e.child
	}
}

// skipNumber counts a simulation that makes no node: its number stays unused, as in mctx.
func (t *Tree) skipNumber() {
	t.started++
	if t.cfg.MaxNodes == 0 {
		t.last++
		t.nodes[t.last] = node{parent: NoParent}
	}
}

// addChild gives node i a child for its best unvisited action, counts it as in flight, and writes it as a
// leaf. Fields are set one by one in their places: whole structs would be put together elsewhere and copied.
func (t *Tree) addChild(i int32, out *Leaf) {
	child, n := t.newNumber(), &t.nodes[i]
	c := &t.nodes[child]
	*c = node{}
	c.parent, c.via = i, n.count
	c.chance = t.cfg.Outcomes > 0 && !n.chance
	if t.cfg.bounded {
		t.passed[child] = t.passed[i]
	}
	out.Parent, out.Action, out.Node, out.Chance, out.Outcome = i, n.next, child, c.chance, n.chance
	t.addEdge(i, child)
	n.inFlight++
}

// land takes a walk's in-flight counts back, from the edge into node i upwards.
func (t *Tree) land(i int32) {
	for i != Root {
		n := &t.nodes[i]
		p := &t.nodes[n.parent]
		e := &t.slab[p.first+int32(n.via)]
		e.inFlight--
		e.share = t.cfg.share(e)
		p.inFlight--
		i = n.parent
	}
}
