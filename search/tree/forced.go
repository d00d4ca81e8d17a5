package tree

import "math"

// Forced playouts and policy target pruning (Wu 2019, "Accelerating Self-Play Learning in Go", section
// 3.2).

// forcedEdge returns the first of the root's visited actions that has fewer visits than it is to get, -1 if
// none has.
func (t *Tree) forcedEdge(n *node) int32 {
	all, at := n.visits-1+n.inFlight, int32(-1)
	for k := range t.edges(n) {
		e := &t.slab[n.first+int32(k)]
		wants := e.visits > 0 && float32(e.visits+e.inFlight) < t.forcedVisits(e, all) && !t.settled(n, k)
		if wants && (at < 0 || e.action < t.slab[n.first+at].action) {
			at = int32(k)
		}
	}
	return at
}

// forcedVisits returns how many of all visits an edge gets at least.
func (t *Tree) forcedVisits(e *edge, all int32) float32 {
	return float32(math.Sqrt(float64(t.root.forced * e.prior * float32(all))))
}

// prunedShares writes the shares of visits that are left when those that were forced are taken off: an
// action that isn't the most visited loses as many as were forced, as long as its score stays below that
// of the most visited one; what a single visit is left of is dropped.
func (t *Tree) prunedShares(n *node, shares []float32) {
	edges := t.edges(n)
	f := t.transform(n, edges)
	c := t.cfg.exploration(n.visits)
	score := func(e *edge, visits float32) float32 { return c*e.prior/(1+visits) + f.ofEdge(e) }
	top := 0
	for k := range edges {
		if edges[k].visits > edges[top].visits {
			top = k
		}
	}
	sum, all := float32(0), n.visits-1
	for k := range edges {
		e := &edges[k]
		visits := float32(e.visits)
		if k != top {
			least := max(0, visits-float32(math.Floor(float64(t.forcedVisits(e, all)))))
			for visits > least && score(e, visits-1) <= score(&edges[top], float32(edges[top].visits)) {
				visits--
			}
			if visits <= 1 {
				visits = 0
			}
		}
		shares[e.action] = visits
		sum += visits
	}
	for a := range shares {
		shares[a] /= sum
	}
}
