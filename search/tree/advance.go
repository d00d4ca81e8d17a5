package tree

import (
	"math"
	"slices"

	"github.com/azserve/azserve/internal/vecmath"
)

// Advance makes the node at the end of a path from the root the new root and forgets the rest of the
// tree: the path is an action, where there is chance an action and its outcome. The kept part has the
// statistics it had. It calls moved for each kept node in rising order with its old and its new
// number (the new one is never larger), so that the caller can move the states.
//
// It returns false if there is nothing to keep, because the child was never visited or is an end;
// the tree is then empty, and SetRoot begins anew. Else the search goes on with Reroot.
//
// With CountKept the budget counts the visits that are kept: so many fewer simulations are left to do,
// and the memory of the first search is enough for every later one.
func (t *Tree) Advance(path []int32, moved func(from, to int32)) bool {
	child := Root
	for _, action := range path {
		if child = t.Child(child, action); child < 0 {
			break
		}
	}
	if child < 0 || t.nodes[child].kind != open {
		t.Reset(t.cfg, t.actions)
		return false
	}
	names := t.keep(child, moved)
	t.compactEdges(names, true)
	root := &t.nodes[Root]
	root.parent, root.via, root.proven = NoParent, 0, false
	t.last = int32(len(names) - 1)
	t.budget = min(t.cfg.NumSimulations, math.MaxInt32-int(root.visits))
	if t.cfg.CountKept {
		t.budget = max(0, t.budget-int(root.visits-1))
	}
	t.free = t.free[:0]
	t.started, t.done, t.leaves, t.depth = 0, 0, 0, 0
	return true
}

// Child returns a node's child of an action, or of an outcome; Unvisited if there is none.
func (t *Tree) Child(i, action int32) int32 {
	n := &t.nodes[i]
	for k := range t.edges(n) {
		if e := &t.slab[n.first+int32(k)]; e.action == action {
			return e.child
		}
	}
	return Unvisited
}

// keep moves the nodes below and including root to the front, in their order, and returns their old
// numbers. Their edges still name old numbers.
func (t *Tree) keep(root int32, moved func(from, to int32)) []int32 {
	order := t.below(root)
	t.names = grow(t.names, len(t.nodes))
	for to, from := range order {
		t.names[from] = int32(to)
	}
	for to, from := range order {
		n := t.nodes[from]
		if to > 0 {
			n.parent = t.names[n.parent]
		}
		t.nodes[to] = n
		if t.cfg.bounded {
			t.passed[to] = 0
		}
		copy(t.priors(int32(to)), t.priors(from))
		if t.cfg.LCB > 0 {
			t.squares[to] = t.squares[from]
		}
		if len(t.logits) > 0 {
			a := t.stride
			copy(t.logits[to*a:(to+1)*a], t.logits[int(from)*a:(int(from)+1)*a])
		}
		moved(from, int32(to))
	}
	return order
}

// below lists a node and what is below it: the node, then the others in rising order.
func (t *Tree) below(root int32) []int32 {
	order := []int32{root}
	for i := 0; i < len(order); i++ {
		n := &t.nodes[order[i]]
		for _, e := range t.edges(n) {
			order = append(order, e.child)
		}
	}
	slices.Sort(order[1:])
	return order
}

// compactEdges moves the edges of nodes together. After keep it renames their children; the nodes are then
// numbered by their places in the list.
func (t *Tree) compactEdges(order []int32, rename bool) {
	slab := t.spare[:0]
	for to, from := range order {
		n := &t.nodes[from]
		if rename {
			n = &t.nodes[to]
		}
		first := int32(len(slab))
		for _, e := range t.edges(n) {
			if rename {
				e.child = t.names[e.child]
			}
			slab = append(slab, e)
		}
		slab = extend(slab, t.room(int(n.count))-int(n.count))
		n.first = first
	}
	t.spare, t.slab = t.slab, slab
}

// Reroot begins the next search after an Advance that kept something: noise and masks of the new root
// are mixed into its prior anew. Of the input, Legal (as the simulator says), Invalid, Dirichlet, Fraction,
// Gumbel, Simulations (at most what is left) and Fast are read; logits and value are those that the node
// had. An action that Invalid masks loses its visits, and the root's value is then that of what is left.
func (t *Tree) Reroot(in *RootInput) {
	if t.nodes[Root].next == unranked {
		t.ready(Root)
	}
	logits := make([]float32, t.actions)
	t.priorLogits(logits)
	t.root.raw = t.nodes[Root].raw
	with := *in
	with.Logits = logits
	t.setRootLogits(&with)
	t.dropInvalid()
	if in.Simulations > 0 {
		t.budget = min(t.budget, in.Simulations)
	}
	t.openRoot(&with)
	t.rerootLimits()
}

// priorLogits writes the logarithm of the root's present prior.
func (t *Tree) priorLogits(logits []float32) {
	n := &t.nodes[Root]
	for a, p := range t.priors(Root) {
		logits[a] = vecmath.NegInf
		if p >= 0 {
			logits[a] = vecmath.Log(max(p, vecmath.Tiny))
		}
	}
	for _, e := range t.edges(n) {
		logits[e.action] = vecmath.Log(max(e.prior, vecmath.Tiny))
	}
}

// dropInvalid removes the root's edges whose actions may not be chosen, and recounts the root.
func (t *Tree) dropInvalid() {
	n := &t.nodes[Root]
	kept := uint16(0)
	sum, visits := float64(n.raw), int32(1)
	for k := range n.count {
		e := t.slab[n.first+int32(k)]
		if t.root.invalid[e.action] {
			continue
		}
		sum += float64(e.q) * float64(e.visits)
		visits += e.visits
		t.slab[n.first+int32(kept)] = e
		t.nodes[e.child].via = kept
		kept++
	}
	if kept == n.count {
		return
	}
	n.count, n.visits, n.sum = kept, visits, sum
	n.mean = float32(sum / float64(visits))
	if t.cfg.CountKept {
		t.budget = max(0, t.cfg.NumSimulations-int(visits-1))
	}
	if t.cfg.MaxNodes == 0 {
		t.budget = min(t.budget, (len(t.nodes)-1-int(t.last))/t.cfg.nodesEach())
	}
}
