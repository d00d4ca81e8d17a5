package search_test

import (
	"context"
	"testing"
	"time"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

func (r *rig) run(cfg search.Config, roots *search.Roots) (*search.Result, error) {
	out := search.NewResult(len(roots.States), r.env.Spec().NumActions)
	return out, search.Run(context.Background(), r.store, nil, roots, r.ev, cfg, out)
}

// A row with a smaller budget has the result of a search with that budget.
func TestSimulationsARow(t *testing.T) {
	r := connectFour(t, hashed)
	states := positions(r, 4)
	for _, p := range r.policies() {
		roots := &search.Roots{States: states, Seeds: search.Seeds(1, 4), Simulations: []int32{5, 40, 1, 17}}
		out, err := r.run(r.plain(p, 40), roots)
		require.NoError(t, err)
		for i, n := range roots.Simulations {
			alone := r.search(r.plain(p, int(n)), states[i])
			require.Equal(t, alone.Visits, out.Visits[i*7:i*7+7])
			require.Equal(t, alone.Action[0], out.Action[i])
		}
		roots.Simulations[2] = 41
		_, err = r.run(r.plain(p, 40), roots)
		require.ErrorIs(t, err, search.ErrConfig)
		require.ErrorContains(t, err, "simulations of row 2 is 41; want 1 to num_simulations=40")
	}
}

// A fast row has neither noise nor forced playouts: the hooks of playout cap randomisation.
func TestFastRows(t *testing.T) {
	r := connectFour(t, hashed)
	h := r.start(1)[0]
	cfg := search.Default(tree.AlphaZero, r.env.Spec())
	cfg.NumSimulations, cfg.ForcedPlayouts, cfg.Temperature = 100, 2, 0
	plain := r.search(r.plain(tree.AlphaZero, 100), h)
	out, err := r.run(cfg, &search.Roots{States: []int32{h, h}, Seeds: []uint64{5, 5}, Fast: []bool{true, false}})
	require.NoError(t, err)
	require.Equal(t, plain.Visits, out.Visits[:7])
	require.NotEqual(t, plain.Visits, out.Visits[7:])
}

// A row ends at its deadline with what it has; others go on.
func TestDeadlines(t *testing.T) {
	r := connectFour(t, evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		time.Sleep(time.Millisecond)
		return hashed(ctx, in, out)
	}))
	now := time.Now()
	for _, p := range r.policies() {
		out, err := r.run(r.plain(p, 60), &search.Roots{
			States: r.start(3), Seeds: search.Seeds(1, 3),
			Deadlines: []time.Time{now.Add(-time.Second), time.Now().Add(20 * time.Millisecond), now.Add(time.Hour)},
		})
		require.NoError(t, err)
		sum := func(row int) (n int32) {
			for _, v := range out.Visits[row*7 : row*7+7] {
				n += v
			}
			return n
		}
		require.Zero(t, sum(0), "the root alone is evaluated")
		require.NotZero(t, out.Raw[0])
		require.Less(t, sum(1), int32(60))
		require.EqualValues(t, 60, sum(2))
		total := float32(0)
		for _, w := range out.Weights[:7] {
			total += w
		}
		require.InDelta(t, 1, total, 1e-5)
	}
}

// In little memory a search forgets and goes on; the answer is as good.
func TestMaxBytes(t *testing.T) {
	r := connectFour(t, evaluator.Uniform{})
	// X wins with 3 at once; O threatens nothing.
	h := r.play(0, 6, 1, 6, 2, 5)
	for _, p := range r.policies() {
		cfg := r.plain(p, 20_000)
		cfg.MaxBytes = 100_000
		before := r.store.Stats().Reserved
		out := r.search(cfg, h)
		require.Equal(t, int32(3), out.Action[0], p)
		require.Equal(t, 20_000, out.Stats.Simulations)
		open := r.search(cfg, r.play(3))
		require.Equal(t, 20_000, open.Stats.Simulations)
		require.Positive(t, open.Stats.Pruned, p)
		require.Equal(t, before, r.store.Stats().Reserved)
		cfg.MaxBytes, cfg.MaxNodes = 0, 5
		_, err := r.run(cfg, &search.Roots{States: []int32{h}, Seeds: []uint64{1}})
		require.ErrorContains(t, err, "max_nodes=5; want at least 11 for 7 actions")
		cfg.MaxBytes, cfg.MaxNodes = 100, 0
		_, err = r.run(cfg, &search.Roots{States: []int32{h}, Seeds: []uint64{1}})
		require.ErrorContains(t, err, "max_bytes=100; want at least")
	}
}

// After Advance a bounded tree goes on within its bound.
func TestAdvanceInLittleRoom(t *testing.T) {
	r := connectFour(t, hashed)
	for _, p := range r.policies() {
		cfg := r.plain(p, 300)
		cfg.MaxNodes, cfg.LeavesPerStep = 60, 3
		s, err := search.New(r.store, &search.Roots{States: r.start(2), Seeds: search.Seeds(1, 2)}, cfg, evaluator.Needs{Obs: true})
		require.NoError(t, err)
		for range 10 {
			runSearch(t, s, hashed)
			out := search.NewResult(2, 7)
			require.NoError(t, s.Result(out))
			require.NoError(t, s.Advance(out.Action))
		}
		s.Close()
	}
}
