package gorgonia

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

func ticTacToe(t testing.TB) *envs.Env {
	env, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	return env
}

func newNet(t testing.TB, hidden ...int) *Net {
	cfg := DefaultConfig(ticTacToe(t))
	cfg.Hidden = hidden
	n, err := NewNet(cfg, 1)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n
}

// fill writes random samples: some actions illegal, the last row of weight 0, one without a policy.
func fill(s *Samples, rows, actions int, seed uint64) {
	r := rng.New(seed)
	for i := range s.X {
		s.X[i] = float32(r.IntN(2))
	}
	for i := range rows {
		total := float32(0)
		for a := range actions {
			at := i*actions + a
			s.Legal[at], s.Policy[at] = 1, float32(r.Float64())
			if a > 0 && r.IntN(3) == 0 {
				s.Legal[at], s.Policy[at] = 0, 0
			}
			total += s.Policy[at]
		}
		for a := range actions {
			s.Policy[i*actions+a] /= total
			if i == 1 {
				s.Policy[i*actions+a] = 0
			}
		}
		s.Value[i], s.Weight[i] = float32(2*r.Float64()-1), float32(1+r.IntN(2))
	}
	s.Weight[rows-1] = 0
}

// The gradient of the very graph that trains, against finite differences of the loss.
func TestGradients(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		net := newNet(t, 7, 5)
		net.cfg.Bounded = bounded
		tr, err := NewTrainer(net, TrainConfig{BatchSize: 6, ValueWeight: 0.7})
		require.NoError(t, err)
		fill(&tr.Samples, 6, net.cfg.Actions, 3)
		lossNow := func() float64 {
			l, err := tr.gradients()
			require.NoError(t, err)
			for i := range tr.w {
				g, err := tr.grad(i)
				require.NoError(t, err)
				clear(g)
			}
			return float64(l.Policy) + 0.7*float64(l.Value)
		}
		lossNow()
		_, err = tr.gradients()
		require.NoError(t, err)
		var grads [][]float32
		for i := range net.params {
			g, err := tr.grad(i)
			require.NoError(t, err)
			grads = append(grads, append([]float32(nil), g...))
			clear(g)
		}
		for i, p := range net.params {
			grad := grads[i]
			for j := 0; j < len(p.Data); j += 1 + len(p.Data)/15 {
				const h = 1e-3 // small, since relu has kinks
				old := p.Data[j]
				p.Data[j] = old + h
				up := lossNow()
				p.Data[j] = old - h
				down := lossNow()
				p.Data[j] = old
				require.InDelta(t, (up-down)/(2*h), grad[j], 1e-3+0.02*math.Abs(float64(grad[j])), "%s[%d]", p.Name, j)
			}
		}
		tr.Close()
	}
}

func TestOverfit(t *testing.T) {
	for name, cfg := range map[string]TrainConfig{
		"adam": {BatchSize: 16, LearningRate: 3e-3, L2: 1e-9},
		"sgd":  {BatchSize: 16, LearningRate: 0.05, Momentum: 0.9, L2: 1e-9},
	} {
		t.Run(name, func(t *testing.T) {
			net := newNet(t, 64, 64)
			tr, err := NewTrainer(net, cfg)
			require.NoError(t, err)
			defer tr.Close()
			fill(&tr.Samples, 16, 9, 5)
			entropy := float32(0)
			for i := range 16 {
				for _, p := range tr.Policy[9*i : 9*i+9] {
					if p > 0 {
						entropy -= tr.Weight[i] * p * float32(math.Log(float64(p))) / sum(tr.Weight)
					}
				}
			}
			var l Loss
			for range 1500 {
				l, err = tr.Step()
				require.NoError(t, err)
			}
			require.InDelta(t, entropy, l.Policy, 1e-3)
			require.Less(t, l.Value, float32(1e-3))
		})
	}
}

// A row's answer doesn't depend on the batch it is in, nor on who else evaluates.
func TestRowsAreIndependent(t *testing.T) {
	net := newNet(t, 32)
	const rows = 300
	obs := envs.NewArrays(ticTacToe(t).Spec().Obs, rows)
	r := rng.New(1)
	for i := range obs[0].Bool {
		obs[0].Bool[i] = r.IntN(2) == 0
	}
	logits, values := make([]float32, 9*rows), make([]float32, rows)
	require.NoError(t, net.Evaluate(context.Background(), obs, rows, logits, values))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := g; i < rows; i += 7 {
				one := envs.Slice(obs, i, i+1, nil)
				l, v := make([]float32, 9), make([]float32, 1)
				if err := net.Evaluate(context.Background(), one, 1, l, v); err != nil {
					t.Error(err)
				}
				for a := range l {
					if math.Abs(float64(l[a]-logits[9*i+a])) > 1e-5 || math.Abs(float64(v[0]-values[i])) > 1e-5 {
						t.Errorf("row %d differs", i)
					}
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, net.Evaluate(ctx, obs, rows, logits, values), context.Canceled)
}

func TestSaveAndLoad(t *testing.T) {
	net := newNet(t, 16, 8)
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, net.Save(dir))
	again, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, net.cfg, again.cfg)
	require.Equal(t, net.Params(), again.Params())
	_, err = again.Evaluator(ticTacToe(t))
	require.NoError(t, err)
	other, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	_, err = again.Evaluator(other)
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "made for TicTacToe-v0")

	path := filepath.Join(dir, WeightsFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, n := range []int{0, 7, 8, 100, len(whole) - 1} {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o644))
		_, err := Load(dir)
		require.ErrorIs(t, err, ErrModel, "cut after %d bytes", n)
	}
	_, err = Load(t.TempDir())
	require.ErrorIs(t, err, ErrModel)
}

// Training that is interrupted and goes on from its state ends where it would have.
func TestResume(t *testing.T) {
	run := func(stop int) []Param {
		net := newNet(t, 8)
		tr, err := NewTrainer(net, TrainConfig{BatchSize: 8})
		require.NoError(t, err)
		for i := range 20 {
			if i == stop {
				state, weights := tr.State(), net.Params()
				tr.Close()
				net = newNet(t, 8)
				require.NoError(t, net.SetParams(weights))
				tr, err = NewTrainer(net, TrainConfig{BatchSize: 8})
				require.NoError(t, err)
				require.NoError(t, tr.SetState(state))
			}
			fill(&tr.Samples, 8, 9, uint64(i))
			_, err := tr.Step()
			require.NoError(t, err)
		}
		tr.Close()
		return net.Params()
	}
	require.Equal(t, run(-1), run(11))
}

func FuzzDecodeParams(f *testing.F) {
	dir := f.TempDir()
	path := filepath.Join(dir, "x")
	require.NoError(f, SaveParams(path, []Param{{"a", []int{2, 1}, []float32{1, 2}}, {"b", []int{1}, []float32{3}}}))
	b, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		params, err := decodeParams(b)
		if err == nil {
			for _, p := range params {
				_ = p.Data
			}
		}
	})
}

func BenchmarkEvaluate(b *testing.B) {
	net := newNet(b, 128, 128)
	for _, rows := range []int{1, 8, 64, 256} {
		b.Run("mlp/B="+map[int]string{1: "1", 8: "8", 64: "64", 256: "256"}[rows], func(b *testing.B) {
			obs := envs.NewArrays(ticTacToe(b).Spec().Obs, rows)
			logits, values := make([]float32, 9*rows), make([]float32, rows)
			b.ReportAllocs()
			for b.Loop() {
				_ = net.Evaluate(context.Background(), obs, rows, logits, values)
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "positions/s")
		})
	}
}

func BenchmarkTrain(b *testing.B) {
	net := newNet(b, 128, 128)
	tr, err := NewTrainer(net, TrainConfig{})
	require.NoError(b, err)
	fill(&tr.Samples, 256, 9, 1)
	for b.Loop() {
		_, _ = tr.Step()
	}
	b.ReportMetric(float64(256*b.N)/b.Elapsed().Seconds(), "samples/s")
}

// at returns element (i, j) of a matrix that may be stored transposed.
func at(x []float32, ld, i, j int, transposed bool) float32 {
	if transposed {
		i, j = j, i
	}
	return x[i*ld+j]
}

// Every way to multiply gives the same numbers, with and without transposing.
func TestProducts(t *testing.T) {
	t.Logf("products by %s", BLAS())
	r := rng.New(1)
	random := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.Norm())
		}
		return out
	}
	for _, d := range [][3]int{{1, 1, 1}, {3, 5, 7}, {64, 33, 40}, {256, 128, 27}} {
		m, n, k := d[0], d[1], d[2]
		for _, ta := range []bool{false, true} {
			for _, tb := range []bool{false, true} {
				a, b, c := random(m*k), random(k*n), random(m*n)
				lda, ldb := k, n
				if ta {
					lda = m
				}
				if tb {
					ldb = k
				}
				want := make([]float32, m*n)
				for i := range m {
					for j := range n {
						s := float64(c[i*n+j])
						for x := range k {
							s += float64(at(a, lda, i, x, ta)) * float64(at(b, ldb, x, j, tb))
						}
						want[i*n+j] = float32(s)
					}
				}
				for _, f := range []product{gonumProduct, library().gemm} {
					got := append([]float32(nil), c...)
					f(ta, tb, m, n, k, a, lda, b, ldb, 1, got, n)
					require.InDeltaSlice(t, want, got, 1e-3)
				}
			}
		}
	}
}
