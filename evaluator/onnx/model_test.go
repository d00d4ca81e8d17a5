//go:build cgo

package onnx_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/onnx"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// needLibrary skips a test where there is no ONNX Runtime, and finds the repository's .venv.
func needLibrary(t testing.TB) {
	if _, err := onnx.Library(); err != nil {
		t.Skip(err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("VIRTUAL_ENV") == "" {
		if dir, err := filepath.Abs("../../.venv"); err == nil {
			_ = os.Setenv("VIRTUAL_ENV", dir)
		}
	}
	os.Exit(m.Run())
}

func makeEnv(t testing.TB, id string) *envs.Env {
	env, err := envs.Make(id, nil)
	require.NoError(t, err)
	return env
}

// networks are networks of ours for an environment.
func networks(t testing.TB, env *envs.Env) map[string]*gorgonia.Net {
	out := map[string]*gorgonia.Net{}
	shapes := map[string]gorgonia.Config{"mlp": gorgonia.DefaultConfig(env)}
	if cfg, err := gorgonia.ResNetConfig(env, 2, 16); err == nil {
		shapes["resnet"] = cfg
	}
	for name, cfg := range shapes {
		net, err := gorgonia.NewNet(cfg, 3)
		require.NoError(t, err)
		t.Cleanup(net.Close)
		params, r := net.Params(), rng.New(5)
		for _, p := range params {
			for i := range p.Data {
				p.Data[i] += float32(0.05 * r.Norm())
			}
		}
		require.NoError(t, net.SetParams(params))
		out[name] = net
	}
	return out
}

func batchOf(env *envs.Env, n int, seed uint64) *evaluator.Batch {
	spec := env.Spec()
	b := &evaluator.Batch{N: n, Spec: spec, Obs: envs.NewArrays(spec.Obs, n), Legal: make([]bool, n*spec.NumActions)}
	r := rng.New(seed)
	for k := range b.Obs {
		a := &b.Obs[k]
		for i := range a.F32 {
			a.F32[i] = float32(r.Norm())
		}
		for i := range a.Bool {
			a.Bool[i] = r.IntN(2) == 0
		}
		for i := range a.I32 {
			a.I32[i] = int32(r.IntN(5))
		}
	}
	for i := range b.Legal {
		b.Legal[i] = r.IntN(3) > 0
	}
	return b
}

func evaluate(t testing.TB, ev evaluator.Evaluator, b *evaluator.Batch) evaluator.Output {
	out := evaluator.Output{Logits: make([]float32, b.N*b.Spec.NumActions), Value: make([]float32, b.N)}
	require.NoError(t, ev.Evaluate(context.Background(), b, &out))
	return out
}

// An exported network answers as the network itself.
func TestExport(t *testing.T) {
	needLibrary(t)
	for _, id := range []string{"ConnectFour-v0", "TicTacToe-v0", "Gomoku-v0", "CartPole-v1", "Maze-v0"} {
		env := makeEnv(t, id)
		for name, net := range networks(t, env) {
			t.Run(id+" "+name, func(t *testing.T) {
				data, err := net.ONNX(env)
				require.NoError(t, err)
				m, err := onnx.New(data, 1, env, onnx.Options{})
				require.NoError(t, err)
				defer m.Close()
				own, err := net.Evaluator(env)
				require.NoError(t, err)
				for _, n := range []int{1, 7, 100} {
					b := batchOf(env, n, uint64(n))
					want, got := evaluate(t, own, b), evaluate(t, m, b)
					require.InDeltaSlice(t, want.Logits, got.Logits, 1e-4)
					require.InDeltaSlice(t, want.Value, got.Value, 1e-4)
				}
			})
		}
	}
}

func BenchmarkEvaluate(b *testing.B) {
	needLibrary(b)
	env := makeEnv(b, "ConnectFour-v0")
	for _, size := range [][2]int{{3, 32}, {4, 64}} {
		cfg, err := gorgonia.ResNetConfig(env, size[0], size[1])
		require.NoError(b, err)
		net, err := gorgonia.NewNet(cfg, 1)
		require.NoError(b, err)
		data, err := net.ONNX(env)
		require.NoError(b, err)
		m, err := onnx.New(data, 1, env, onnx.Options{})
		require.NoError(b, err)
		for _, n := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("resnet%dx%d/B=%d", size[0], size[1], n), func(b *testing.B) {
				batch := batchOf(env, n, 1)
				out := evaluator.Output{Logits: make([]float32, n*7), Value: make([]float32, n)}
				b.ReportAllocs()
				for b.Loop() {
					_ = m.Evaluate(context.Background(), batch, &out)
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "positions/s")
			})
		}
		m.Close()
		net.Close()
	}
}
