package selfplay_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/selfplay"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The global pool that package ants starts is not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func ticTacToe(t testing.TB) (*envs.Env, *statestore.Store) {
	env, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return env, store
}

// B02 (C), B04: the value to learn is the result from the mover's view; a draw is 0 everywhere.
func TestB02B04Returns(t *testing.T) {
	env, _ := ticTacToe(t)
	for _, c := range []struct {
		moves []int32
		want  []float32
	}{
		{[]int32{0, 3, 1, 4, 2}, []float32{1, -1, 1, -1, 1}},
		{[]int32{0, 3, 1, 4, 8, 5}, []float32{-1, 1, -1, 1, -1, 1}},
		{[]int32{0, 1, 2, 4, 3, 5, 7, 6, 8}, make([]float32, 9)},
	} {
		a := env.NewArena(1)
		a.Reset([]int32{0}, nil, []uint64{0})
		var rewards []float32
		var turns []int32
		var out [1]envs.Outcome
		for _, m := range c.moves {
			var turn [1]int32
			a.ToPlay([]int32{0}, turn[:])
			a.Step([]int32{0}, []int32{0}, []int32{m}, out[:])
			rewards, turns = append(rewards, out[0].Reward), append(turns, turn[0])
		}
		require.True(t, out[0].Terminated)
		got := make([]float32, len(rewards))
		selfplay.Returns(rewards, make([]float32, len(rewards)), turns, 1, 1, got)
		require.Equal(t, c.want, got)
	}
}

// B24: the sign follows the mover, and the discount the steps.
func TestReturnsFollowTheMover(t *testing.T) {
	for _, c := range []struct {
		rewards  []float32
		turns    []int32
		discount float32
		want     []float32
	}{
		{[]float32{0, 0, 0, 1}, []int32{0, 1, 0, 1}, 0.9, []float32{-.729, .81, -.9, 1}},
		{[]float32{0, 0, 0, 1}, []int32{0, 0, 1, 1}, 1, []float32{-1, -1, 1, 1}},
		{[]float32{1, 1, 1}, []int32{0, 0, 0}, 0.5, []float32{1.75, 1.5, 1}},
	} {
		got := make([]float32, len(c.rewards))
		selfplay.Returns(c.rewards, make([]float32, len(got)), c.turns, c.discount, 1, got)
		require.InDeltaSlice(t, c.want, got, 1e-6)
	}
	// With lambda the searches' values on the way count: 0.5 of the next one, and 0.5 of what is learned there.
	got := make([]float32, 3)
	selfplay.Returns([]float32{0, 0, 1}, []float32{9, 0.2, 0.6}, []int32{0, 1, 0}, 1, 0.5, got)
	require.InDeltaSlice(t, []float32{0.5*-0.2 + 0.5*0.8, -(0.5*0.6 + 0.5*1), 1}, got, 1e-6)
}

// B20: draws count half, and nothing is divided by 0.
func TestB20Elo(t *testing.T) {
	for _, c := range []struct {
		w, d, l int
		rate    float64
		elo     float64
	}{
		{0, 20, 0, .5, 0}, {10, 5, 5, .625, 88.74}, {11, 0, 9, .55, 34.86}, {2, 17, 1, .525, 17.39},
		{20, 0, 0, 1, math.Inf(1)}, {0, 0, 20, 0, math.Inf(-1)},
	} {
		s := selfplay.Score{Wins: c.w, Draws: c.d, Losses: c.l}
		require.InDelta(t, c.rate, s.Rate(), 1e-9)
		got, low, high, err := s.Elo()
		require.NoError(t, err)
		if math.IsInf(c.elo, 0) {
			require.Equal(t, c.elo, got)
		} else {
			require.InDelta(t, c.elo, got, 0.01)
			turned := selfplay.Score{Wins: c.l, Draws: c.d, Losses: c.w}
			back, _, _, err := turned.Elo()
			require.NoError(t, err)
			require.InDelta(t, -got, back, 1e-9)
		}
		require.False(t, math.IsNaN(low) || math.IsNaN(high))
		require.NotContains(t, s.String(), "NaN")
	}
	_, _, _, err := (&selfplay.Score{}).Elo()
	require.ErrorIs(t, err, selfplay.ErrNoGames)
	one := selfplay.Score{Wins: 40, Pairs: make([]float64, 20)}
	for i := range one.Pairs {
		one.Pairs[i] = 1
	}
	low, high := one.Interval()
	require.InDelta(t, 0.85, low, 1e-9)
	require.Equal(t, 1.0, high)
}

func TestExhaustive(t *testing.T) {
	_, store := ticTacToe(t)
	l, err := selfplay.Exhaustive(context.Background(), store, selfplay.Perfect{})
	require.NoError(t, err)
	require.Zero(t, l.Lost)
	require.Greater(t, l.Won+l.Drawn, 400)
	first := firstLegal{}
	l, err = selfplay.Exhaustive(context.Background(), store, first)
	require.NoError(t, err)
	require.Greater(t, l.Lost, 50, "a fool loses lines")
	require.Zero(t, store.Stats().Live)
}

// firstLegal plays the first legal action.
type firstLegal struct{}

func (firstLegal) Name() string { return "first" }
func (firstLegal) Choose(_ context.Context, s *statestore.Store, states []int32, _ []uint64, out []int32) error {
	a := s.Env().Spec().NumActions
	mask := make([]bool, a*len(states))
	if err := s.Read(states, statestore.View{Mask: mask}); err != nil {
		return err
	}
	for i := range states {
		for mask[i*a+int(out[i])] == false {
			out[i]++
		}
	}
	return nil
}

func TestArena(t *testing.T) {
	_, store := ticTacToe(t)
	ctx := context.Background()
	cfg := selfplay.MatchConfig{Games: 51, OpeningPlies: 3, Seed: 4}
	s, err := selfplay.Arena(ctx, store, selfplay.Random{}, selfplay.Perfect{}, cfg)
	require.NoError(t, err)
	require.Equal(t, 52, s.Games())
	require.Len(t, s.Pairs, 26)
	require.Greater(t, s.Losses, s.Wins+20)
	back, err := selfplay.Arena(ctx, store, selfplay.Perfect{}, selfplay.Random{}, cfg)
	require.NoError(t, err)
	require.Greater(t, back.Wins, back.Losses+20)
	again, err := selfplay.Arena(ctx, store, selfplay.Random{}, selfplay.Perfect{}, cfg)
	require.NoError(t, err)
	require.Equal(t, s, again, "the same seed gives the same match")
	still, err := selfplay.Arena(ctx, store, firstLegal{}, firstLegal{}, selfplay.MatchConfig{Games: 20})
	require.NoError(t, err)
	require.Equal(t, 1, still.Distinct, "without openings the games are all one")
	require.InDelta(t, 0.5, still.Rate(), 1e-9)
	require.Zero(t, store.Stats().Live)
}

// UCT finds what its rollouts can tell: it hardly loses to a random player.
func TestUCT(t *testing.T) {
	env, store := ticTacToe(t)
	uct, free, err := selfplay.ParsePlayer("uct:200", selfplay.PlayerOptions{Env: env})
	require.NoError(t, err)
	defer free()
	s, err := selfplay.Arena(context.Background(), store, uct, selfplay.Random{}, selfplay.MatchConfig{Games: 40, Seed: 1})
	require.NoError(t, err)
	require.Greater(t, s.Rate(), 0.9)
}

func TestParsePlayer(t *testing.T) {
	env, _ := ticTacToe(t)
	for text, want := range map[string]string{
		"uct:0": "want uct:N", "uct:x": "want uct:N", "nowhere": "known: random, perfect", "nowhere@0": "want MODEL@N",
		"policy:nowhere": "nowhere",
	} {
		_, _, err := selfplay.ParsePlayer(text, selfplay.PlayerOptions{Env: env, Simulations: 8})
		require.ErrorIs(t, err, selfplay.ErrPlayer, text)
		require.ErrorContains(t, err, want)
	}
	four, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	_, _, err = selfplay.ParsePlayer("perfect", selfplay.PlayerOptions{Env: four})
	require.ErrorContains(t, err, "no solver")
}

// Episodes hold what was searched: policies over legal actions, results from the mover's view.
func TestGames(t *testing.T) {
	env, store := ticTacToe(t)
	cfg := selfplay.GamesConfig{
		Search: search.Default(tree.Gumbel, env.Spec()), Parallel: 7, Lambda: 1, OpeningFraction: 0.5, OpeningPlies: 3, Seed: 3,
	}
	play := func(parallel int) []*selfplay.Episode {
		cfg.Parallel = parallel
		g, err := selfplay.NewGames(store, nil, cfg)
		require.NoError(t, err)
		e, err := g.Play(context.Background(), evaluator.Uniform{}, 0, 30)
		require.NoError(t, err)
		require.Equal(t, int64(30), g.Counters.Games.Load())
		return e
	}
	episodes := play(7)
	require.Len(t, episodes, 30)
	short := 0
	for _, e := range episodes {
		for i := range e.Len() {
			sum := float32(0)
			for a, p := range e.Policy[9*i : 9*i+9] {
				require.True(t, p == 0 || e.Legal[9*i+a])
				sum += p
			}
			require.InDelta(t, 1, sum, 1e-5)
		}
		for i := 1; i < e.Len(); i++ {
			require.Equal(t, -e.Value[i-1], e.Value[i])
		}
		if e.Len() < 5 {
			short++
		}
	}
	require.Positive(t, short, "no game began with random moves")
	require.Zero(t, store.Stats().Live)
	require.ElementsMatch(t, episodes, play(3), "a game depends on who plays beside it")
}

func tinyConfig(env *envs.Env) selfplay.Config {
	c := selfplay.DefaultConfig(env)
	c.Threads, c.Minutes, c.Games, c.Simulations = 2, 0, 60, 4
	c.Parallel, c.GamesPerIteration, c.Hidden, c.BatchSize = 10, 10, []int{16}, 32
	c.EvalEvery, c.EvalGames, c.EvalSimulations = 3, 4, 4
	return c
}

func weights(t *testing.T, dir string) []gorgonia.Param {
	net, err := gorgonia.Load(filepath.Join(dir, selfplay.ModelDir))
	require.NoError(t, err)
	return net.Params()
}

// A run that is stopped between two iterations and resumed ends with the very weights of one that
// was not.
func TestResumeIsExact(t *testing.T) {
	env, _ := ticTacToe(t)
	whole := filepath.Join(t.TempDir(), "whole")
	run(t, whole, tinyConfig(env))
	parts := filepath.Join(t.TempDir(), "parts")
	stopped := stopAfter(t, parts, env, tinyConfig(env), 3)
	require.Equal(t, 30, stopped.Games)
	resumed, err := selfplay.Resume(parts, nil, nil)
	require.NoError(t, err)
	require.NoError(t, resumed.Train(context.Background()))
	resumed.Close()
	require.Equal(t, weights(t, whole), weights(t, parts))
}

func run(t *testing.T, dir string, c selfplay.Config) {
	env, err := envs.Make(c.Env, nil)
	require.NoError(t, err)
	var last selfplay.Progress
	r, err := selfplay.NewRun(dir, env, c, func(p selfplay.Progress) { last = p })
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, r.Train(context.Background()))
	require.Equal(t, c.Games, last.Games)
	require.NotNil(t, last.Score)
}

// stopAfter cancels a run when an iteration was reported, and returns its last progress.
func stopAfter(t *testing.T, dir string, env *envs.Env, c selfplay.Config, iteration int) selfplay.Progress {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last selfplay.Progress
	r, err := selfplay.NewRun(dir, env, c, func(p selfplay.Progress) {
		if last = p; p.Iteration == iteration {
			cancel()
		}
	})
	require.NoError(t, err)
	defer r.Close()
	require.ErrorIs(t, r.Train(ctx), context.Canceled)
	return last
}

func TestCheckpointErrors(t *testing.T) {
	env, _ := ticTacToe(t)
	dir := filepath.Join(t.TempDir(), "run")
	c := tinyConfig(env)
	c.Games = 10
	c.EvalEvery = 1
	r, err := selfplay.NewRun(dir, env, c, nil)
	require.NoError(t, err)
	require.NoError(t, r.Train(context.Background()))
	r.Close()
	_, err = selfplay.NewRun(dir, env, c, nil)
	require.ErrorIs(t, err, selfplay.ErrConfig)
	require.ErrorContains(t, err, "holds a run already")
	_, err = selfplay.Resume(t.TempDir(), nil, nil)
	require.ErrorIs(t, err, selfplay.ErrCheckpoint)
	name, err := os.ReadFile(filepath.Join(dir, "latest"))
	require.NoError(t, err)
	checkpoint := filepath.Join(dir, strings.TrimSpace(string(name)))
	for _, f := range []string{"run.json", "replay.bin", "trainer.safetensors", "model/model.safetensors", "model/config.json"} {
		path := filepath.Join(checkpoint, f)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, whole[:len(whole)/2], 0o644))
		_, err = selfplay.Resume(dir, nil, nil)
		require.ErrorIs(t, err, selfplay.ErrCheckpoint, f)
		require.NoError(t, os.WriteFile(path, whole, 0o644))
	}
	r, err = selfplay.Resume(dir, func(c *selfplay.Config) { c.Games = 20 }, nil)
	require.NoError(t, err)
	require.NoError(t, r.Train(context.Background()))
	r.Close()
}

func TestBadConfig(t *testing.T) {
	env, _ := ticTacToe(t)
	for name, change := range map[string]func(*selfplay.Config){
		"games":               func(c *selfplay.Config) { c.Games, c.Minutes = 0, 0 },
		"policy":              func(c *selfplay.Config) { c.Policy = tree.UCT },
		"games_per_iteration": func(c *selfplay.Config) { c.GamesPerIteration = 0 },
		"window":              func(c *selfplay.Config) { c.Window = 0 },
		"reuse":               func(c *selfplay.Config) { c.Reuse = 0 },
		"parallel":            func(c *selfplay.Config) { c.Parallel = 0 },
		"opening_fraction":    func(c *selfplay.Config) { c.OpeningFraction = 2 },
		"hidden":              func(c *selfplay.Config) { c.Hidden = nil },
		"learning_rate":       func(c *selfplay.Config) { c.LearningRate = -1 },
	} {
		c := tinyConfig(env)
		change(&c)
		_, err := selfplay.NewRun(t.TempDir(), env, c, nil)
		require.ErrorContains(t, err, name)
	}
}

// Playout cap randomisation: few moves are searched whole, and only those are learnt from, with the values
// of the whole game.
func TestPlayoutCap(t *testing.T) {
	env, store := ticTacToe(t)
	cfg := selfplay.GamesConfig{Search: search.Default(tree.Gumbel, env.Spec()), Parallel: 8, Lambda: 1, Seed: 3}
	play := func() (rows int, simulations int64) {
		g, err := selfplay.NewGames(store, nil, cfg)
		require.NoError(t, err)
		episodes, err := g.Play(context.Background(), evaluator.Uniform{}, 0, 200)
		require.NoError(t, err)
		for _, e := range episodes {
			rows += e.Len()
			require.Len(t, e.Policy, 9*e.Len())
			for _, v := range e.Value {
				require.Contains(t, []float32{-1, 0, 1}, v)
			}
		}
		require.Zero(t, store.Stats().Live)
		return rows, g.Counters.Simulations.Load()
	}
	all, whole := play()
	cfg.FastSimulations, cfg.FullShare = 4, 0.25
	some, capped := play()
	require.InDelta(t, 0.25, float64(some)/float64(all), 0.06)
	require.Less(t, float64(capped), 0.5*float64(whole))
	for _, bad := range []float64{0, 1.5} {
		cfg.FullShare = bad
		_, err := selfplay.NewGames(store, nil, cfg)
		require.ErrorContains(t, err, "full_share")
	}
	cfg.FastSimulations = cfg.Search.NumSimulations + 1
	_, err := selfplay.NewGames(store, nil, cfg)
	require.ErrorContains(t, err, "fast_simulations 33; want 0 to simulations=32")
}

// Games with dice differ: each pair of a match has luck of its own.
func TestArenaDice(t *testing.T) {
	env, err := envs.Make("Pig-v0", envs.Keywords{"target": []byte("20")})
	require.NoError(t, err)
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	score, err := selfplay.Arena(context.Background(), store, firstLegal{}, firstLegal{}, selfplay.MatchConfig{Games: 40, Seed: 1})
	require.NoError(t, err)
	require.Greater(t, score.Distinct, 10)
}

// Games that threads play at the same time, with one cache, are those that one thread plays without; and a game
// doesn't depend on how many are played beside it.
func TestGamesOnThreads(t *testing.T) {
	env, store := ticTacToe(t)
	w, err := pool.NewWorkers(3)
	require.NoError(t, err)
	defer w.Close()
	// Answers to the last bit, whatever the batch: what a network gives depends on it a little.
	ev := evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		for i := range in.N {
			key := in.Obs[0].HashRow(i, 0)
			out.Value[i] = float32(key%1000)/1000 - 0.5
			for a := range 9 {
				out.Logits[9*i+a] = float32(key>>(5*a)%32) / 16
			}
		}
		return nil
	})
	cfg := selfplay.GamesConfig{
		Search: search.Default(tree.Gumbel, env.Spec()), Parallel: 12, Lambda: 0.8, Seed: 3, ValueMix: 0.5,
		TemperaturePlies: 3, OpeningFraction: 0.5, OpeningPlies: 4, FastSimulations: 4, FullShare: 0.5,
	}
	cfg.Search.NumSimulations, cfg.Search.Solve = 12, true
	alone, err := selfplay.NewGames(store, nil, cfg)
	require.NoError(t, err)
	want, err := alone.Play(context.Background(), ev, 5, 40)
	require.NoError(t, err)
	require.Len(t, want, 40)
	for range 5 {
		cfg.Parallel++
		cfg.Search.Cache, err = evaluator.NewCache(1<<12, 9)
		require.NoError(t, err)
		g, err := selfplay.NewGames(store, w, cfg)
		require.NoError(t, err)
		got, err := g.Play(context.Background(), ev, 5, 40)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, int64(40), g.Counters.Games.Load())
	}
	require.Zero(t, store.Stats().Live)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = alone.Play(ctx, ev, 0, 10)
	require.ErrorIs(t, err, context.Canceled)
	broken := evaluator.Func(func(context.Context, *evaluator.Batch, *evaluator.Output) error { panic("ouch") })
	g, err := selfplay.NewGames(store, w, cfg)
	require.NoError(t, err)
	_, err = g.Play(context.Background(), broken, 0, 10)
	require.ErrorContains(t, err, "ouch")
	require.Zero(t, store.Stats().Live)
	require.Zero(t, store.Stats().Reserved)
}

// The curve has a line an iteration, each once, whatever was in the folder before: the lines of a run that was killed
// before its first checkpoint, or half a line.
func TestCurve(t *testing.T) {
	env, _ := ticTacToe(t)
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, selfplay.CurveFile)
	require.NoError(t, os.WriteFile(path, []byte("iteration,games\n1,2,3\n7,"), 0o644))
	stopAfter(t, dir, env, tinyConfig(env), 3)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(data, "4,40,1,1,1,1,1,1,1\n3,3"...), 0o644)) // after the checkpoint
	resumed, err := selfplay.Resume(dir, nil, nil)
	require.NoError(t, err)
	require.NoError(t, resumed.Train(context.Background()))
	resumed.Close()
	points, err := selfplay.ReadCurve(dir)
	require.NoError(t, err)
	require.Len(t, points, 6)
	for i, p := range points {
		require.Equal(t, i+1, p.Iteration)
		require.Equal(t, 10*(i+1), p.Games)
	}
	_, err = selfplay.ReadCurve(t.TempDir())
	require.ErrorIs(t, err, selfplay.ErrCurve)
}
