package tree

// decided says that the simulations that are left can't change the answer: only one action may be chosen,
// and it has a visit; or, where the most visited action is the answer, no other can catch up.
func (t *Tree) decided() bool {
	n := &t.nodes[Root]
	edges := t.edges(n)
	if len(edges) == 1 && n.next < 0 && edges[0].visits > 0 {
		return true
	}
	if t.cfg.Policy == Gumbel || t.cfg.LCB > 0 {
		return false
	}
	most, second := int32(0), int32(0)
	for k := range edges {
		switch v := edges[k].visits; {
		case v > most:
			most, second = v, most
		case v > second:
			second = v
		}
	}
	return int(most-second) > t.budget-t.done
}
