package gorgonia

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/evaluatortest"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// TestMain finds the OpenBLAS of the repository's .venv, if there is one.
func TestMain(m *testing.M) {
	evaluatortest.UseVenv("../../.venv")
	os.Exit(m.Run())
}

// notShort skips what is long and has no goroutines, where the race detector is at work.
func notShort(t *testing.T) {
	if testing.Short() {
		t.Skip("no goroutines here")
	}
}

func ticTacToe(t testing.TB) *envs.Env {
	env, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	return env
}

func newNet(t testing.TB, hidden ...int) *Net {
	cfg := DefaultConfig(ticTacToe(t))
	cfg.Hidden = hidden
	return make1(t, cfg)
}

func make1(t testing.TB, cfg Config) *Net {
	n, err := NewNet(cfg, 1)
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n
}

func connectFour(t testing.TB, rows, cols int) *envs.Env {
	kw := envs.Keywords{"rows": fmt.Append(nil, rows), "cols": fmt.Append(nil, cols)}
	env, err := envs.Make("ConnectFour-v0", kw)
	require.NoError(t, err)
	return env
}

// newResNet has random numbers in all weights, those that are 0 at first too.
func newResNet(t testing.TB, env *envs.Env, blocks, channels int) *Net {
	cfg, err := ResNetConfig(env, blocks, channels)
	require.NoError(t, err)
	n := make1(t, cfg)
	r := rng.New(9)
	for _, p := range n.params {
		for i := range p.Data {
			p.Data[i] += float32(0.05 * r.Norm())
		}
	}
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
	notShort(t)
	small := connectFour(t, 4, 5)
	for name, net := range map[string]*Net{
		"mlp":      newNet(t, 7, 5),
		"resnet 0": newResNet(t, small, 0, 3),
		"resnet 2": newResNet(t, small, 2, 5),
	} {
		for _, bounded := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " bounded=", bounded), func(t *testing.T) {
				net.cfg.Bounded = bounded
				checkGradients(t, net)
			})
		}
	}
}

func checkGradients(t *testing.T, net *Net) {
	const rows = partRows + 6 // two parts
	tr, err := NewTrainer(net, TrainConfig{BatchSize: rows, ValueWeight: 0.7})
	require.NoError(t, err)
	defer tr.Close()
	fill(&tr.Samples, rows, net.cfg.Actions, 3)
	lossNow := func() (float64, [][]float32) {
		l, err := tr.gradients()
		require.NoError(t, err)
		var grads [][]float32
		for _, g := range tr.grads {
			grads = append(grads, slices.Clone(g))
		}
		return float64(l.Policy) + 0.7*float64(l.Value), grads
	}
	middle, _ := lossNow()
	_, grads := lossNow()
	for i, p := range net.params {
		for j := 0; j < len(p.Data); j += 1 + len(p.Data)/15 {
			const h = 1e-3
			old := p.Data[j]
			p.Data[j] = old + h
			up, _ := lossNow()
			p.Data[j] = old - h
			down, _ := lossNow()
			p.Data[j] = old
			// The slopes on both sides; where relu has a kink on one, the gradient is that of the other.
			left, right, g := (middle-down)/h, (up-middle)/h, float64(grads[i][j])
			slack := 1e-3 + 0.02*math.Abs(g)
			require.GreaterOrEqual(t, g, min(left, right)-slack, "%s[%d]", p.Name, j)
			require.LessOrEqual(t, g, max(left, right)+slack, "%s[%d]", p.Name, j)
		}
	}
}

// A convolution as its definition says, cell by cell.
func TestConvolution(t *testing.T) {
	notShort(t)
	r := rng.New(4)
	random := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.Norm())
		}
		return out
	}
	for _, d := range []struct{ rows, cols, size, in, out, batch int }{
		{1, 1, 3, 1, 1, 1}, {2, 3, 3, 2, 4, 3}, {6, 7, 3, 32, 32, 17}, {6, 7, 1, 5, 3, 4}, {1, 9, 5, 2, 2, 2}, {3, 2, 5, 3, 1, 2},
	} {
		for _, skip := range []bool{false, true} {
			b := board{d.rows, d.cols}
			c := newConv(b, d.size, d.in, d.out, true, skip, false)
			in := [][]float32{random(d.batch * b.cells() * d.in), random(d.size * d.size * d.in * d.out), random(d.out)}
			if skip {
				in = append(in, random(d.batch*b.cells()*d.out))
			}
			got := make([]float32, d.batch*b.cells()*d.out)
			c.forward(got, nil, in, nil)
			at, half := 0, d.size/2
			for i := range d.batch {
				for row := range d.rows {
					for col := range d.cols {
						for o := range d.out {
							want := float64(in[2][o])
							if skip {
								want += float64(in[3][at])
							}
							for k := range d.size * d.size {
								y, x := row+k/d.size-half, col+k%d.size-half
								if y < 0 || y >= d.rows || x < 0 || x >= d.cols {
									continue
								}
								for ch := range d.in {
									want += float64(in[0][((i*d.rows+y)*d.cols+x)*d.in+ch]) * float64(in[1][(k*d.in+ch)*d.out+o])
								}
							}
							require.InDelta(t, max(want, 0), got[at], 1e-3)
							at++
						}
					}
				}
			}
		}
	}
}

// What is no number doesn't disappear in a layer.
func TestNaNStays(t *testing.T) {
	net := newResNet(t, connectFour(t, 6, 7), 1, 4)
	obs := envs.NewArrays([]envs.ArraySpec{{Name: "board", DType: envs.Float32, Shape: []int{6, 7, 2}}}, 1)
	logits, values := make([]float32, 7), make([]float32, 1)
	require.NoError(t, net.Evaluate(context.Background(), obs, 1, logits, values))
	require.False(t, math.IsNaN(float64(values[0])))
	obs[0].F32[20] = float32(math.NaN())
	require.NoError(t, net.Evaluate(context.Background(), obs, 1, logits, values))
	require.True(t, math.IsNaN(float64(values[0])))
}

func TestOverfit(t *testing.T) {
	notShort(t)
	adam := TrainConfig{BatchSize: 16, LearningRate: 3e-3, L2: 1e-9}
	resnet, err := ResNetConfig(connectFour(t, 4, 5), 2, 16)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		net *Net
		cfg TrainConfig
	}{
		"adam":   {newNet(t, 64, 64), adam},
		"sgd":    {newNet(t, 64, 64), TrainConfig{BatchSize: 16, LearningRate: 0.05, Momentum: 0.9, L2: 1e-9}},
		"resnet": {make1(t, resnet), adam},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := NewTrainer(c.net, c.cfg)
			require.NoError(t, err)
			defer tr.Close()
			a := c.net.cfg.Actions
			fill(&tr.Samples, 16, a, 5)
			entropy := float32(0)
			for i := range 16 {
				for _, p := range tr.Policy[a*i : a*i+a] {
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

func TestBattery(t *testing.T) {
	for name, net := range map[string]*Net{"mlp": newNet(t, 32), "resnet": newResNet(t, connectFour(t, 6, 7), 2, 8)} {
		env := ticTacToe(t)
		if name == "resnet" {
			env = connectFour(t, 6, 7)
		}
		ev, err := net.Evaluator(env)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) { evaluatortest.Battery(t, env, ev, 130, net.Close) })
	}
}

// The mean of the weights counts those n steps ago decay^n times, and the gradient is cut to the length allowed.
func TestAverageAndClip(t *testing.T) {
	net := newNet(t, 8)
	tr, err := NewTrainer(net, TrainConfig{BatchSize: 8, Average: 0.9, Momentum: 1e-9, Clip: 0.01, L2: 1e-12, LearningRate: 1})
	require.NoError(t, err)
	defer tr.Close()
	require.Equal(t, net.Params(), tr.Average(), "before the first step")
	fill(&tr.Samples, 8, 9, 1)
	var want, total float64
	for range 30 {
		before := net.Params()
		l, err := tr.Step()
		require.NoError(t, err)
		require.Greater(t, l.Gradient, float32(0.01))
		length := 0.0
		for i, p := range net.Params() {
			for j, v := range p.Data {
				length += math.Pow(float64(v-before[i].Data[j]), 2)
			}
		}
		require.InDelta(t, 0.01, math.Sqrt(length), 1e-4)
		want, total = 0.9*want+float64(net.params[0].Data[3]), 0.9*total+1
	}
	require.InDelta(t, want/total, tr.Average()[0].Data[3], 1e-5)
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

// Threads share a step and change nothing.
func TestThreads(t *testing.T) {
	run := func(threads int) []Param {
		net := newResNet(t, connectFour(t, 4, 5), 1, 4)
		tr, err := NewTrainer(net, TrainConfig{BatchSize: 3*partRows + 5, Threads: threads})
		require.NoError(t, err)
		defer tr.Close()
		for i := range 3 {
			fill(&tr.Samples, len(tr.Value), 5, uint64(i))
			_, err := tr.Step()
			require.NoError(t, err)
		}
		return net.Params()
	}
	one := run(1)
	require.Equal(t, one, run(2))
	require.Equal(t, one, run(7))
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
	env := connectFour(b, 6, 7)
	for name, net := range map[string]*Net{
		"mlp": newNet(b, 128, 128), "resnet3x32": newResNet(b, env, 3, 32), "resnet4x64": newResNet(b, env, 4, 64),
	} {
		for _, rows := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("%s/B=%d", name, rows), func(b *testing.B) {
				spec := env.Spec()
				if name == "mlp" {
					spec = ticTacToe(b).Spec()
				}
				obs := envs.NewArrays(spec.Obs, rows)
				logits, values := make([]float32, spec.NumActions*rows), make([]float32, rows)
				b.ReportAllocs()
				for b.Loop() {
					_ = net.Evaluate(context.Background(), obs, rows, logits, values)
				}
				b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "positions/s")
			})
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	env := connectFour(b, 6, 7)
	for name, net := range map[string]*Net{
		"mlp": newNet(b, 128, 128), "resnet3x32": newResNet(b, env, 3, 32), "resnet4x64": newResNet(b, env, 4, 64),
	} {
		b.Run(name, func(b *testing.B) {
			tr, err := NewTrainer(net, TrainConfig{})
			require.NoError(b, err)
			defer tr.Close()
			fill(&tr.Samples, 256, net.cfg.Actions, 1)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = tr.Step()
			}
			b.ReportMetric(float64(256*b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

// BenchmarkShare compares the operations a second of whole networks, forward and with their gradients, with those
// of a plain product in the same run: what DESIGN's "share of SGEMM's rate" is.
func BenchmarkShare(b *testing.B) {
	env := connectFour(b, 6, 7)
	const n, rows = 512, 256
	x, y, z := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	product := func() float64 { // GFLOP/s, the best of some
		best := 0.0
		for range 10 {
			began := time.Now()
			gemm(false, false, n, n, n, x, n, y, n, 0, z, n)
			best = max(best, 2*n*n*n/time.Since(began).Seconds()/1e9)
		}
		return best
	}
	for _, size := range [][2]int{{3, 32}, {4, 64}} {
		net := newResNet(b, env, size[0], size[1])
		flops := 0.0 // of a position, forward
		for _, l := range net.cfg.layers() {
			cells := 42
			if strings.Contains(l.name, "linear") {
				cells = 1
			}
			flops += 2 * float64(l.in*l.out*cells)
		}
		report := func(b *testing.B, each float64) {
			b.ReportMetric(each*rows*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			b.ReportMetric(product(), "SGEMM")
		}
		name := fmt.Sprintf("%dx%d", size[0], size[1])
		b.Run(name+"/forward", func(b *testing.B) {
			obs := envs.NewArrays(env.Spec().Obs, rows)
			logits, values := make([]float32, 7*rows), make([]float32, rows)
			for b.Loop() {
				_ = net.Evaluate(context.Background(), obs, rows, logits, values)
			}
			report(b, flops)
		})
		b.Run(name+"/forward_and_backward", func(b *testing.B) {
			tr, err := NewTrainer(net, TrainConfig{BatchSize: rows})
			require.NoError(b, err)
			defer tr.Close()
			fill(&tr.Samples, rows, net.cfg.Actions, 1)
			for b.Loop() {
				_, _ = tr.Step()
			}
			first := net.cfg.layers()[0] // its input has no gradient
			report(b, 3*flops-2*float64(first.in*first.out*42))
		})
	}
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
