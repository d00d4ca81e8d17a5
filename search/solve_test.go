package search_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// minimax returns the value of a state for its mover, by plain recursion with a table.
func minimax(a envs.Arena, slot int32, seen map[string]int) int {
	key := string(a.AppendState(nil, slot))
	if v, ok := seen[key]; ok {
		return v
	}
	n := a.Spec().NumActions
	mask, best := make([]bool, n), -2
	a.Mask([]int32{slot}, mask)
	var out [1]envs.Outcome
	for action, ok := range mask {
		if !ok {
			continue
		}
		child := slot + 1
		a.Step([]int32{slot}, []int32{child}, []int32{int32(action)}, out[:])
		v := int(out[0].Reward)
		if !out[0].Terminated {
			v = -minimax(a, child, seen)
		}
		best = max(best, v)
	}
	seen[key] = best
	return best
}

// Every position of tic-tac-toe is proven, by every policy, with the value that minimax gives.
func TestSolveTicTacToe(t *testing.T) {
	r := ticTacToe(t)
	a := r.env.NewArena(16)
	a.Reset([]int32{0}, nil, []uint64{0})
	values := map[string]int{}
	require.Zero(t, minimax(a, 0, values))
	var blobs [][]byte
	for _, key := range slices.Sorted(maps.Keys(values)) {
		blobs = append(blobs, []byte(key))
	}
	require.Len(t, blobs, 4520)
	states := make([]int32, len(blobs))
	require.NoError(t, r.store.Load(blobs, states))
	for _, p := range r.policies() {
		for _, leaves := range []int{1, 4} {
			// The empty board takes up to 34,000 simulations (UCT), every other position below 8,000.
			cfg := r.plain(p, 50_000)
			cfg.Solve, cfg.LeavesPerStep = true, leaves
			for i, s := range states {
				if testing.Short() && i%29 != 0 {
					continue
				}
				checkProven(t, r, cfg, s, values[string(blobs[i])])
			}
		}
	}
}

func checkProven(t *testing.T, r *rig, cfg search.Config, state int32, want int) {
	out := r.search(cfg, state)
	require.Equal(t, 1, out.Stats.Proven, "not proven after %d simulations", out.Stats.Simulations)
	text, _ := r.store.Text(state)
	require.Equal(t, float32(want), out.Value[0], "%s %s K=%d %+v", text, cfg.Policy, cfg.LeavesPerStep, out)
	best := make([]bool, r.env.Spec().NumActions)
	if r.env.Capabilities().Solves {
		require.NoError(t, r.store.BestActions(state, best))
		require.True(t, best[out.Action[0]])
		for action, w := range out.Weights {
			require.True(t, w == 0 || best[action])
		}
	}
}

// alphaBeta returns the value of a state for its mover if it lies between alpha and beta, else a bound of
// it on the right side. It remembers bounds by the state's bytes.
func alphaBeta(a envs.Arena, slot int32, alpha, beta int, seen map[string][2]int) int {
	key := string(a.AppendState(nil, slot))
	bounds, ok := seen[key]
	if !ok {
		bounds = [2]int{-1, 1}
	}
	if bounds[0] >= beta || bounds[0] == bounds[1] {
		return bounds[0]
	}
	if bounds[1] <= alpha {
		return bounds[1]
	}
	n := a.Spec().NumActions
	mask, best, low := make([]bool, n), -2, alpha
	a.Mask([]int32{slot}, mask)
	var out [1]envs.Outcome
	for action, ok := range mask {
		if !ok || best >= beta {
			continue
		}
		child := slot + 1
		a.Step([]int32{slot}, []int32{child}, []int32{int32(action)}, out[:])
		v := int(out[0].Reward)
		if !out[0].Terminated {
			v = -alphaBeta(a, child, -beta, -low, seen)
		}
		best, low = max(best, v), max(low, v)
	}
	if best < beta {
		bounds[1] = best
	}
	if best > alpha {
		bounds[0] = best
	}
	seen[key] = bounds
	return best
}

// Small boards of Connect Four have the value that alpha-beta gives.
func TestSolveConnectFour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, kw := range []envs.Keywords{
		{"rows": []byte("4"), "cols": []byte("4")},
		{"rows": []byte("4"), "cols": []byte("5")},
		{"rows": []byte("5"), "cols": []byte("4")},
		{"rows": []byte("4"), "cols": []byte("3"), "connect": []byte("3")},
		{"rows": []byte("3"), "cols": []byte("5"), "connect": []byte("3")},
	} {
		env, err := envs.Make("ConnectFour-v0", kw)
		require.NoError(t, err)
		a := env.NewArena(64)
		a.Reset([]int32{0}, nil, []uint64{0})
		want := alphaBeta(a, 0, -1, 1, map[string][2]int{})
		ev, err := evaluator.NewRollout(1, 1000)
		require.NoError(t, err)
		r := newRig(t, env, ev)
		cfg := r.plain(tree.AlphaZero, 4_000_000) // 4x4 takes 240 thousand, 4x5 3.1 million
		cfg.Solve = true
		checkProven(t, r, cfg, r.start(1)[0], want)
	}
}

func TestSolveIsForTwo(t *testing.T) {
	env, err := envs.Make("CartPole-v1", nil)
	require.NoError(t, err)
	r := newRig(t, env, evaluator.Uniform{})
	cfg := r.plain(tree.MuZero, 8)
	cfg.Solve = true
	_, err = search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, cfg, evaluator.Needs{})
	require.ErrorIs(t, err, search.ErrConfig)
}
