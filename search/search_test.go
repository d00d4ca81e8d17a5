package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/race"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The global pool that package ants starts is not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func connectFour(t testing.TB, ev evaluator.Evaluator) *rig {
	env, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	return newRig(t, env, ev)
}

// hashed answers with numbers that depend on the observation alone.
var hashed = evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	size, a := in.Obs[0].Size(), in.Spec.NumActions
	for i := range in.N {
		h := uint64(14695981039346656037)
		for _, b := range in.Obs[0].Bool[i*size : (i+1)*size] {
			h *= 1099511628211
			if b {
				h ^= 0x9e3779b97f4a7c15
			}
		}
		for j := range a {
			h = h*6364136223846793005 + 1442695040888963407
			out.Logits[i*a+j] = float32(h>>40)/(1<<23) - 1
		}
		out.Value[i] = float32(h>>33&0xffff)/(1<<15) - 1
	}
	return nil
})

// positions returns different states, some near the end.
func positions(r *rig, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		var moves []int32
		for j := range i % 20 {
			moves = append(moves, int32(j*(i+3)%7))
		}
		out[i] = r.playLegal(moves)
	}
	return out
}

// playLegal plays moves, and stops where one is illegal or the game has ended.
func (r *rig) playLegal(moves []int32) int32 {
	for n := len(moves); ; n-- {
		if h, ok := r.tryPlay(moves[:n]); ok {
			return h
		}
	}
}

func (r *rig) tryPlay(moves []int32) (int32, bool) {
	a := r.env.NewArena(1)
	a.Reset([]int32{0}, nil, []uint64{0})
	var out [1]envs.Outcome
	for _, m := range moves {
		if a.Check([]int32{0}, []int32{m}) >= 0 {
			return 0, false
		}
		a.Step([]int32{0}, []int32{0}, []int32{m}, out[:])
		if out[0].Terminated {
			return 0, false
		}
	}
	h := make([]int32, 1)
	require.NoError(r.t, r.store.Load([][]byte{a.AppendState(nil, 0)}, h))
	return h[0], true
}

// Rows don't depend on the batch they are in, on its order, or on threads.
func TestRowsAreIndependent(t *testing.T) {
	r := connectFour(t, hashed)
	states := positions(r, 24)
	for _, p := range r.policies() {
		for _, leaves := range []int{1, 4} {
			t.Run(fmt.Sprint(p, leaves), func(t *testing.T) {
				cfg := search.Default(p, r.env.Spec())
				cfg.LeavesPerStep = leaves
				checkIndependent(t, r, cfg, states)
			})
		}
	}
}

func checkIndependent(t *testing.T, r *rig, cfg search.Config, states []int32) {
	n, a := len(states), r.env.Spec().NumActions
	seeds := search.Seeds(7, n)
	whole := search.NewResult(n, a)
	run := func(threads int, roots *search.Roots, out *search.Result) {
		if threads == 0 {
			require.NoError(t, search.Run(context.Background(), r.store, nil, roots, r.ev, cfg, out))
			return
		}
		w, err := pool.NewWorkers(threads)
		require.NoError(t, err)
		defer w.Close()
		require.NoError(t, search.Run(context.Background(), r.store, w, roots, r.ev, cfg, out))
	}
	run(0, &search.Roots{States: states, Seeds: seeds}, whole)
	for _, threads := range []int{1, 2, 7} {
		got := search.NewResult(n, a)
		run(threads, &search.Roots{States: states, Seeds: seeds}, got)
		got.Stats, whole.Stats = search.Stats{}, search.Stats{}
		require.Equal(t, whole, got, "%d threads", threads)
	}
	for i := range states {
		j := (i*7 + 3) % n // another order, one row at a time
		one := search.NewResult(1, a)
		run(0, &search.Roots{States: states[j : j+1], Seeds: seeds[j : j+1]}, one)
		require.Equal(t, whole.Visits[j*a:(j+1)*a], one.Visits)
		require.Equal(t, whole.Weights[j*a:(j+1)*a], one.Weights)
		require.Equal(t, whole.Action[j], one.Action[0])
	}
}

// A bad number fails the row it belongs to, by name, and no other.
func TestBadAnswers(t *testing.T) {
	r := connectFour(t, hashed)
	states := positions(r, 4)
	clean := r.search(r.plain(tree.Gumbel, 32), states...)
	for name, spoil := range map[string]func(out *evaluator.Output, i, a int){
		"logit of action 3 is NaN":  func(out *evaluator.Output, i, a int) { out.Logits[i*a+3] = float32(math.NaN()) },
		"logit of action 2 is +Inf": func(out *evaluator.Output, i, a int) { out.Logits[i*a+2] = float32(math.Inf(1)) },
		"value is NaN":              func(out *evaluator.Output, i, a int) { out.Value[i] = float32(math.NaN()) },
		"value is -Inf":             func(out *evaluator.Output, i, a int) { out.Value[i] = float32(math.Inf(-1)) },
	} {
		for _, at := range []int{1, 3, 33} { // the roots' batch, one amid the search, the last
			checkBadAnswer(t, r, states, clean, name, at, spoil)
		}
	}
}

func checkBadAnswer(
	t *testing.T, r *rig, states []int32, clean *search.Result, name string, at int,
	spoil func(out *evaluator.Output, i, a int),
) {
	calls := 0
	ev := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		err := hashed(ctx, in, out)
		if calls++; calls == at {
			spoil(out, 1, in.Spec.NumActions)
		}
		return err
	})
	out := search.NewResult(4, 7)
	roots := &search.Roots{States: states, Seeds: search.Seeds(1, 4)}
	err := search.Run(context.Background(), r.store, nil, roots, ev, r.plain(tree.Gumbel, 32), out)
	require.ErrorIs(t, err, search.ErrEvaluator)
	require.ErrorContains(t, err, "row 1: "+name)
	for _, row := range []int{0, 2, 3} {
		require.Equal(t, clean.Visits[7*row:7*row+7], out.Visits[7*row:7*row+7])
	}
	require.Zero(t, r.store.Stats().Reserved)
}

func TestEvaluatorErrors(t *testing.T) {
	r := connectFour(t, hashed)
	boom := errors.New("boom")
	roots := &search.Roots{States: r.start(2), Seeds: search.Seeds(1, 2)}
	out := search.NewResult(2, 7)
	fail := evaluator.Func(func(context.Context, *evaluator.Batch, *evaluator.Output) error { return boom })
	require.ErrorIs(t, search.Run(context.Background(), r.store, nil, roots, fail, r.plain(tree.MuZero, 4), out), boom)
	fall := evaluator.Func(func(context.Context, *evaluator.Batch, *evaluator.Output) error { panic("ouch") })
	require.ErrorContains(t, search.Run(context.Background(), r.store, nil, roots, fall, r.plain(tree.MuZero, 4), out), "panic: ouch")
	require.Zero(t, r.store.Stats().Reserved)
}

func TestCancel(t *testing.T) {
	r := connectFour(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	ev := evaluator.Func(func(c context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		if calls++; calls == 10 {
			cancel()
		}
		return hashed(c, in, out)
	})
	out := search.NewResult(1, 7)
	roots := &search.Roots{States: r.start(1), Seeds: []uint64{1}}
	err := search.Run(ctx, r.store, nil, roots, ev, r.plain(tree.AlphaZero, 1000), out)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 9, out.Stats.Simulations)
}

// A root that has ended isn't searched, and isn't evaluated.
func TestEndedRoot(t *testing.T) {
	r := ticTacToe(t)
	over := r.play(0, 3, 1, 4, 2)
	for _, p := range r.policies() {
		out := r.search(r.plain(p, 16), over, r.start(1)[0])
		require.Equal(t, make([]int32, 9), out.Visits[:9])
		require.Equal(t, make([]float32, 9), out.Weights[:9])
		require.Zero(t, out.Action[0])
		require.Zero(t, out.Value[0])
		sum := int32(0)
		for _, v := range out.Visits[9:] {
			sum += v
		}
		require.Equal(t, int32(16), sum)
	}
}

// A time limit cuts an episode off: the state is worth what the evaluator says, and isn't expanded.
func TestTruncation(t *testing.T) {
	env, err := envs.Make("CartPole-v1", envs.Keywords{"max_episode_steps": []byte("1")})
	require.NoError(t, err)
	r := newRig(t, env, evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		clear(out.Logits)
		for i := range in.N {
			out.Value[i] = 10
		}
		return nil
	}))
	out := r.search(r.plain(tree.MuZero, 8), r.start(1)[0])
	require.Equal(t, []float32{11, 11}, out.QValues)
	require.Equal(t, 1, out.Stats.MaxDepth)
}

func TestAskTellOrder(t *testing.T) {
	r := connectFour(t, hashed)
	s, err := search.New(r.store, &search.Roots{States: r.start(2), Seeds: search.Seeds(1, 2)},
		r.plain(tree.Gumbel, 8), evaluator.Needs{Obs: true})
	require.NoError(t, err)
	require.ErrorIs(t, s.Expand(nil, make([]float32, 2)), search.ErrOrder)
	batch, err := s.Select()
	require.NoError(t, err)
	require.Equal(t, 2, batch.N)
	_, err = s.Select()
	require.ErrorIs(t, err, search.ErrOrder)
	require.ErrorIs(t, s.Expand(nil, make([]float32, 1)), search.ErrEvaluator)
	require.NoError(t, s.Expand(nil, make([]float32, 2)))
	s.Close()
	s.Close()
	_, err = s.Select()
	require.ErrorIs(t, err, search.ErrClosed)
	require.Zero(t, r.store.Stats().Reserved)
}

func TestBadConfig(t *testing.T) {
	r := connectFour(t, hashed)
	for name, change := range map[string]func(c *search.Config){
		"num_simulations":            func(c *search.Config) { c.NumSimulations = -1 },
		"max_depth":                  func(c *search.Config) { c.MaxDepth = -1 },
		"leaves_per_step":            func(c *search.Config) { c.LeavesPerStep = 0 },
		"pb_c_init":                  func(c *search.Config) { c.PbCInit = float32(math.NaN()) },
		"pb_c_base":                  func(c *search.Config) { c.PbCBase = 0 },
		"dirichlet_fraction":         func(c *search.Config) { c.DirichletFraction = 1.5 },
		"dirichlet_alpha":            func(c *search.Config) { c.DirichletAlpha = 0 },
		"temperature":                func(c *search.Config) { c.Temperature = -1 },
		"gumbel_scale":               func(c *search.Config) { c.GumbelScale = float32(math.Inf(1)) },
		"discount":                   func(c *search.Config) { c.Discount = 2 },
		"qtransform":                 func(c *search.Config) { c.QTransform = "by_magic" },
		"policy":                     func(c *search.Config) { c.Policy = "minimax" },
		"max_num_considered_actions": func(c *search.Config) { c.MaxNumConsidered = 0 },
	} {
		cfg := search.Default(tree.Gumbel, r.env.Spec())
		change(&cfg)
		_, err := search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, cfg, evaluator.Needs{})
		require.ErrorIs(t, err, search.ErrConfig)
		require.ErrorContains(t, err, name+"=")
	}
	_, err := search.New(r.store, &search.Roots{States: r.start(2), Seeds: []uint64{1}},
		search.Default(tree.Gumbel, r.env.Spec()), evaluator.Needs{})
	require.ErrorContains(t, err, "seeds has 1 elements; want 2")
}

// A simulation allocates nothing once the memory is there.
func TestNoAllocationPerSimulation(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	r := connectFour(t, evaluator.Uniform{})
	states := positions(r, 16)
	out := search.NewResult(16, 7)
	for _, p := range r.policies() {
		cfg := search.Default(p, r.env.Spec())
		run := func(n int) float64 {
			cfg.NumSimulations = n
			roots := &search.Roots{States: states, Seeds: search.Seeds(1, 16)}
			return testing.AllocsPerRun(10, func() {
				_ = search.Run(context.Background(), r.store, nil, roots, r.ev, cfg, out)
			})
		}
		run(800) // memory of the trees
		more := run(800) - run(100)
		require.Less(t, more/(700*16), 0.002, "%s", p)
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, p := range []tree.Policy{tree.AlphaZero, tree.MuZero, tree.Gumbel, tree.UCT} {
		for _, n := range []int{64, 800} {
			b.Run(fmt.Sprintf("ConnectFour/%s/B=64/sims=%d", p, n), func(b *testing.B) {
				r := connectFour(b, evaluator.Uniform{})
				cfg := search.Default(p, r.env.Spec())
				cfg.NumSimulations = n
				states := r.start(64)
				out := search.NewResult(64, 7)
				roots := &search.Roots{States: states, Seeds: search.Seeds(1, 64)}
				b.ReportAllocs()
				for b.Loop() {
					_ = search.Run(context.Background(), r.store, nil, roots, r.ev, cfg, out)
				}
				b.ReportMetric(float64(64*n*b.N)/b.Elapsed().Seconds()/1e6, "Msims/s")
			})
		}
	}
}

// BenchmarkTable is the search over a random table, whose evaluator answers at once, with many actions.
func BenchmarkTable(b *testing.B) {
	for _, actions := range []int{7, 82, 362} {
		const states = 512
		rnd := rng.New(1)
		next, reward := make([][]int, states), make([][]float32, states)
		discount, logits := make([][]float32, states), make([][]float32, states)
		value := make([]float32, states)
		for s := range states {
			next[s], reward[s] = make([]int, actions), make([]float32, actions)
			discount[s], logits[s] = make([]float32, actions), make([]float32, actions)
			value[s] = 2*float32(rnd.Float64()) - 1
			for a := range actions {
				next[s][a], discount[s][a], logits[s][a] = rnd.IntN(states), -1, float32(rnd.Norm())
			}
		}
		r := tableRig(b, tables{
			"next_state": next, "reward": reward, "discount": discount, "prior_logits": logits, "value": value,
		})
		roots := r.start(64)
		for _, p := range []tree.Policy{tree.MuZero, tree.Gumbel} {
			b.Run(fmt.Sprintf("%s/B=64/A=%d/sims=64", p, actions), func(b *testing.B) {
				cfg := search.Default(p, r.env.Spec())
				cfg.NumSimulations = 64
				out := search.NewResult(64, actions)
				in := &search.Roots{States: roots, Seeds: search.Seeds(1, 64)}
				for b.Loop() {
					_ = search.Run(context.Background(), r.store, nil, in, r.ev, cfg, out)
				}
				b.ReportMetric(float64(64*64*b.N)/b.Elapsed().Seconds()/1e6, "Msims/s")
			})
		}
	}
}

// Rows whose leaves need no evaluation go on at once, so that batches are full while all rows search; the answers
// are those of each row alone, and the batches fewer than the simulations.
func TestBatchesAreFull(t *testing.T) {
	r := connectFour(t, hashed)
	states := make([]int32, 64)
	for i := range states { // games of 22 moves, as far as they go
		moves, rnd := make([]int32, 22), rng.New(uint64(i))
		for j := range moves {
			moves[j] = int32(rnd.IntN(7))
		}
		states[i] = r.playLegal(moves)
	}
	cfg := r.plain(tree.Gumbel, 64)
	var err error
	cfg.Cache, err = evaluator.NewCache(1<<14, 7)
	require.NoError(t, err)
	sizes := []int{}
	counting := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		sizes = append(sizes, in.N)
		return hashed(ctx, in, out)
	})
	whole := search.NewResult(64, 7)
	roots := &search.Roots{States: states, Seeds: search.Seeds(1, 64)}
	require.NoError(t, search.Run(context.Background(), r.store, nil, roots, counting, cfg, whole))
	require.Less(t, whole.Stats.Evaluations, whole.Stats.Simulations*4/5, "there is something to go on from")
	for i, n := range sizes[:15] {
		require.Greater(t, n, 55, "batch %d of %v", i, sizes)
	}
	cfg.Cache = nil
	for i := range states {
		one := search.NewResult(1, 7)
		roots := &search.Roots{States: states[i : i+1], Seeds: roots.Seeds[i : i+1]}
		require.NoError(t, search.Run(context.Background(), r.store, nil, roots, hashed, cfg, one))
		require.Equal(t, whole.Visits[7*i:7*i+7], one.Visits)
		require.Equal(t, whole.Value[i], one.Value[0])
	}
}
