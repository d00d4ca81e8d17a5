package search_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/golden"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

// rig is a store of one environment with an evaluator.
type rig struct {
	t     testing.TB
	env   *envs.Env
	store *statestore.Store
	ev    evaluator.Evaluator
}

func newRig(t testing.TB, env *envs.Env, ev evaluator.Evaluator) *rig {
	t.Helper()
	store, err := statestore.New(env, statestore.Config{MaxStates: 1 << 23}, nil)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return &rig{t, env, store, ev}
}

// tableRig is a rig of a Table-v0 with its own evaluator.
func tableRig(t testing.TB, tables any) *rig {
	t.Helper()
	raw, err := json.Marshal(tables)
	require.NoError(t, err)
	env, err := envs.Make("Table-v0", envs.Keywords{"table": raw})
	require.NoError(t, err)
	ev, err := evaluator.NewTable(env)
	require.NoError(t, err)
	return newRig(t, env, ev)
}

// start returns n first states.
func (r *rig) start(n int) []int32 {
	r.t.Helper()
	out := make([]int32, n)
	require.NoError(r.t, r.store.Reset(nil, make([]uint64, n), out))
	return out
}

// play applies moves to a first state and returns the last outcome's handle.
func (r *rig) play(moves ...int32) int32 {
	r.t.Helper()
	h := r.start(1)
	for _, m := range moves {
		out := statestore.Steps{Children: make([]int32, 1)}
		require.NoError(r.t, r.store.Simulate(h, []int32{m}, &out))
		require.NoError(r.t, r.store.Release(h))
		h = out.Children
	}
	return h[0]
}

// search searches states without noise.
func (r *rig) search(cfg search.Config, states ...int32) *search.Result {
	r.t.Helper()
	out := search.NewResult(len(states), r.env.Spec().NumActions)
	roots := &search.Roots{States: states, Seeds: search.Seeds(1, len(states))}
	require.NoError(r.t, search.Run(context.Background(), r.store, nil, roots, r.ev, cfg, out))
	return out
}

// policies are those that search the rig's environment.
func (r *rig) policies() (out []tree.Policy) {
	for _, p := range tree.Policies {
		if p != tree.Stochastic || r.env.Spec().NumOutcomes > 0 {
			out = append(out, p)
		}
	}
	return out
}

// plain returns a policy's defaults for an environment, without noise.
func (r *rig) plain(p tree.Policy, simulations int) search.Config {
	c := search.Default(p, r.env.Spec())
	c.NumSimulations, c.DirichletFraction, c.Temperature, c.GumbelScale = simulations, 0, 0, 0
	return c
}

func goldenConfig(r *rig, p tree.Policy, g *golden.Search) search.Config {
	c := r.plain(p, g.Config.NumSimulations)
	if g.Config.MaxDepth != nil {
		c.MaxDepth = max(1, *g.Config.MaxDepth)
	}
	q := g.Config.QTransform
	c.QTransform = tree.QTransform(q.Name)
	switch c.QTransform {
	case tree.ByMinMax:
		c.MinValue, c.MaxValue = q.MinValue, q.MaxValue
	case tree.CompletedByMixValue:
		c.ValueScale, c.MaxvisitInit, c.Epsilon = q.ValueScale, q.MaxvisitInit, q.Epsilon
		c.RescaleValues, c.UseMixedValue = q.RescaleValues, q.UseMixedValue
	default:
		c.Epsilon = q.Epsilon
	}
	if p == tree.Gumbel {
		c.MaxNumConsidered, c.GumbelScale = g.Config.MaxNumConsidered, g.Config.GumbelScale
		return c
	}
	c.PbCInit, c.PbCBase, c.Temperature = g.Config.PbCInit, g.Config.PbCBase, g.Config.Temperature
	c.DirichletFraction = g.Config.DirichletFrac
	return c
}

func flatOrNil(rows [][]float32) []float32 {
	if rows == nil {
		return nil
	}
	return golden.Flat(rows)
}

// The golden searches through the whole house: Table-v0, store, search, evaluator "table".
func TestGoldenSearches(t *testing.T) {
	for _, f := range []struct {
		file   string
		policy tree.Policy
	}{{"muzero_search", tree.MuZero}, {"gumbel_search", tree.Gumbel}, {"stochastic_search", tree.Stochastic}} {
		for _, g := range golden.Load[golden.Search](t, f.file) {
			t.Run(f.file+"/"+g.Name, func(t *testing.T) { checkGolden(t, f.policy, &g) })
		}
	}
}

func checkGolden(t *testing.T, p tree.Policy, g *golden.Search) {
	m := &g.Model
	table := map[string]any{
		"next_state": m.NextState, "reward": m.Reward, "discount": m.Discount,
		"prior_logits": m.PriorLogits, "value": m.Value, "root": g.RootState,
	}
	if m.NumChance > 0 {
		table["afterstate"], table["chance_logits"], table["afterstate_value"] = m.Afterstate, m.ChanceLogits, m.AfterstateValue
	}
	r := tableRig(t, table)
	n := len(g.RootState)
	roots := &search.Roots{States: r.start(n), Seeds: search.Seeds(0, n), Noise: search.Noise{
		Dirichlet: flatOrNil(g.Noise.Dirichlet), RootGumbel: flatOrNil(g.Noise.RootGumbel),
		ActionGumbel: flatOrNil(g.Noise.ActionGumbel),
	}}
	for b := range g.Invalid {
		roots.Invalid = append(roots.Invalid, g.InvalidRow(b)...)
	}
	out := search.NewResult(n, m.NumActions)
	cfg := goldenConfig(r, p, g)
	require.NoError(t, search.Run(context.Background(), r.store, nil, roots, r.ev, cfg, out))
	want := &g.Expected
	require.Equal(t, golden.Flat(want.Summary.VisitCounts), out.Visits)
	require.Equal(t, want.Action, out.Action)
	golden.Close(t, golden.Flat(want.ActionWeights), out.Weights, 1, "action_weights")
	golden.Close(t, golden.Flat(want.Summary.QValues), out.QValues, g.Scale(), "qvalues")
	golden.Close(t, want.Summary.Value, out.Value, g.Scale(), "value")
	require.Equal(t, n, r.store.Stats().States)
	require.Zero(t, r.store.Stats().Reserved)
}
