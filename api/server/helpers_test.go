package server_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	registerBrittle()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// start runs a server on a port of its own until the test ends, and returns its address.
func start(t testing.TB, cfg server.Config) (*server.Server, string) {
	s, err := server.New(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, <-served)
	})
	return s, l.Addr().String()
}

func dial(t testing.TB, target string, cfg client.Config) *client.Client {
	c, err := client.Dial(target, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pair is a server with a client.
func pair(t testing.TB, cfg server.Config) (*server.Server, *client.Client) {
	s, at := start(t, cfg)
	return s, dial(t, at, client.Config{NoRetry: true})
}

const c4 = "ConnectFour-v0"

func connectFour(t testing.TB) *envs.Env {
	env, err := envs.Make(c4, nil)
	require.NoError(t, err)
	return env
}

// games are n different positions by their moves.
func games(n int) []client.Game {
	out := make([]client.Game, n)
	for i := range out {
		out[i].Actions = []int32{int32(i % 7), int32(i / 7 % 7), int32(i / 49 % 7)}
	}
	return out
}

// local searches the same in this process.
func local(t testing.TB, env *envs.Env, positions []client.Game, ev evaluator.Evaluator, cfg search.Config,
	seed uint64) *search.Result {
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	n := len(positions)
	states, seeds := make([]int32, n), make([]uint64, n)
	for i, g := range positions {
		seeds[i] = g.Seed
	}
	require.NoError(t, store.Reset(nil, seeds, states))
	for i, g := range positions {
		for _, a := range g.Actions {
			out := statestore.Steps{Children: states[i : i+1]}
			require.NoError(t, store.Simulate([]int32{states[i]}, []int32{a}, &out))
		}
	}
	out := search.NewResult(n, env.Spec().NumActions)
	out.Proven = make([]bool, n)
	roots := &search.Roots{States: states, Seeds: search.Seeds(seed, n)}
	require.NoError(t, search.Run(t.Context(), store, nil, roots, ev, cfg, out))
	return out
}

// requireSame: the same answers to the last bit.
func requireSame(t testing.TB, want, got *search.Result) {
	t.Helper()
	require.Equal(t, want.Action, got.Action)
	require.Equal(t, want.Visits, got.Visits)
	require.Equal(t, want.Weights, got.Weights)
	require.Equal(t, want.QValues, got.QValues)
	require.Equal(t, want.Value, got.Value)
	require.Equal(t, want.Raw, got.Raw)
}

func config(env *envs.Env, policy tree.Policy, simulations int) search.Config {
	cfg := search.Default(policy, env.Spec())
	cfg.NumSimulations = simulations
	return cfg
}

// seen answers by what is seen: exact in any order and any batch, since all numbers are small multiples of 1/1024.
func seen(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	a := in.Spec.NumActions
	row := make([]float32, in.Obs[0].Size())
	for i := range in.N {
		in.Obs[0].Floats(i, row)
		sum := float32(0)
		for k, x := range row {
			sum += x * float32((k*37)%101-50) / 1024
		}
		out.Value[i] = max(-1, min(1, sum))
		for k := range a {
			out.Logits[i*a+k] = sum*float32(k%3) + float32(k)/16
		}
	}
	return nil
}

// attach serves an evaluator from this process, until the test ends or stop is called.
func attach(t testing.TB, c *client.Client, a client.Attach, ev evaluator.Evaluator) (stop func() error) {
	if a.MaxBatch == 0 {
		a.MaxBatch = 256
	}
	before := evaluators(t, c, a.Model)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.ServeEvaluator(ctx, a, ev) }()
	require.Eventually(t, func() bool { return evaluators(t, c, a.Model) == before+1 }, 5*time.Second, time.Millisecond)
	var result error
	ended := false
	stop = func() error {
		if !ended {
			was := evaluators(t, c, a.Model)
			cancel()
			ended, result = true, <-done
			require.Eventually(t, func() bool { return evaluators(t, c, a.Model) < was }, 5*time.Second, time.Millisecond)
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func evaluators(t testing.TB, c *client.Client, model string) int32 {
	models, err := c.Models(context.Background())
	require.NoError(t, err)
	for _, m := range models {
		if m.Name == model {
			return m.Evaluators
		}
	}
	return 0
}

func unixPath(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }
