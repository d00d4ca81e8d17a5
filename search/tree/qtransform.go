package tree

import (
	"math"

	"github.com/azserve/azserve/internal/vecmath"
)

// affine is a node's Q transform: a visited action's Q becomes (q - low) * scale, and every
// unvisited action has the same number. All transforms are of this form.
type affine struct {
	low, scale, unvisited float32
}

func (f affine) of(q float32) float32 { return (q - f.low) * f.scale }

// ofEdge is the number of an edge, which has no Q before its first visit is backed up.
func (f affine) ofEdge(e *edge) float32 {
	if e.visits == 0 {
		return f.unvisited
	}
	return f.of(e.q)
}

// tiny is the relative difference of two Q values that may be rounding.
const tiny = 1e-5

// transform computes the Q transform of a node from its visited edges.
func (t *Tree) transform(n *node, edges []edge) affine {
	if t.cfg.scaling == scaleCompleted {
		f, _ := t.completed(n, edges)
		return f
	}
	low, width, unvisited := t.span(n, edges)
	return affine{low, 1 / width, unvisited / width}
}

// span is transform times a width: a visited action's Q becomes q - low, an unvisited one's unvisited.
// It spares its caller a division at every level.
func (t *Tree) span(n *node, edges []edge) (low, width, unvisited float32) {
	switch t.cfg.scaling {
	case scaleBySiblings:
		low, high := qRange(n.mean, edges)
		if width = high - low; width < t.cfg.Epsilon {
			width = t.cfg.Epsilon
		}
		return low, width, 0
	case scaleByMinMax:
		return t.cfg.MinValue, t.cfg.MaxValue - t.cfg.MinValue, 0
	case scaleByRange:
		low, width = t.cfg.MinValue, t.cfg.MaxValue-t.cfg.MinValue
		return low, width, t.firstPlay(n, low, width)
	case scaleByTree:
		low, width = 0, 1
		if t.qHigh-t.qLow > tiny*max(t.qHigh, -t.qLow) {
			low, width = t.qLow, t.qHigh-t.qLow
		}
		return low, width, t.firstPlay(n, low, width)
	default: // scaleCompleted
		f, _ := t.completed(n, edges)
		if f.scale == 0 { // ValueScale 0: Q doesn't count
			return 0, huge, 0
		}
		width = 1 / f.scale
		return f.low, width, f.unvisited * width
	}
}

// huge is a width beside which no Q counts.
const huge = 1e20

// firstPlay is the span of an unvisited action (FPU).
func (t *Tree) firstPlay(n *node, low, width float32) float32 {
	u := &t.cfg.urgency[0]
	if n == &t.nodes[Root] {
		u = &t.cfg.urgency[1]
	}
	if u.absolute {
		return u.value - low
	}
	if u.reduction == 0 {
		return n.mean - low
	}
	visited := 1 - n.rest
	if visited < 0 {
		visited = 0
	}
	return n.mean - low - width*u.reduction*float32(math.Sqrt(float64(visited)))
}

// qRange returns the least and greatest of a value and the Q of the visited edges.
func qRange(value float32, edges []edge) (low, high float32) {
	low, high = value, value
	for i := range edges {
		e := &edges[i]
		if e.visits == 0 {
			continue
		}
		low, high = min(low, e.q), max(high, e.q)
	}
	return low, high
}

// completed is qtransform_completed_by_mix_value. top is the largest transformed Q of a visited action, minus
// infinity if there is none.
func (t *Tree) completed(n *node, edges []edge) (f affine, top float32) {
	c := &t.cfg.Config
	mixed := n.raw
	if c.UseMixedValue {
		mixed = mixedValue(n.raw, edges)
	}
	most, visited := int32(0), 0
	low, high := float32(math.Inf(1)), vecmath.NegInf
	for i := range edges {
		e := &edges[i]
		if e.visits == 0 {
			continue
		}
		visited++
		if e.q < low {
			low = e.q
		}
		if e.q > high {
			high = e.q
		}
		if e.visits > most {
			most = e.visits
		}
	}
	best := high
	if visited < t.actions {
		if mixed < low {
			low = mixed
		}
		if mixed > high {
			high = mixed
		}
	}
	scale := (c.MaxvisitInit + float32(most)) * c.ValueScale
	f = affine{scale: scale}
	if c.RescaleValues {
		width := high - low
		if width < c.Epsilon {
			width = c.Epsilon
		}
		f = affine{low: low, scale: scale / width}
	}
	f.unvisited = f.of(mixed)
	if visited == 0 {
		return f, best
	}
	return f, f.of(best)
}

// mixedValue is the value of unvisited actions: the raw value and the visited Q's mean under the
// prior, weighted by 1 and the number of visits (Danihelka et al. 2022, eq. 33).
func mixedValue(raw float32, edges []edge) float32 {
	visits := int32(0)
	weighted, mass := float32(0), float32(0)
	for i := range edges {
		if e := &edges[i]; e.visits > 0 {
			p := e.prior
			if p < vecmath.Tiny {
				p = vecmath.Tiny
			}
			weighted += p * e.q
			mass += p
			visits += e.visits
		}
	}
	if visits == 0 {
		return raw
	}
	return (raw + float32(visits)*(weighted/mass)) / float32(visits+1)
}
