package tree

import (
	"math/bits"

	"github.com/azserve/azserve/internal/vecmath"
)

// Where there is chance (Outcomes more than 0) every action leads to a chance node, the state before
// nature draws, and below it are its outcomes. A chance node's value is from the view of the player
// whose action led to it, and it is the mean of what was backed up through it: its outcomes are visited
// in proportion to their probabilities.
//
// Stochastic evaluates chance nodes, as mctx does: each takes a simulation of its own, and its value
// counts. The other policies pass through them: a simulation that makes a chance node goes on to an
// outcome at once (Through), and only decision nodes are evaluated. The value then is of outcomes alone,
// so that mctx's order, the most likely first, would give the first few visits a bias; they are drawn
// instead, from a sequence that spreads evenly.

// Passes says that there is chance, and that chance nodes are passed and not evaluated.
func (c *Config) Passes() bool { return c.Outcomes > 0 && c.Policy != Stochastic }

// passes says that a node is a chance node that is passed.
func (t *Tree) passes(n *node) bool { return n.chance && t.cfg.passing }

// Through opens a chance node that Select returned, without an evaluation, and goes on to an outcome: the
// leaf that it returns belongs to the same simulation, and is to be applied. reward
// is what the action brings before nature draws; chances [Outcomes] are probabilities, 0 for what can't
// happen, and aren't kept. Only where chance nodes are passed.
func (t *Tree) Through(l Leaf, reward float32, chances []float32) Leaf {
	n := &t.nodes[l.Node]
	n.reward, n.discount = reward, 1
	n.kind = open
	if t.cfg.LCB > 0 {
		t.squares[l.Node] = 0
	}
	copy(t.priors(l.Node), chances)
	for o, chance := range chances {
		if !(chance > 0) {
			t.priors(l.Node)[o] = priorIllegal
		}
	}
	if len(t.logits) > 0 {
		logits := make([]float32, len(chances))
		for o, chance := range chances {
			logits[o] = vecmath.Log(chance)
		}
		t.keepLogits(l.Node, logits, nil)
	}
	t.rank(l.Node)
	t.drawOutcome(l.Node)
	var below Leaf
	t.addChild(l.Node, &below)
	return below
}

// drawOutcome returns the edge of a drawn outcome, -1 where it is unvisited; n.next then is the outcome.
func (t *Tree) drawOutcome(i int32) int32 {
	n := &t.nodes[i]
	edges, priors := t.edges(n), t.priors(i)
	left := spread(t.root.seed, i, n.visits+n.inFlight)
	at, unvisited := int32(-1), int32(-1)
	for k := range edges {
		if at = int32(k); left < edges[k].prior {
			return at
		}
		left -= edges[k].prior
	}
	for o, p := range priors {
		if p <= 0 {
			continue
		}
		if unvisited = int32(o); left < p {
			break
		}
		left -= p
	}
	if unvisited >= 0 {
		n.next, n.nextPrior = unvisited, priors[unvisited]
		return -1
	}
	return at // rounding
}

// spread returns number k of node i's sequence in [0, 1): a random start, then steps of the golden ratio,
// which fill the interval evenly however many are taken.
func spread(seed uint64, i, k int32) float32 {
	const golden = 0x9e3779b97f4a7c15
	hi, lo := bits.Mul64(seed^golden, uint64(i)*golden+1)
	return float32((hi^lo+uint64(k)*golden)>>40) / (1 << 24)
}
