package tree

import (
	"math"
	"testing"

	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// bandit is a root whose actions lead to ends with these values, from the root's view.
func bandit(values, priors []float64) *randomTable {
	a := len(values)
	m := &randomTable{states: a + 1, actions: a, terminal: make([]bool, a+1), value: make([]float64, a+1)}
	for s := range m.states {
		logits, legal, branches := make([]float64, a), make([]bool, a), make([][]branch, a)
		for i := range a {
			legal[i], logits[i] = true, math.Log(priors[i])
			branches[i] = []branch{{next: s, reward: 0, discount: 1}}
			if s == 0 {
				branches[i] = []branch{{next: i + 1, reward: values[i]}}
			}
		}
		m.terminal[s] = s > 0
		m.logits, m.legal, m.branches = append(m.logits, logits), append(m.legal, legal), append(m.branches, branches)
	}
	return m
}

// answer searches a table and returns the tree with its answer.
func answer(t *testing.T, c Config, m *randomTable, draw *Draw) (*Tree, *Output) {
	params, err := NewParams(c)
	require.NoError(t, err)
	tr := searchRandom(t, params, m)
	out := &Output{Visits: make([]int32, m.actions), QValues: make([]float32, m.actions), Weights: make([]float32, m.actions)}
	tr.Output(out, draw)
	return tr, out
}

// Forced playouts follow up an action that noise proposes, and pruning takes them off the target.
func TestForcedPlayouts(t *testing.T) {
	m := bandit([]float64{0.5, -0.9, -0.8}, []float64{0.5, 0.3, 0.2})
	c := Default(AlphaZero)
	c.NumSimulations = 400
	_, plain := answer(t, c, m, &Draw{})
	c.ForcedPlayouts = 2
	_, forced := answer(t, c, m, &Draw{})
	for a, p := range []float64{0.3, 0.2} {
		require.Greater(t, forced.Visits[a+1], plain.Visits[a+1])
		require.GreaterOrEqual(t, float64(forced.Visits[a+1]), math.Sqrt(2*p*400)-1)
	}
	for a := range 3 { // the target is near that of a search without
		require.InDelta(t, float64(plain.Visits[a])/400, forced.Weights[a], 0.02)
	}
	require.InDelta(t, 1, forced.Weights[0]+forced.Weights[1]+forced.Weights[2], 1e-6)
	// An action that turns out good keeps its visits.
	_, good := answer(t, c, bandit([]float64{0.1, 0.9, -0.8}, []float64{0.9, 0.05, 0.05}), &Draw{})
	require.InDelta(t, float32(good.Visits[1])/400, good.Weights[1], 0.05)
	require.Equal(t, int32(1), good.Action)
}

// The action with the best lower bound is played, though another has more visits; too few visits don't
// count.
func TestLCB(t *testing.T) {
	c := Default(AlphaZero)
	c.LCB = 3
	params, err := NewParams(c)
	require.NoError(t, err)
	build := func(visits []int32, q, deviation []float32) int32 {
		tr := &Tree{}
		tr.Reset(params, len(visits))
		tr.SetRoot(&RootInput{})
		for k, v := range visits {
			var l Leaf
			tr.addChild(Root, &l)
			at := tr.nodes[Root].first + int32(k)
			n, e, mean := &tr.nodes[l.Node], &tr.slab[at], float64(-q[k])
			n.kind, n.visits, n.mean = open, v, float32(mean)
			e.visits, e.q, n.discount = v, q[k], -1
			tr.squares[l.Node] = float64(v) * (mean*mean + float64(deviation[k])*float64(deviation[k]))
		}
		var out Output
		tr.Output(&out, &Draw{})
		return out.Action
	}
	require.Equal(t, int32(1), build([]int32{100, 60, 1}, []float32{0.1, 0.3, 0.9}, []float32{0.5, 0.1, 0}))
	require.Equal(t, int32(0), build([]int32{100, 60, 1}, []float32{0.1, 0.15, 0.9}, []float32{0.1, 0.9, 0}))
	require.Equal(t, int32(0), build([]int32{100, 14, 1}, []float32{0.1, 0.9, 0.9}, []float32{0.1, 0, 0}), "too few visits")
}

// LCB's standard errors are those of the values that were backed up.
func TestLCBVariance(t *testing.T) {
	for i := range 50 {
		r := rng.New(uint64(i), 80)
		m := newTable(&r)
		c := Default(AlphaZero)
		c.NumSimulations, c.Outcomes, c.LCB, c.MinValue, c.MaxValue = 200, m.outcomes, 1, -2, 2
		params, err := NewParams(c)
		require.NoError(t, err)
		tr := searchRandom(t, params, m)
		for i, n := range tr.nodes[:tr.last+1] {
			if n.visits > 0 && n.parent >= 0 && n.kind == terminal {
				require.InDelta(t, float64(n.visits)*float64(n.raw)*float64(n.raw), tr.squares[i], 1e-4)
			}
			if n.visits > 0 {
				require.GreaterOrEqual(t, tr.squares[i]+1e-4, n.sum*n.sum/float64(n.visits), "less than the mean's square")
			}
		}
	}
}

// A search that stops early has the answer of one that doesn't.
func TestEarlyStop(t *testing.T) {
	saved := 0
	for i := range 500 {
		r := rng.New(uint64(i), 81)
		c, m := randomConfig(&r), newTable(&r)
		c.Outcomes, c.LCB, c.NumSimulations = m.outcomes, 0, 100
		_, whole := answer(t, c, m, &Draw{})
		c.EarlyStop = true
		tr, short := answer(t, c, m, &Draw{})
		require.Equal(t, whole.Action, short.Action, "%+v", c)
		saved += 100 - tr.Simulations()
	}
	require.Greater(t, saved, 500*10)
	tr, _ := answer(t, Config{
		Policy: Gumbel, NumSimulations: 50, LeavesPerStep: 1, QTransform: CompletedByMixValue, Epsilon: 1e-8, MinValue: -1,
		MaxValue: 1, PbCBase: 1, FPU: FPUParent, MaxNumConsidered: 4, EarlyStop: true, CountKept: true,
	}, bandit([]float64{1}, []float64{1}), &Draw{})
	require.Equal(t, 1, tr.Simulations(), "a single action")
}

// Drawn actions follow visits^(1/T), the offset and the cut-off.
func TestDraw(t *testing.T) {
	m := bandit([]float64{0.3, 0.25, -0.5}, []float64{0.4, 0.3, 0.3})
	c := Default(AlphaZero)
	c.NumSimulations = 60
	tr, out := answer(t, c, m, &Draw{})
	frequencies := func(d Draw) (share [3]float64) {
		r := rng.New(1)
		for range 20_000 {
			d.Gumbel = []float32{r.Gumbel(), r.Gumbel(), r.Gumbel()}
			o := Output{}
			tr.Output(&o, &d)
			share[o.Action] += 1. / 20_000
		}
		return share
	}
	want := func(temperature, offset float64, drop int) (share [3]float64) {
		sum := 0.0
		for a, v := range out.Visits {
			if a != drop {
				share[a] = math.Pow(max(0, float64(v)+offset), 1/temperature)
				sum += share[a]
			}
		}
		for a := range share {
			share[a] /= sum
		}
		return share
	}
	least := float64(out.Visits[2])
	for _, k := range []struct {
		draw Draw
		want [3]float64
	}{
		{Draw{Temperature: 1}, want(1, 0, -1)},
		{Draw{Temperature: 0.5}, want(0.5, 0, -1)},
		{Draw{Temperature: 1, VisitOffset: 10}, want(1, 10, -1)},
		{Draw{Temperature: 1, VisitOffset: -float32(least)}, want(1, -least, 2)},
		{Draw{Temperature: 2, ValueCutoff: 0.2}, want(2, 0, 2)},
	} {
		got := frequencies(k.draw)
		for a := range got {
			require.InDelta(t, k.want[a], got[a], 0.015, "%+v", k.draw)
		}
	}
}
