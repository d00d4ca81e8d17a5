package tree

import "math"

// mostConfident returns the action with the best lower confidence bound among those with enough visits
// (Config.LCB), -1 without a visit.
func (t *Tree) mostConfident(n *node) int32 {
	edges := t.edges(n)
	most := int32(0)
	for k := range edges {
		most = max(most, edges[k].visits)
	}
	best, action := float32(math.Inf(-1)), int32(-1)
	for k := range edges {
		e, l := &edges[k], &t.cold[n.first+int32(k)]
		if e.visits == 0 || float32(e.visits) < t.cfg.LCBMinVisits*float32(most) {
			continue
		}
		if bound := e.q - t.radius(l); bound > best || (bound == best && l.action < action) {
			best, action = bound, l.action
		}
	}
	return action
}

// radius is LCB standard errors of an edge's Q: of the values backed up through its child, as if one more
// had been off by half the range of values, so that a single visit isn't certain.
func (t *Tree) radius(l *link) float32 {
	c := &t.nodes[l.child]
	if c.proven {
		return 0
	}
	count, mean := float64(c.visits), float64(c.mean)
	half := float64(t.cfg.MaxValue-t.cfg.MinValue) / 2
	variance := max(0, t.squares[l.child]-count*mean*mean) + half*half
	return t.cfg.LCB * float32(math.Abs(float64(l.discount))*math.Sqrt(variance)/count)
}
