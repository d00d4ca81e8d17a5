package tree

import "slices"

// With MaxNodes a tree never takes more memory than it began with. When no number is left for a new node,
// the nodes that were passed longest ago are forgotten, an eighth of all at a time. A node is passed
// whenever one below it is, so these are whole subtrees. What remains of one is in the values of the nodes
// above it, and in the prior of the action that led there, which is unvisited again. The root's children
// stay, since their visits are the answer, and so do walks in flight.

// MinNodes is the least MaxNodes for trees of so many actions.
func (c *Config) MinNodes(actions int) int {
	return 2 + max(actions, c.Outcomes) + (c.LeavesPerStep+1)*c.nodesEach()
}

// The sizes of what a tree is made of.
const nodeBytes, edgeBytes = 64, 28

// NodeBytes returns about how many bytes a node takes, beside its state.
func (c *Config) NodeBytes(actions int) int {
	width := max(actions, c.Outcomes)
	arrays := width
	if c.KeepLogits {
		arrays *= 2
	}
	// An edge a node on average, twice for the room to grow and again for the other half that compacting
	// writes to.
	const edges = 4 * edgeBytes
	return nodeBytes + 4*arrays + edges + 8
}

// Pruned returns how many nodes were forgotten since Reset.
func (t *Tree) Pruned() int { return t.pruned }

// newNumber returns the number of a new node; makeRoom has seen to it that there is one.
func (t *Tree) newNumber() int32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	t.last++
	return t.last
}

// makeRoom sees to it that there are numbers for a simulation's nodes. It returns false if all there is is in use.
func (t *Tree) makeRoom() bool {
	if t.cfg.MaxNodes == 0 {
		return true
	}
	each := t.cfg.nodesEach()
	need := each + t.leaves*(each-1) // those in flight may want their second one
	room := func() int { return len(t.free) + len(t.nodes) - 1 - int(t.last) }
	if room() < need {
		t.prune(max(need, len(t.nodes)/8))
	}
	return room() >= need
}

// fullUp ends a walk at a node below which there is no room. If others are in flight they may make some;
// else the node's own evaluation counts once more, as at MaxDepth.
func (t *Tree) fullUp(at int32, depth int) arrival {
	if t.leaves > 0 || at == Root {
		t.land(at)
		return collision
	}
	n := &t.nodes[at]
	t.skipNumber()
	t.depth = max(t.depth, depth)
	t.backUp(at, n.raw, n.raw)
	return backedUp
}

// prune forgets about want nodes, those passed longest ago that are idle.
func (t *Tree) prune(want int) {
	t.names = t.names[:0]
	for i := Root + 1; i <= t.last; i++ {
		if t.idle(i) {
			t.names = append(t.names, t.passed[i])
		}
	}
	if len(t.names) == 0 {
		return
	}
	slices.Sort(t.names)
	oldest := t.names[min(want, len(t.names))-1]
	for i := Root + 1; i <= t.last; i++ {
		if t.idle(i) && t.passed[i] <= oldest {
			t.forget(i)
		}
	}
	t.compactEdges(t.live(), false)
}

// idle says that a node may be forgotten: no walk in flight came by, it isn't the root nor its child; or
// what is above it was forgotten just now.
func (t *Tree) idle(i int32) bool {
	n := &t.nodes[i]
	if n.parent <= Root {
		return false
	}
	p := &t.nodes[n.parent]
	return p.parent < 0 || t.slab[p.first+int32(n.via)].inFlight == 0
}

// forget gives a node's number back, and makes the action that led to it unvisited where the parent
// stays.
func (t *Tree) forget(i int32) {
	n := &t.nodes[i]
	if p := &t.nodes[n.parent]; p.parent >= 0 {
		e := &t.slab[p.first+int32(n.via)]
		t.priors(n.parent)[e.action] = e.prior
		last := p.first + int32(p.count) - 1
		*e = t.slab[last]
		t.nodes[e.child].via = n.via
		p.count--
		p.flat = false // what is unvisited isn't in order any more
		t.rank(n.parent)
	}
	*n = node{parent: NoParent}
	t.free = append(t.free, i)
	t.pruned++
}

// live lists the nodes in use.
func (t *Tree) live() []int32 {
	t.names = append(t.names[:0], Root)
	for i := Root + 1; i <= t.last; i++ {
		if t.uses(i) {
			t.names = append(t.names, i)
		}
	}
	return t.names
}
