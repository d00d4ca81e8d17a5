package search_test

import (
	"context"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// runSearch drives a search to its end, and returns how many states were evaluated.
func runSearch(t *testing.T, s *search.Search, ev evaluator.Evaluator) (evaluated int) {
	var out evaluator.Output
	for {
		batch, err := s.Select()
		require.NoError(t, err)
		if batch.N == 0 {
			return evaluated
		}
		evaluated += batch.N
		out = evaluator.Output{Logits: make([]float32, batch.N*batch.Spec.NumActions), Value: make([]float32, batch.N)}
		require.NoError(t, ev.Evaluate(context.Background(), batch, &out))
		require.NoError(t, s.Expand(out.Logits, out.Value))
	}
}

// subtree lists what is below a node as text-free numbers, in the order of actions.
func subtree(x *tree.Export, a int, node int32) []float32 {
	out := []float32{float32(x.NodeVisits[node]), x.NodeValues[node], x.NodeRawValues[node]}
	for at := int(node) * a; at < (int(node)+1)*a; at++ {
		out = append(out, float32(x.ChildrenVisits[at]), x.ChildrenRewards[at], x.ChildrenDiscounts[at], x.ChildrenValues[at])
		if c := x.ChildrenIndex[at]; c >= 0 {
			out = append(out, subtree(x, a, c)...)
		}
	}
	return out
}

// Advance keeps the subtree as it was; the search goes on with the right states; whatever was kept is
// not evaluated again, and the root ends with the same number of visits.
func TestAdvance(t *testing.T) {
	r := connectFour(t, hashed)
	for _, p := range r.policies() {
		for _, leaves := range []int{1, 3} {
			cfg := search.Default(p, r.env.Spec())
			cfg.NumSimulations, cfg.LeavesPerStep, cfg.KeepLogits = 60, leaves, true
			const rows = 6
			states := positions(r, rows)
			s, err := search.New(r.store, &search.Roots{States: states, Seeds: search.Seeds(3, rows)}, cfg, evaluator.Needs{Obs: true})
			require.NoError(t, err)
			shadow := r.env.NewArena(rows + 1)
			blobs, err := r.store.Dump(states)
			require.NoError(t, err)
			for i, b := range blobs {
				require.NoError(t, shadow.DecodeState(int32(i), b))
			}
			rnd := rng.New(uint64(leaves), 5)
			for range 8 {
				runSearch(t, s, hashed)
				actions := chooseMoves(t, s, shadow, rows, &rnd)
				before := make([]*tree.Export, rows)
				for row := range rows {
					before[row] = s.Tree(row).Export()
				}
				require.NoError(t, s.Advance(actions))
				for row, a := range actions {
					checkAdvanced(t, before[row], s.Tree(row), a)
				}
				evaluated := runSearch(t, s, hashed)
				require.LessOrEqual(t, evaluated, rows*61)
				for row := range rows {
					checkStates(t, r.env, shadow, int32(row), s.Tree(row).Export())
				}
			}
			s.Close()
			require.Zero(t, r.store.Stats().Reserved)
		}
	}
}

// chooseMoves picks an action a row, mostly the searched one, and plays it in the shadow states.
func chooseMoves(t *testing.T, s *search.Search, shadow envs.Arena, rows int, rnd *rng.Stream) []int32 {
	out := search.NewResult(rows, 7)
	require.NoError(t, s.Result(out))
	mask, done := make([]bool, 7), make([]envs.Outcome, 1)
	for row := range rows {
		slot := []int32{int32(row)}
		if rnd.IntN(3) == 0 {
			shadow.Mask(slot, mask)
			for a, ok := range mask {
				if ok {
					out.Action[row] = int32(a)
				}
			}
		}
		shadow.Step(slot, slot, out.Action[row:row+1], done)
	}
	return out.Action
}

func checkAdvanced(t *testing.T, before *tree.Export, tr *tree.Tree, action int32) {
	child := before.ChildrenIndex[action]
	if child < 0 || before.Terminal[child] {
		require.Zero(t, tr.Simulations())
		return
	}
	after := tr.Export()
	require.Equal(t, subtree(before, 7, child), subtree(after, 7, tree.Root))
	require.Equal(t, tree.NoParent, after.Parents[0])
}

// checkStates replays every node's path and compares its raw value with the evaluator's answer there.
func checkStates(t *testing.T, env *envs.Env, shadow envs.Arena, row int32, x *tree.Export) {
	a := env.NewArena(1)
	in := evaluator.Batch{N: 1, Spec: env.Spec(), Obs: envs.NewArrays(env.Spec().Obs, 1)}
	out := evaluator.Output{Logits: make([]float32, 7), Value: make([]float32, 1)}
	var done [1]envs.Outcome
	for i := range x.NodeVisits {
		if x.NodeVisits[i] == 0 || x.Terminal[i] {
			continue
		}
		var path []int32
		for n := int32(i); x.Parents[n] >= 0; n = x.Parents[n] {
			path = append([]int32{x.ActionFromParent[n]}, path...)
		}
		require.NoError(t, a.Copy([]int32{0}, shadow, []int32{row}))
		for _, action := range path {
			a.Step([]int32{0}, []int32{0}, []int32{action}, done[:])
		}
		a.Observe([]int32{0}, in.Obs, 0)
		require.NoError(t, hashed(context.Background(), &in, &out))
		require.Equal(t, out.Value[0], x.NodeRawValues[i], "node %d has another state than its path", i)
	}
}

func TestAdvanceErrors(t *testing.T) {
	r := connectFour(t, hashed)
	s, err := search.New(r.store, &search.Roots{States: r.start(2), Seeds: search.Seeds(1, 2)}, r.plain(tree.Gumbel, 8), evaluator.Needs{Obs: true})
	require.NoError(t, err)
	defer s.Close()
	runSearch(t, s, hashed)
	for _, actions := range [][]int32{{0}, {0, 7}, {-1, 0}} {
		require.ErrorIs(t, s.Advance(actions), search.ErrAction)
	}
	require.Equal(t, 8, s.Tree(0).Simulations())
	require.NoError(t, s.Advance([]int32{3, 3}))
}
