package search_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// repeats is a game whose positions differ in more than the board: how often it was repeated, and whose
// turn it is. Environment i starts as state i of a list.
type repeats struct{ steps *atomic.Int64 }

type repeatsState struct {
	Board       [3]uint8
	Repetitions uint8
	Mover       uint8
	Clock       int32 // not part of the position
}

func (repeats) Spec() envs.Spec {
	return envs.Spec{
		ID: "Repeats-v0", Version: 1, NumActions: 2, NumPlayers: 2,
		Obs: []envs.ArraySpec{{Name: "x", DType: envs.Float32, Shape: []int{5}, Low: []float64{0}, High: []float64{255}}},
	}
}
func (r repeats) Reset(s *repeatsState, seed uint64) { r.Start(s, 0, seed) }

func (repeats) Start(s *repeatsState, env int, _ uint64) {
	*s = repeatsState{Board: [3]uint8{1, 2, 3}, Repetitions: uint8(env & 1), Mover: uint8(env >> 1), Clock: int32(env)}
}

func (r repeats) Step(s *repeatsState, action int32) envs.Outcome {
	if r.steps != nil {
		r.steps.Add(1)
	}
	s.Board[s.Clock%3] += uint8(action) + 1
	s.Mover = 1 - s.Mover
	s.Clock++
	return envs.Outcome{}
}

func (repeats) Observe(s *repeatsState, row envs.Row) {
	x := row.Float32(0)
	for i, b := range s.Board {
		x[i] = float32(b)
	}
	x[3], x[4] = float32(s.Repetitions), float32(s.Mover)
}

func (repeats) ToPlay(s *repeatsState) int32 { return int32(s.Mover) }

func (repeats) Hash(s *repeatsState) uint64 {
	b := s.Board
	return envs.HashKey(uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(s.Repetitions)<<24|uint64(s.Mover)<<32, uint64(s.Clock%3))
}

// B17: an evaluation cache must know the history, the mover and the model apart.
func TestB17CacheKey(t *testing.T) {
	env, err := envs.Define(repeats{})
	require.NoError(t, err)
	asked := 0
	r := newRig(t, env, evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		asked += in.N
		clear(out.Logits)
		for i := range in.N {
			x := in.Obs[0].F32[i*5:]
			out.Value[i] = map[float32]float32{0: 0.2, 1: -0.7}[x[3]] + x[4]/10
		}
		return nil
	}))
	cache, err := evaluator.NewCache(1<<16, 2)
	require.NoError(t, err)
	cfg := r.plain(tree.AlphaZero, 0)
	cfg.Cache = cache
	states := r.start(4)
	for _, order := range [][]int{{0, 1}, {1, 0}, {0}, {2}, {3}, {2}} {
		for _, i := range order {
			out := r.search(cfg, states[i])
			want := []float32{0.2, -0.7, 0.3, -0.6}[i]
			require.InDelta(t, want, out.Raw[0], 1e-6, "state %d", i)
		}
	}
	require.Equal(t, 4, asked, "once for each repetition count and mover")
	cache.Forget()
	r.search(cfg, states[0], states[1], states[0])
	require.Equal(t, 6, asked, "a new model: again, once for each")
}

// A search with a cache has the result of one without, and asks for less.
func TestCacheChangesNothing(t *testing.T) {
	r := connectFour(t, hashed)
	states := positions(r, 24)
	for _, p := range r.policies() {
		for _, leaves := range []int{1, 5} {
			cfg := r.plain(p, 120)
			cfg.LeavesPerStep = leaves
			without := r.search(cfg, states...)
			require.Zero(t, without.Stats.CacheHits)
			cache, err := evaluator.NewCache(1<<18, 7)
			require.NoError(t, err)
			cfg.Cache = cache
			first := r.search(cfg, states...)
			again := r.search(cfg, states...)
			require.Equal(t, without.Visits, first.Visits)
			require.Equal(t, without.QValues, first.QValues)
			require.Equal(t, without.Value, again.Value)
			require.Equal(t, without.Action, again.Action)
			require.Equal(t, without.Stats.Evaluations, first.Stats.Evaluations+first.Stats.CacheHits)
			require.Positive(t, first.Stats.CacheHits, "positions are met on several ways")
			require.Zero(t, again.Stats.Evaluations)
			require.Positive(t, first.Stats.Fill())
		}
	}
}

// Equal states of one batch are evaluated once.
func TestEqualStatesAreAskedOnce(t *testing.T) {
	r := connectFour(t, nil)
	most := 0
	r.ev = evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		most = max(most, in.N)
		return hashed(ctx, in, out)
	})
	cfg := r.plain(tree.MuZero, 30)
	var err error
	cfg.Cache, err = evaluator.NewCache(1<<12, 7)
	require.NoError(t, err)
	h := r.start(1)[0]
	out := r.search(cfg, h, h, h, h)
	require.Equal(t, 1, most)
	require.Equal(t, out.Visits[:7], out.Visits[21:])
}

func TestCacheErrors(t *testing.T) {
	ev, err := evaluator.NewRollout(1, 100)
	require.NoError(t, err)
	r := connectFour(t, ev)
	cfg := r.plain(tree.UCT, 4)
	cfg.Cache, err = evaluator.NewCache(10, 7)
	require.NoError(t, err)
	roots := &search.Roots{States: r.start(1), Seeds: []uint64{1}}
	err = search.Run(context.Background(), r.store, nil, roots, ev, cfg, search.NewResult(1, 7))
	require.ErrorIs(t, err, search.ErrConfig)
	cfg.Cache, err = evaluator.NewCache(10, 8)
	require.NoError(t, err)
	err = search.Run(context.Background(), r.store, nil, roots, hashed, cfg, search.NewResult(1, 7))
	require.ErrorContains(t, err, "a cache for 8 actions; want 7")
}

// A cache that knows some of the roots, and some of the leaves, changes no result, whatever it knows.
func TestCacheThatKnowsSome(t *testing.T) {
	r := connectFour(t, hashed)
	states := positions(r, 20)
	for _, leaves := range []int{1, 3} {
		cfg := r.plain(tree.Gumbel, 24)
		cfg.Solve, cfg.LeavesPerStep = true, leaves
		search1 := func(cache *evaluator.Cache, states []int32, seed uint64) *search.Result {
			cfg.Cache = cache
			out := search.NewResult(len(states), 7)
			roots := &search.Roots{States: states, Seeds: search.Seeds(seed, len(states))}
			require.NoError(t, search.Run(context.Background(), r.store, nil, roots, hashed, cfg, out))
			out.Stats = search.Stats{}
			return out
		}
		want := search1(nil, states, 1)
		for known := range len(states) {
			cache, err := evaluator.NewCache(1<<12, 7)
			require.NoError(t, err)
			search1(cache, states[known/2:known], 2)
			require.Equal(t, want, search1(cache, states, 1), "the cache knows roots %d to %d", known/2, known)
		}
	}
}
