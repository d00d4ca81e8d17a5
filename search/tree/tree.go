package tree

import (
	"math"
	"math/bits"

	"github.com/azserve/azserve/internal/vecmath"
)

// Node numbers with a meaning, named as in mctx.
const (
	Root      = int32(0)
	NoParent  = int32(-1)
	Unvisited = int32(-1) // an action without a child

	unranked = int32(-2) // node.next before the node's first selection
)

// node is one position. 64 bytes, a cache line; what few settings need is in slices of its own.
type node struct {
	sum      float64 // of the values backed up through here, the node's own raw value once included
	mean     float32 // sum/visits: the node's value
	visits   int32   // how many values
	inFlight int32   // simulations that passed and aren't backed up yet
	parent   int32

	reward, discount float32 // of the step that leads here

	first int32 // the visited edges are slab[first : first+count], with room for more (room)

	next      int32   // the unvisited action with the best prior, Unvisited if none is left, or unranked
	nextPrior float32 // its prior
	rest      float32 // prior mass of all unvisited actions
	raw       float32 // the evaluator's value, the exact one once proven
	limits    int32   // where its bounds are, an index of Tree.limits (Solve)
	count     uint16
	via       uint16 // which of the parent's edges leads here, counted from the parent's first
	kind      kind
	proven    bool // its value is certain: an end by the rules, or by Solve
	chance    bool // its edges are outcomes and not actions
	flat      bool // its priors are equal
}

// kind says what may happen at a node.
type kind uint8

const (
	pending  kind = iota // chosen, waits for its evaluation
	open                 // evaluated: has actions
	terminal             // the game ends here: never expanded, its value is raw
)

// edge is a visited action, or a visited outcome of a chance node: what a selection reads of it. 28 bytes.
type edge struct {
	q        float32 // reward + discount * value of the child; 0 before the first visit is backed up
	share    float32 // of the exploration, see Params.share
	prior    float32
	visits   int32
	inFlight int32
	action   int32
	child    int32
}

// share is what the exploration term of an edge depends on beside its node, kept up to date in edge.share so
// that no selection divides: prior / (1 + n) for PUCT, 1 / sqrt(n) for UCB1, n being the visits with those
// in flight.
func (p *Params) share(e *edge) float32 {
	n := float32(e.visits + e.inFlight)
	if p.rule == ruleUCB {
		return 1 / float32(math.Sqrt(float64(n)))
	}
	return e.prior / (1 + n)
}

// Tree is the search of one root. Its memory is reused by the next Reset. Not safe for concurrent
// use.
type Tree struct {
	cfg     *Params
	actions int
	stride  int // entries of a node in prior and logits: actions, or outcomes if those are more
	nodes   []node
	slab    []edge  // edges of all nodes
	last    int32   // the highest node number given
	free    []int32 // numbers below it that were given back (MaxNodes)
	budget  int     // simulations to do: NumSimulations less the visits that Advance kept
	started int     // simulations begun
	done    int     // simulations backed up
	leaves  int     // in flight
	pruned  int     // nodes that were forgotten (MaxNodes)

	extra       bool      // propagate is to note more than usual
	qLow, qHigh float32   // least and greatest Q seen (ByTree)
	passed      []int32   // [N] the last simulation that came by (MaxNodes)
	squares     []float64 // [N] sums of squares of what node.sum has (LCB)

	limits   []limits         // bounds of exact values; positions met on several ways share theirs (Solve)
	limitsOf map[uint64]int32 // by key

	// prior[node*stride+a] is the prior of an unvisited legal action; -1 marks a visited action, -2
	// an illegal one. Before a node is ready they are its logits, see load.
	prior  []float32
	logits []float32 // the same shape, as given; only with KeepLogits

	root   root
	depth  int       // of the deepest leaf
	scores []float32 // [A] memory of Output

	// Memory of Advance: new numbers by old ones, and the other half of the edges.
	names []int32
	spare []edge
}

const (
	priorVisited = -1
	priorIllegal = -2
)

// root is what only the root has.
type root struct {
	logits  []float32 // [A] with noise and mask, illegal -Inf, invalid vecmath.InvalidLogit
	invalid []bool    // [A] may not be chosen: illegal or masked by the caller
	key     []float32 // [A] Gumbel: noise + logit, what the unvisited are ranked by; else nil
	keys    []float32 // memory of key
	halving []int32   // Gumbel: visits that simulation i considers
	before  []int32   // [A] Gumbel: visits that Advance kept; halving counts those since
	seed    uint64    // of chance
	raw     float32   // the evaluator's value, also once Solve has replaced it
	forced  float32   // Config.ForcedPlayouts, or 0 for a fast search
	stuck   bool      // every legal action is masked by the caller: the first is then taken
}

// Reset forgets everything; actions is the number of actions. The parameters must not change before
// the next Reset.
func (t *Tree) Reset(p *Params, actions int) {
	t.cfg, t.actions, t.stride = p, actions, actions
	if p.Outcomes > 0 {
		t.stride = max(actions, p.Outcomes)
	}
	t.slab = t.slab[:0]
	t.last, t.budget = Root, p.NumSimulations
	t.started, t.done, t.leaves, t.depth, t.pruned = 0, 0, 0, 0, 0
	t.free = t.free[:0]
	t.qLow, t.qHigh = float32(math.Inf(1)), vecmath.NegInf
	t.resetLimits()
	n := p.Nodes()
	t.nodes = grow(t.nodes, n)
	t.nodes[Root] = node{}
	t.prior = grow(t.prior, n*t.stride)
	t.extra = p.LCB > 0 || p.QTransform == ByTree
	if p.LCB > 0 {
		t.squares = grow(t.squares, n)
	}
	if p.bounded {
		t.passed = grow(t.passed, n)
	}
	t.logits = t.logits[:0]
	if p.KeepLogits {
		clear(t.nodes)
		t.logits = grow(t.logits, n*t.stride)
	}
}

// grow returns a slice of length n, reusing memory; its contents are undefined.
func grow[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// Done says that nothing is left to do.
func (t *Tree) Done() bool {
	return t.done >= t.budget || !t.searching()
}

// Proven says that the root's value is certain.
func (t *Tree) Proven() bool { return t.nodes[Root].proven }

// Started says that SetRoot was called since Reset.
func (t *Tree) Started() bool { return t.nodes[Root].visits > 0 }

// RawValue returns the evaluator's value of the root.
func (t *Tree) RawValue() float32 { return t.root.raw }

// Simulations returns how many simulations are done.
func (t *Tree) Simulations() int { return t.done }

// Depth returns the depth of the deepest leaf so far, in edges from the root.
func (t *Tree) Depth() int { return t.depth }

// add takes a value into a node's mean.
func (n *node) add(value float32) {
	n.visits++
	n.sum += float64(value)
	n.mean = float32(n.sum / float64(n.visits))
}

// edges returns the visited edges of a node.
func (t *Tree) edges(n *node) []edge { return t.slab[n.first : n.first+int32(n.count)] }

// priors returns the priors of a node's unvisited actions, with the marks in place of the others.
func (t *Tree) priors(i int32) []float32 {
	first, width := int(i)*t.stride, t.stride
	if t.cfg.Outcomes > 0 {
		width = t.width(i)
	}
	return t.prior[first : first+width]
}

// width returns how many actions a node has: outcomes if it is a chance node.
func (t *Tree) width(i int32) int {
	if t.nodes[i].chance {
		return t.cfg.Outcomes
	}
	return t.actions
}

// addEdge gives node i an edge for its best unvisited action, to the node child, with one simulation in
// flight. It looks up the next best action.
func (t *Tree) addEdge(i, child int32) {
	n := &t.nodes[i]
	if c := n.count; c&(c-1) == 0 && c != 1 { // the room is full, see room
		t.moveEdges(n)
	}
	e := &t.slab[n.first+int32(n.count)]
	e.q, e.prior = 0, n.nextPrior
	e.visits, e.inFlight = 0, 1
	e.share = t.cfg.share(e)
	e.action, e.child = n.next, child
	n.count++
	priors := t.priors(i)
	priors[n.next] = priorVisited
	n.rest = max(0, n.rest-n.nextPrior)
	switch {
	case n.flat:
		n.skip(priors)
	case i == Root && t.root.key != nil:
		t.rankRoot(n, priors)
	default:
		n.best(priors)
	}
	if n.next < 0 {
		n.rest = 0
	}
}

// skip finds the next unvisited action of a node whose priors are equal.
func (n *node) skip(priors []float32) {
	for a := int(n.next) + 1; a < len(priors); a++ {
		if priors[a] >= 0 {
			n.next = int32(a)
			return
		}
	}
	n.next = Unvisited
}

// moveEdges doubles a node's room for edges, at the end of the slab. The old place is left empty:
// all moves together waste less than the edges themselves take.
func (t *Tree) moveEdges(n *node) {
	first := int32(len(t.slab))
	t.slab = extend(t.slab, t.room(int(n.count)+1))
	copy(t.slab[first:], t.edges(n))
	n.first = first
}

// room returns how many edges there is room for where there are count: the next power of 2, from 2 to what
// a node can have.
func (t *Tree) room(count int) int {
	if count == 0 {
		return 0
	}
	return max(count, min(t.stride, max(2, 1<<bits.Len(uint(count-1)))))
}

// extend lengthens a slice by n elements of undefined contents.
func extend[T any](x []T, n int) []T {
	if len(x)+n <= cap(x) {
		return x[:len(x)+n]
	}
	return append(x, make([]T, n)...)
}

// ready turns the loaded logits of a node that is passed for the first time into ranked priors.
func (t *Tree) ready(i int32) {
	n, priors := &t.nodes[i], t.priors(i)
	n.next, n.flat = soften(priors)
	n.nextPrior, n.rest = priors[n.next], 1
}

// rank finds the best unvisited action of a node, first index on equality, and the prior mass of
// all unvisited.
func (t *Tree) rank(i int32) {
	n, priors := &t.nodes[i], t.priors(i)
	n.rest = 0
	for _, p := range priors {
		if p > 0 {
			n.rest += p
		}
	}
	n.best(priors)
	if i == Root && t.root.key != nil {
		t.rankRoot(n, priors)
	}
}

// best finds the best unvisited action. Floats that aren't negative are in the order of their bits, and the
// marks are below them: so the best is the largest of whole numbers, and no branch has to be guessed.
func (n *node) best(priors []float32) {
	top := int64(-1)
	for a, p := range priors {
		top = max(top, int64(int32(math.Float32bits(p)))<<32|int64(^uint32(a)))
	}
	n.next, n.nextPrior = Unvisited, 0
	if top >= 0 {
		n.next = int32(^uint32(top))
		n.nextPrior = priors[n.next]
	}
}

// rankRoot ranks the root's unvisited actions by noise and logit (Gumbel).
func (t *Tree) rankRoot(n *node, priors []float32) {
	n.next = Unvisited
	for a, p := range priors {
		if p >= 0 && !t.root.invalid[a] && (n.next < 0 || t.root.key[a] > t.root.key[n.next]) {
			n.next, n.nextPrior = int32(a), p
		}
	}
}
