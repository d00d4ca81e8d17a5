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
	c := &t.cfg.Config
	switch c.QTransform {
	case ByParentAndSiblings:
		low, high := qRange(n.mean, edges)
		return affine{low, 1 / max(high-low, c.Epsilon), 0}
	case ByMinMax:
		return affine{c.MinValue, 1 / (c.MaxValue - c.MinValue), 0}
	case ByRange:
		return t.withFPU(n, affine{low: c.MinValue, scale: 1 / (c.MaxValue - c.MinValue)})
	case ByTree:
		f := affine{scale: 1}
		if t.qHigh-t.qLow > tiny*max(t.qHigh, -t.qLow) {
			f = affine{low: t.qLow, scale: 1 / (t.qHigh - t.qLow)}
		}
		return t.withFPU(n, f)
	default:
		return t.completed(n, edges)
	}
}

// withFPU completes a transform by first-play urgency.
func (t *Tree) withFPU(n *node, f affine) affine {
	c := &t.cfg.Config
	kind, reduction, value := c.FPU, c.FPUReduction, c.FPUValue
	if c.RootFPU != "" && n == &t.nodes[Root] {
		kind, reduction, value = c.RootFPU, c.RootFPUReduction, c.RootFPUValue
	}
	if kind == FPUAbsolute {
		f.unvisited = f.of(value)
		return f
	}
	f.unvisited = f.of(n.mean)
	if kind == FPUReduced && reduction > 0 {
		f.unvisited -= reduction * float32(math.Sqrt(float64(max(0, 1-n.rest))))
	}
	return f
}

// qRange returns the least and greatest of a value and the Q of the visited edges.
func qRange(value float32, edges []edge) (low, high float32) {
	low, high = value, value
	for i := range edges {
		e := &edges[i]
		if e.visits == 0 {
			continue
		}
		// Plain comparisons: the built-in min and max take care of NaN, which can't be here.
		if e.q < low {
			low = e.q
		}
		if e.q > high {
			high = e.q
		}
	}
	return low, high
}

// completed is qtransform_completed_by_mix_value.
func (t *Tree) completed(n *node, edges []edge) affine {
	c := &t.cfg.Config
	mixed := n.raw
	if c.UseMixedValue {
		mixed = mixedValue(n.raw, edges)
	}
	most, visited := int32(0), 0
	low, high := float32(math.Inf(1)), float32(math.Inf(-1))
	for i := range edges {
		if e := &edges[i]; e.visits > 0 {
			low, high = min(low, e.q), max(high, e.q)
			most = max(most, e.visits)
			visited++
		}
	}
	if visited < t.actions {
		low, high = min(low, mixed), max(high, mixed)
	}
	scale := (c.MaxvisitInit + float32(most)) * c.ValueScale
	f := affine{scale: scale}
	if c.RescaleValues {
		f = affine{low: low, scale: scale / max(high-low, c.Epsilon)}
	}
	f.unvisited = f.of(mixed)
	return f
}

// mixedValue is the value of unvisited actions: the raw value and the visited Q's mean under the
// prior, weighted by 1 and the number of visits (Danihelka et al. 2022, eq. 33).
func mixedValue(raw float32, edges []edge) float32 {
	visits := int32(0)
	weighted, mass := float32(0), float32(0)
	for i := range edges {
		if e := &edges[i]; e.visits > 0 {
			p := max(e.prior, vecmath.Tiny)
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
