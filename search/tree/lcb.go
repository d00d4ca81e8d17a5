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
		e := &edges[k]
		if e.visits == 0 || float32(e.visits) < t.cfg.LCBMinVisits*float32(most) {
			continue
		}
		if bound := e.q - t.radius(e.child); bound > best || (bound == best && e.action < action) {
			best, action = bound, e.action
		}
	}
	return action
}

// radius is LCB standard errors of the Q that leads to a node: of the values backed up through it, as if one more
// had been off by half the range of values, so that a single visit isn't certain.
func (t *Tree) radius(child int32) float32 {
	c := &t.nodes[child]
	if c.proven {
		return 0
	}
	count, mean := float64(c.visits), float64(c.mean)
	half := float64(t.cfg.MaxValue-t.cfg.MinValue) / 2
	variance := max(0, t.squares[child]-count*mean*mean) + half*half
	return t.cfg.LCB * float32(math.Abs(float64(c.discount))*math.Sqrt(variance)/count)
}
