package tree

import (
	"math"

	"github.com/azserve/azserve/internal/vecmath"
)

// Output is a search's answer, in the caller's memory. A nil slice isn't written.
type Output struct {
	Visits  []int32   // [A] visits of the root's actions
	QValues []float32 // [A] reward + discount * value, from the root mover's view; 0 if unvisited
	Weights []float32 // [A] the improved policy: a target to learn
	Action  int32
	Value   float32 // the root's mean value, its own raw value included, from its mover's view
}

// Draw says how the action is drawn from the visits (not with Gumbel, nor LCB).
type Draw struct {
	Temperature float32   // 1 as visits, 0 most visits
	Gumbel      []float32 // [A] noise; nil: the most likely action

	// VisitOffset is added to each visited action's visits before they are raised to 1/Temperature; what
	// is then 0 or less isn't drawn (lc0's TempVisitOffset).
	VisitOffset float32
	// ValueCutoff drops actions whose Q is worse than the best Q by more than this (lc0's
	// TempValueCutoff). 0 means none is dropped.
	ValueCutoff float32
}

// Output writes the answer. After a terminal root everything is 0.
func (t *Tree) Output(out *Output, draw *Draw) {
	n := &t.nodes[Root]
	clear(out.Visits)
	clear(out.QValues)
	for _, e := range t.edges(n) {
		a := e.action
		if out.Visits != nil {
			out.Visits[a] = e.visits
		}
		if out.QValues != nil {
			out.QValues[a] = e.q
		}
	}
	out.Action, out.Value = 0, n.mean
	clear(out.Weights)
	if n.kind == terminal {
		return
	}
	if n.proven {
		t.provenOutput(out)
		return
	}
	if t.cfg.Policy == Gumbel {
		out.Action = t.bestConsidered(n)
		if out.Weights != nil {
			t.improvedPolicy(n, out.Weights)
		}
		return
	}
	t.scores = grow(t.scores, t.actions)
	t.visitShares(n, t.scores)
	if out.Weights != nil {
		copy(out.Weights, t.scores)
	}
	if t.cfg.LCB > 0 {
		out.Action = max(0, t.mostConfident(n))
		return
	}
	t.cutOff(n, t.scores, draw)
	out.Action = t.draw(t.scores, draw)
}

// cutOff applies VisitOffset and ValueCutoff to shares of the visits.
func (t *Tree) cutOff(n *node, shares []float32, draw *Draw) {
	if draw.VisitOffset == 0 && draw.ValueCutoff == 0 {
		return
	}
	edges, best, all := t.edges(n), vecmath.NegInf, float32(0)
	for k := range edges {
		if edges[k].visits > 0 {
			best = max(best, edges[k].q)
			all += float32(edges[k].visits)
		}
	}
	for k := range edges {
		a := edges[k].action
		if shares[a] == 0 {
			continue
		}
		shares[a] = max(0, shares[a]+draw.VisitOffset/all)
		if draw.ValueCutoff > 0 && edges[k].q < best-draw.ValueCutoff {
			shares[a] = 0
		}
	}
}

// provenOutput answers for a proven root: equal weights on the actions that have its value, and of
// these the most visited, the first if several are.
func (t *Tree) provenOutput(out *Output) {
	most, count := int32(-1), float32(0)
	n := &t.nodes[Root]
	visits := func(action int32) int32 {
		for _, e := range t.edges(n) {
			if e.action == action {
				return e.visits
			}
		}
		return 0
	}
	t.provenActions(func(a int32) {
		count++
		if v := visits(a); v > most || (v == most && a < out.Action) {
			most, out.Action = v, a
		}
	})
	if out.Weights != nil {
		t.provenActions(func(a int32) { out.Weights[a] = 1 / count })
	}
}

// visitShares writes each action's share of the root's visits; without a visit, equal shares of
// what may be chosen (MuZero: of all actions, as mctx).
func (t *Tree) visitShares(n *node, shares []float32) {
	clear(shares)
	if t.root.forced > 0 && n.count > 0 {
		t.prunedShares(n, shares)
		return
	}
	sum := float32(0)
	for _, e := range t.edges(n) {
		shares[e.action] = float32(e.visits)
		sum += float32(e.visits)
	}
	if sum == 0 {
		for a, bad := range t.root.invalid {
			if t.cfg.Policy.LikeMCTX() || !bad {
				shares[a] = 1
				sum++
			}
		}
	}
	for a := range shares {
		shares[a] /= sum
	}
}

// draw returns the largest of ln(share) / temperature + noise: a sample of share^(1/temperature), by
// the Gumbel-max trick. MuZero follows mctx, where an action without a visit has ln(tiny) and can be
// drawn at high temperatures, an invalid one too; the others never draw it.
func (t *Tree) draw(shares []float32, draw *Draw) int32 {
	top := vecmath.Log(max(vecmath.Max(shares), vecmath.Tiny))
	best, at := vecmath.NegInf, int32(0)
	for a, p := range shares {
		illegal := t.root.invalid[a] && t.root.illegal(a)
		if illegal || (p == 0 && !t.cfg.Policy.LikeMCTX()) {
			continue
		}
		s := (vecmath.Log(max(p, vecmath.Tiny)) - top) / max(draw.Temperature, vecmath.Tiny)
		if draw.Gumbel != nil {
			s += draw.Gumbel[a]
		}
		if s > best {
			best, at = s, int32(a)
		}
	}
	return at
}

// illegal says that the simulator, and not only the caller's mask, forbids an action.
func (r *root) illegal(a int) bool { return math.IsInf(float64(r.logits[a]), -1) }

// bestConsidered is Gumbel MuZero's action: among the most visited, the largest of noise + logit +
// transformed Q.
func (t *Tree) bestConsidered(n *node) int32 {
	edges := t.edges(n)
	most := int32(0)
	since := func(k int) int32 { return edges[k].visits - t.root.before[edges[k].action] }
	for k := range edges {
		most = max(most, since(k))
	}
	f := t.transform(n, edges)
	best, action := vecmath.NegInf, int32(0)
	for k := range edges {
		e := &edges[k]
		if since(k) != most {
			continue
		}
		a := e.action
		if s := t.considered(e, f, a); s > best || (s == best && a < action) {
			best, action = s, a
		}
	}
	return action
}

// improvedPolicy writes softmax(logits + transformed Q) over the valid actions (Danihelka et al.
// 2022, eq. 11). With all actions masked it is uniform over what is legal.
func (t *Tree) improvedPolicy(n *node, out []float32) {
	edges := t.edges(n)
	f := t.transform(n, edges)
	for a, bad := range t.root.invalid {
		out[a] = t.root.logits[a] + f.unvisited
		if bad {
			out[a] = vecmath.NegInf
		}
	}
	for _, e := range edges {
		if a := e.action; e.visits > 0 && !t.root.invalid[a] {
			out[a] = t.root.logits[a] + f.of(e.q)
		}
	}
	if t.root.stuck {
		for a := range out {
			out[a] = 0
			if t.root.illegal(a) {
				out[a] = vecmath.NegInf
			}
		}
	}
	vecmath.Softmax(out, out)
}

// Temperature writes visits^(1/T), normalised: the policy to play at temperature T >= 0. It works on
// logarithms, so no count overflows. An action without a visit stays at 0. At T = 0, or where the
// rest vanishes, all is on the most visited, the first if several are. Without any visit everything
// is 0.
func Temperature(visits []int32, temperature float32, out []float32) {
	clear(out)
	most, at := int32(0), 0
	for a, n := range visits {
		if n > most {
			most, at = n, a
		}
	}
	switch {
	case most == 0:
		return
	case temperature <= 0:
		out[at] = 1
		return
	}
	sum := 0.0
	share := func(n int32) float64 {
		return math.Exp(math.Log(float64(n)/float64(most)) / float64(temperature))
	}
	for _, n := range visits {
		if n > 0 {
			sum += share(n)
		}
	}
	for a, n := range visits {
		if n > 0 {
			out[a] = float32(share(n) / sum)
		}
	}
}
