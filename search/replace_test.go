package search_test

import (
	"context"
	"testing"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// Rows that are replaced one by one, as they end, find what searches of their own find.
func TestReplace(t *testing.T) {
	r := connectFour(t, hashed)
	states, seeds := positions(r, 40), search.Seeds(1, 40)
	for _, p := range []tree.Policy{tree.Gumbel, tree.AlphaZero} {
		cfg := r.plain(p, 20)
		cfg.Solve = true
		budget := func(i int) int32 { return int32(5 + 5*(i%4)) }
		roots := func(which ...int) *search.Roots {
			out := &search.Roots{}
			for _, i := range which {
				out.States, out.Seeds = append(out.States, states[i]), append(out.Seeds, seeds[i])
				out.Simulations, out.Fast = append(out.Simulations, budget(i)), append(out.Fast, i%3 == 0)
			}
			return out
		}
		s, err := search.New(r.store, roots(0, 1, 2, 3, 4, 5, 6), cfg, evaluator.Needs{Obs: true})
		require.NoError(t, err)
		rows, next, found := []int{0, 1, 2, 3, 4, 5, 6}, 7, 0
		got := search.NewResult(40, 7)
		batches, simulations := 0, 0
		for found < 40 {
			more, err := s.Round(context.Background(), hashed)
			require.NoError(t, err)
			if more {
				batches++
			}
			for _, row := range s.Finished(nil) {
				if rows[row] < 0 {
					continue
				}
				require.NoError(t, s.RowResult(int(row), got, rows[row]))
				found++
				rows[row] = -1
				if next < 40 {
					rows[row] = next
					require.NoError(t, s.Replace([]int32{row}, roots(next)))
					next++
				}
			}
		}
		total := s.Stats()
		for i := range states {
			one := search.NewResult(1, 7)
			require.NoError(t, search.Run(context.Background(), r.store, nil, roots(i), hashed, cfg, one))
			require.Equal(t, one.Visits, got.Visits[7*i:7*i+7], "%s %d", p, i)
			require.Equal(t, one.Weights, got.Weights[7*i:7*i+7])
			require.Equal(t, one.Value[0], got.Value[i])
			require.Equal(t, one.Action[0], got.Action[i])
			simulations += one.Stats.Simulations
		}
		require.Equal(t, simulations, total.Simulations)
		require.Equal(t, batches, total.Batches)
		require.Greater(t, total.Fill(), 0.5)

		bad := roots(0)
		bad.Simulations = nil
		require.ErrorContains(t, s.Replace([]int32{0}, bad), "want the same kinds")
		bad = roots(0)
		bad.Invalid = make([]bool, 7)
		require.ErrorContains(t, s.Replace([]int32{0}, bad), "want none")
		require.ErrorContains(t, s.Replace([]int32{0, 1}, roots(0)), "want 2, one a row")
		bad = roots(0)
		bad.States[0] = 12345
		require.Error(t, s.Replace([]int32{0}, bad))
		s.Close()
		require.ErrorIs(t, s.Replace([]int32{0}, roots(0)), search.ErrClosed)
	}
	masked, err := search.New(r.store, &search.Roots{
		States: states[:1], Seeds: seeds[:1], Invalid: []bool{true, false, false, false, false, false, false},
	}, r.plain(tree.Gumbel, 4), evaluator.Needs{Obs: true})
	require.NoError(t, err)
	err = masked.Replace([]int32{0}, &search.Roots{States: states[1:2], Seeds: seeds[1:2]})
	require.ErrorContains(t, err, "hold for one position", "the mask was the first root's")
	masked.Close()
	require.Zero(t, r.store.Stats().Reserved)
}
