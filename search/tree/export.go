package tree

import "github.com/azserve/azserve/internal/vecmath"

// Export is one tree as arrays, with the names and the meaning of mctx's Tree. N is num_simulations + 1,
// or Config.Nodes where there is chance; A is then the larger of actions and outcomes, and a chance
// node's entries are its outcomes. Unused nodes are 0, with -1 in Parents, ActionFromParent and
// ChildrenIndex.
type Export struct {
	NodeVisits       []int32   // [N]
	NodeValues       []float32 // [N] mean value
	NodeRawValues    []float32 // [N] the evaluator's
	Parents          []int32   // [N] NoParent at the root
	ActionFromParent []int32   // [N] NoParent at the root

	ChildrenIndex       []int32   // [N, A] Unvisited where there is none
	ChildrenVisits      []int32   // [N, A]
	ChildrenRewards     []float32 // [N, A]
	ChildrenDiscounts   []float32 // [N, A]
	ChildrenValues      []float32 // [N, A] value of the child, from its own mover's view
	ChildrenPriorLogits []float32 // [N, A] only with Config.KeepLogits; illegal is the least float32

	Terminal []bool // [N] nodes where nothing can be played; not in mctx
	Chance   []bool // [N] chance nodes
}

// Export copies the tree out.
func (t *Tree) Export() *Export {
	n, a := len(t.nodes), t.stride
	x := &Export{
		NodeVisits: make([]int32, n), NodeValues: make([]float32, n), NodeRawValues: make([]float32, n),
		Parents: filled(n), ActionFromParent: filled(n), ChildrenIndex: filled(n * a),
		ChildrenVisits: make([]int32, n*a), ChildrenRewards: make([]float32, n*a),
		ChildrenDiscounts: make([]float32, n*a), ChildrenValues: make([]float32, n*a),
		ChildrenPriorLogits: make([]float32, n*a), Terminal: make([]bool, n),
		Chance: make([]bool, n),
	}
	t.exportNode(x, Root)
	return x
}

func filled(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = -1
	}
	return out
}

// exportNode copies a node and what is below. It goes as deep as the tree.
func (t *Tree) exportNode(x *Export, i int32) {
	stack := []int32{i}
	for len(stack) > 0 {
		i, stack = stack[len(stack)-1], stack[:len(stack)-1]
		n := &t.nodes[i]
		x.NodeVisits[i], x.NodeRawValues[i] = n.visits, n.raw
		x.Parents[i], x.Terminal[i] = n.parent, n.kind == terminal
		x.Chance[i] = n.chance
		x.NodeValues[i] = n.mean
		if n.kind != pending && n.kind != terminal {
			t.exportLogits(x, int(i)*t.stride)
		}
		for _, e := range t.edges(n) {
			c, at := &t.nodes[e.child], int(i)*t.stride+int(e.action)
			x.ActionFromParent[e.child] = e.action
			x.ChildrenIndex[at], x.ChildrenVisits[at] = e.child, e.visits
			x.ChildrenRewards[at], x.ChildrenDiscounts[at] = c.reward, c.discount
			x.ChildrenValues[at] = c.mean
			stack = append(stack, e.child)
		}
	}
}

// exportLogits copies the logits of a node; those of others are of whatever was there before.
func (t *Tree) exportLogits(x *Export, at int) {
	if len(t.logits) == 0 {
		return
	}
	for k := at; k < at+t.stride; k++ {
		x.ChildrenPriorLogits[k] = max(t.logits[k], vecmath.InvalidLogit)
	}
}

// InFlight returns the number of leaves that were selected and not applied, and the sum of all
// in-flight counts in the tree: both are 0 between steps.
func (t *Tree) InFlight() (leaves, counts int) {
	for i := range t.last + 1 {
		n := &t.nodes[i]
		if i > 0 && !t.uses(i) {
			continue
		}
		counts += int(n.inFlight)
		for _, e := range t.edges(n) {
			counts += int(e.inFlight)
		}
	}
	return t.leaves, counts
}

// uses says that a node number was given to a node: a simulation that ended in an older node leaves
// its number unused, and Reroot may have dropped a node's edge.
func (t *Tree) uses(i int32) bool {
	c := &t.nodes[i]
	if c.parent < 0 {
		return false
	}
	n := &t.nodes[c.parent]
	return c.via < n.count && t.slab[n.first+int32(c.via)].child == i
}
