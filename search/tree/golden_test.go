package tree

import (
	"math"
	"testing"

	"github.com/azserve/azserve/internal/golden"
	"github.com/stretchr/testify/require"
)

func configOf(p Policy, s *golden.Search) Config {
	c := Default(p)
	c.NumSimulations, c.KeepLogits = s.Config.NumSimulations, true
	if s.Config.MaxDepth != nil {
		c.MaxDepth = max(1, *s.Config.MaxDepth)
	}
	c.Outcomes = s.Model.NumChance
	if p == Gumbel {
		c.MaxNumConsidered = s.Config.MaxNumConsidered
	} else {
		c.PbCInit, c.PbCBase = s.Config.PbCInit, s.Config.PbCBase
	}
	return withTransform(c, s.Config.QTransform)
}

func withTransform(c Config, q golden.QTransform) Config {
	c.QTransform = QTransform(q.Name)
	switch c.QTransform {
	case ByMinMax:
		c.MinValue, c.MaxValue = q.MinValue, q.MaxValue
		return c
	case CompletedByMixValue:
		c.ValueScale, c.MaxvisitInit = q.ValueScale, q.MaxvisitInit
		c.RescaleValues, c.UseMixedValue = q.RescaleValues, q.UseMixedValue
	default:
	}
	c.Epsilon = q.Epsilon
	return c
}

// rowOf returns row b of noise, scaled; nil if there is none.
func rowOf(noise [][]float32, b int, scale float32) []float32 {
	if noise == nil {
		return nil
	}
	out := make([]float32, len(noise[b]))
	for a, g := range noise[b] {
		out[a] = g * scale
	}
	return out
}

// searchTable runs row b of a golden case, and returns the tree and the leaf of each simulation.
func searchTable(t *testing.T, p Policy, s *golden.Search, b int) (*Tree, []int32) {
	params, err := NewParams(configOf(p, s))
	require.NoError(t, err)
	m := &s.Model
	tr := &Tree{}
	tr.Reset(params, m.NumActions)
	root := s.RootState[b]
	tr.SetRoot(&RootInput{
		Logits: m.PriorLogits[root], Value: m.Value[root], Invalid: s.InvalidRow(b),
		Dirichlet: rowOf(s.Noise.Dirichlet, b, 1), Fraction: s.Config.DirichletFrac,
		Gumbel: rowOf(s.Noise.RootGumbel, b, s.Config.GumbelScale),
	})
	w := &tableWalker{tr: tr, m: m, states: map[int32]int32{Root: root}}
	return tr, w.run(t)
}

// tableWalker is the simulator and the evaluator of a tree over a golden model.
type tableWalker struct {
	tr     *Tree
	m      *golden.Model
	states map[int32]int32
}

// run searches to the end and returns the leaf of each simulation.
func (w *tableWalker) run(t *testing.T) (leaves []int32) {
	m, tr := w.m, w.tr
	for !tr.Done() {
		var leaf [1]Leaf
		require.Equal(t, 1, tr.Select(leaf[:]))
		l := leaf[0]
		from := w.states[l.Parent]
		leaves = append(leaves, l.Node)
		if l.Chance {
			after := m.Afterstate[from][l.Action]
			w.states[l.Node] = after
			tr.Apply(l, &Evaluation{Discount: 1, Logits: m.ChanceLogits[after], Value: m.AfterstateValue[after]})
			continue
		}
		to := m.NextState[from][l.Action]
		w.states[l.Node] = to
		tr.Apply(l, &Evaluation{
			Reward: m.Reward[from][l.Action], Discount: m.Discount[from][l.Action],
			Logits: m.PriorLogits[to], Value: m.Value[to],
		})
	}
	return leaves
}

func TestGoldenSearches(t *testing.T) {
	for _, f := range []struct {
		file   string
		policy Policy
	}{{"muzero_search", MuZero}, {"gumbel_search", Gumbel}, {"stochastic_search", Stochastic}} {
		for _, s := range golden.Load[golden.Search](t, f.file) {
			t.Run(f.file+"/"+s.Name, func(t *testing.T) {
				for b := range s.RootState {
					checkRow(t, f.policy, &s, b)
				}
			})
		}
	}
}

func checkRow(t *testing.T, p Policy, s *golden.Search, b int) {
	tr, leaves := searchTable(t, p, s, b)
	a, want := s.Model.NumActions, &s.Expected
	if len(leaves) > 0 {
		require.Equal(t, want.SimulationLeaf[b], leaves)
	}
	out := Output{Visits: make([]int32, a), QValues: make([]float32, a), Weights: make([]float32, a)}
	tr.Output(&out, &Draw{Temperature: s.Config.Temperature, Gumbel: rowOf(s.Noise.ActionGumbel, b, 1)})
	require.Equal(t, want.Summary.VisitCounts[b], out.Visits)
	require.Equal(t, want.Action[b], out.Action)
	golden.Close(t, want.ActionWeights[b], out.Weights, 1, "action_weights")
	golden.Close(t, want.Summary.QValues[b], out.QValues, s.Scale(), "qvalues")
	golden.Close(t, want.Summary.Value[b:b+1], []float32{out.Value}, s.Scale(), "value")
	checkTree(t, &want.Tree, tr.Export(), b, s.Scale())
	checkInvariants(t, tr)
}

func checkTree(t *testing.T, want *golden.Tree, x *Export, b int, scale float32) {
	require.Equal(t, want.NodeVisits[b], x.NodeVisits)
	require.Equal(t, want.Parents[b], x.Parents)
	require.Equal(t, want.ActionFromParent[b], x.ActionFromParent)
	require.Equal(t, golden.Flat(want.ChildrenIndex[b]), used(x.ChildrenIndex, want.ChildrenIndex[b]))
	require.Equal(t, golden.Flat(want.ChildrenVisits[b]), used(x.ChildrenVisits, want.ChildrenIndex[b]))
	golden.Close(t, want.NodeValues[b], x.NodeValues, scale, "node_values")
	golden.Close(t, want.NodeRawValues[b], x.NodeRawValues, scale, "node_raw_values")
	golden.Close(t, golden.Flat(want.ChildrenRewards[b]), used(x.ChildrenRewards, want.ChildrenIndex[b]), scale, "children_rewards")
	golden.Close(t, golden.Flat(want.ChildrenDiscounts[b]), used(x.ChildrenDiscounts, want.ChildrenIndex[b]), 1, "children_discounts")
	golden.Close(t, golden.Flat(want.ChildrenValues[b]), used(x.ChildrenValues, want.ChildrenIndex[b]), scale, "children_values")
	golden.Close(t, golden.Flat(want.ChildrenPriorLogits[b]), used(x.ChildrenPriorLogits, want.ChildrenIndex[b]), scale,
		"children_prior_logits")
}

// used picks the entries that a golden tree has: its rows are as long as each node's actions, those of
// unused nodes may be empty.
func used[T any](x []T, rows [][]int32) []T {
	stride := len(x) / len(rows)
	var out []T
	for i, row := range rows {
		out = append(out, x[i*stride:i*stride+len(row)]...)
	}
	return out
}

// checkInvariants requires that nothing is in flight and that every count adds up.
func checkInvariants(t *testing.T, tr *Tree) {
	leaves, counts := tr.InFlight()
	require.Zero(t, leaves)
	require.Zero(t, counts)
	x := tr.Export()
	for i, visits := range x.NodeVisits {
		below := int32(0)
		for a := range tr.stride {
			at := i*tr.stride + a
			below += x.ChildrenVisits[at]
			if c := x.ChildrenIndex[at]; c >= 0 {
				require.Equal(t, x.NodeVisits[c], x.ChildrenVisits[at])
				require.Equal(t, int32(i), x.Parents[c])
			}
		}
		if below > 0 && !x.Terminal[i] {
			require.Equal(t, visits, below+1, "node %d", i)
		}
	}
}

type qtransformCase struct {
	Name                string    `json:"name"`
	NodeValue           float64   `json:"node_value"`
	NodeRawValue        float32   `json:"node_raw_value"`
	ChildrenPriorLogits []float32 `json:"children_prior_logits"`
	ChildrenVisits      []int32   `json:"children_visits"`
	ChildrenRewards     []float32 `json:"children_rewards"`
	ChildrenDiscounts   []float32 `json:"children_discounts"`
	ChildrenValues      []float32 `json:"children_values"`
	Expected            struct {
		MixedValue float32 `json:"mixed_value"`
		Outputs    []struct {
			QTransform golden.QTransform `json:"qtransform"`
			Result     []float32         `json:"result"`
		} `json:"outputs"`
	} `json:"expected"`
}

func TestGoldenQTransforms(t *testing.T) {
	for _, c := range golden.Load[qtransformCase](t, "qtransforms") {
		t.Run(c.Name, func(t *testing.T) {
			a := len(c.ChildrenVisits)
			priors := make([]float32, a)
			tr := &Tree{actions: a}
			load(priors, c.ChildrenPriorLogits, nil)
			_, _ = soften(priors)
			n := &node{mean: float32(c.NodeValue), visits: 1, raw: c.NodeRawValue}
			var edges []edge
			for i, v := range c.ChildrenVisits {
				if v > 0 {
					q := c.ChildrenRewards[i] + c.ChildrenDiscounts[i]*c.ChildrenValues[i]
					edges = append(edges, edge{q: q, prior: priors[i], visits: v})
				}
			}
			golden.Close(t, []float32{c.Expected.MixedValue}, []float32{mixedValue(n.raw, edges)}, 1, "mixed")
			for _, o := range c.Expected.Outputs {
				params, err := NewParams(withTransform(Default(MuZero), o.QTransform))
				require.NoError(t, err)
				tr.cfg = params
				f := tr.transform(n, edges)
				got, k := make([]float32, a), 0
				for i, v := range c.ChildrenVisits {
					got[i] = f.unvisited
					if v > 0 {
						got[i] = f.of(edges[k].q)
						k++
					}
				}
				scale := float32(0)
				for _, r := range o.Result {
					scale = max(scale, r, -r)
				}
				golden.Close(t, o.Result, got, max(scale, 1), o.QTransform.Name)
			}
		})
	}
}

func TestGoldenHalving(t *testing.T) {
	type halvingCase struct {
		Name        string `json:"name"`
		Considered  int    `json:"max_num_considered_actions"`
		Simulations int    `json:"num_simulations"`
		Expected    struct {
			Table    [][]int32 `json:"table"`
			Sequence []int32   `json:"sequence"`
		} `json:"expected"`
	}
	for _, c := range golden.Load[halvingCase](t, "seq_halving") {
		t.Run(c.Name, func(t *testing.T) {
			if c.Expected.Table == nil {
				got := appendHalving([]int32{}, c.Considered, c.Simulations)
				require.Equal(t, append([]int32{}, c.Expected.Sequence...), got)
			}
			for m, want := range c.Expected.Table {
				require.Equal(t, append([]int32{}, want...), appendHalving([]int32{}, m, c.Simulations), "row %d", m)
			}
		})
	}
}

func TestGoldenScoreConsidered(t *testing.T) {
	type scoreCase struct {
		Name       string    `json:"name"`
		Considered int32     `json:"considered_visit"`
		Gumbel     []float32 `json:"gumbel"`
		Logits     []float32 `json:"logits"`
		Q          []float32 `json:"normalized_qvalues"`
		Visits     []int32   `json:"visit_counts"`
		Expected   struct {
			Score []any `json:"score"`
		} `json:"expected"`
	}
	for _, c := range golden.Load[scoreCase](t, "score_considered") {
		t.Run(c.Name, func(t *testing.T) {
			params, err := NewParams(Default(Gumbel))
			require.NoError(t, err)
			tr := &Tree{}
			tr.Reset(params, len(c.Logits))
			tr.SetRoot(&RootInput{Logits: c.Logits, Gumbel: c.Gumbel})
			for a, want := range c.Expected.Score {
				if c.Visits[a] != c.Considered {
					require.Equal(t, "-Inf", want)
					continue
				}
				got := tr.considered(&edge{q: c.Q[a], visits: 1}, affine{scale: 1}, int32(a))
				require.InDelta(t, want, got, 1e-6+1e-5*math.Abs(want.(float64)))
			}
		})
	}
}
