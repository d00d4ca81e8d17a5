package search_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/stretchr/testify/require"
)

// Two groups in turn give the results of one, with one evaluation at a time.
func TestPipeline(t *testing.T) {
	var running atomic.Int32
	r := connectFour(t, evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		if running.Add(1) > 1 {
			t.Error("two evaluations at a time")
		}
		defer running.Add(-1)
		return hashed(ctx, in, out)
	}))
	states := append(positions(r, 9), r.play(0, 1, 0, 1, 0, 1, 0)) // the last has ended
	for _, p := range r.policies() {
		cfg := r.plain(p, 50)
		for _, rows := range [][]int32{states, {states[9], states[0]}, {states[0], states[9]}, {states[9], states[9]}} {
			cfg.Pipeline = false
			one := r.search(cfg, rows...)
			cfg.Pipeline = true
			two := r.search(cfg, rows...)
			require.Equal(t, one.Visits, two.Visits)
			require.Equal(t, one.Value, two.Value)
			require.Equal(t, one.Stats.Evaluations, two.Stats.Evaluations)
		}
	}
}

// The simulator is stepped while the evaluator is busy.
func TestPipelineOverlaps(t *testing.T) {
	var steps atomic.Int64
	env, err := envs.Define(repeats{&steps})
	require.NoError(t, err)
	calls, received, overlapped := 0, -16, 0 // the roots aren't stepped to
	r := newRig(t, env, evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		calls++
		received += in.N
		for range 1000 { // until the other group has been stepped to leaves of its own
			if steps.Load() > int64(received) {
				overlapped++
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		clear(out.Logits)
		clear(out.Value)
		return nil
	}))
	cfg := r.plain("alphazero", 20)
	cfg.Pipeline = true
	r.search(cfg, r.start(16)...)
	require.Equal(t, 42, calls)
	require.GreaterOrEqual(t, overlapped, 38) // all but the first two and the last two
}

// An error, a panic, or the end of the context ends both groups, and nothing is left running (TestMain).
func TestPipelineErrors(t *testing.T) {
	calls := 0
	var fail func() error
	r := connectFour(t, evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		if calls++; calls == 5 {
			if err := fail(); err != nil {
				return err
			}
		}
		return hashed(ctx, in, out)
	}))
	workers, err := pool.NewWorkers(2)
	require.NoError(t, err)
	defer workers.Close()
	states := positions(r, 8)
	cfg := r.plain("gumbel", 40)
	cfg.Pipeline = true
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(context.Background())
	for _, f := range []func() error{
		func() error { return broken }, func() error { panic("broken") }, func() error { cancel(); return nil },
	} {
		calls, fail = 0, f
		roots := &search.Roots{States: states, Seeds: search.Seeds(1, 8)}
		require.Error(t, search.Run(ctx, r.store, nil, roots, r.ev, cfg, search.NewResult(8, 7)))
		require.Zero(t, r.store.Stats().Reserved)
	}
}
