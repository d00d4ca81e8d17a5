//go:build cgo

package onnx_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/evaluatortest"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/onnx"
	"github.com/azserve/azserve/evaluator/onnxfile"
	"github.com/azserve/azserve/internal/atomicfile"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

// needLibrary skips a test where there is no ONNX Runtime, and finds the repository's .venv.
func needLibrary(t testing.TB) {
	if _, err := onnx.Library(); err != nil {
		t.Skip(err)
	}
}

func TestMain(m *testing.M) {
	evaluatortest.UseVenv("../../.venv")
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

// An exported network answers as the network itself.
func TestExport(t *testing.T) {
	needLibrary(t)
	planes, err := envs.Make("Maze-v0", envs.Keywords{"obs": []byte(`"planes"`)}) // an array with the name of a tensor
	require.NoError(t, err)
	all := []*envs.Env{planes}
	for _, id := range []string{"ConnectFour-v0", "TicTacToe-v0", "Gomoku-v0", "CartPole-v1", "Maze-v0"} {
		all = append(all, makeEnv(t, id))
	}
	for _, env := range all {
		id := env.Spec().ID
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
					want, got := evaluatortest.Evaluate(t, own, b), evaluatortest.Evaluate(t, m, b)
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

func TestBattery(t *testing.T) {
	needLibrary(t)
	for _, id := range []string{"ConnectFour-v0", "CartPole-v1"} {
		env := makeEnv(t, id)
		for name, net := range networks(t, env) {
			for _, threads := range []int{1, 2} {
				data, err := net.ONNX(env)
				require.NoError(t, err)
				m, err := onnx.New(data, 1, env, onnx.Options{Threads: threads})
				require.NoError(t, err)
				t.Run(fmt.Sprint(id, " ", name, " threads=", threads), func(t *testing.T) {
					evaluatortest.Battery(t, env, m, 70, m.Close)
				})
				b := batchOf(env, 1, 1)
				out := evaluator.Output{Logits: make([]float32, b.Spec.NumActions), Value: make([]float32, 1)}
				require.ErrorIs(t, m.Evaluate(context.Background(), b, &out), onnx.ErrClosed)
				require.ErrorIs(t, m.Replace(data, 2), onnx.ErrClosed)
			}
		}
	}
}

// small writes a model of one dense layer for Connect Four, to be spoilt.
type small struct {
	input, logits, value string
	shape                []int
	actions, valueWidth  int
	mask                 bool
}

func defaultSmall() small {
	return small{input: "board", logits: "prior_logits", value: "value", shape: []int{6, 7, 2}, actions: 7, valueWidth: 1}
}

func (s *small) bytes() []byte {
	g := onnxfile.New("small")
	g.Input(s.input, s.shape...)
	n := 1
	for _, d := range s.shape {
		n *= d
	}
	flat := g.Node("Reshape", "flat", []string{s.input, g.Ints("shape", 0, -1)})
	if s.mask {
		g.Input("action_mask", 7)
		flat = g.Node("Concat", "both", []string{flat, "action_mask"}, onnxfile.Attribute{Name: "axis", Int: 1})
		n += 7
	}
	layer := func(output string, width int) {
		w := make([]float32, n*width)
		for i := range w {
			w[i] = float32(i%11)/100 - 0.05
		}
		g.Output(output, width)
		g.Node("Gemm", output, []string{flat, g.Floats(output+".w", []int{n, width}, w)})
	}
	layer(s.value, s.valueWidth)
	layer(s.logits, s.actions)
	return g.Bytes()
}

// A model that doesn't fit is refused by an error that says what is wrong and what would be right.
func TestRefusals(t *testing.T) {
	needLibrary(t)
	env := makeEnv(t, "ConnectFour-v0")
	open := func(change func(s *small)) error {
		s := defaultSmall()
		change(&s)
		m, err := onnx.New(s.bytes(), 1, env, onnx.Options{})
		if err == nil {
			m.Close()
		}
		return err
	}
	for name, change := range map[string]func(s *small){
		"as it should be":        func(*small) {},
		"any name of the input":  func(s *small) { s.input = "x" },
		"flat":                   func(s *small) { s.shape = []int{84} },
		"other names of outputs": func(s *small) { s.logits, s.value = "pi", "v" },
		"with a mask":            func(s *small) { s.mask = true },
	} {
		require.NoError(t, open(change), name)
	}
	for want, change := range map[string]func(s *small){
		`input "board": shape [-1 7 6 2]; want [batch, 6, 7, 2] or [batch, 84]`: func(s *small) { s.shape = []int{7, 6, 2} },
		`output "prior_logits": shape [-1 8]; want [batch, 7]`:                  func(s *small) { s.actions = 8 },
		`output "value": shape [-1 2]; want [batch] or [batch, 1]`:              func(s *small) { s.valueWidth = 2 },
	} {
		err := open(change)
		require.ErrorIs(t, err, onnx.ErrModel)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "for ConnectFour-v0")
	}
	_, err := onnx.New([]byte("no model"), 1, env, onnx.Options{})
	require.ErrorIs(t, err, onnx.ErrModel)
	_, err = onnx.Open(filepath.Join(t.TempDir(), "nowhere.onnx"), env, onnx.Options{})
	require.ErrorIs(t, err, onnx.ErrModel)
	require.ErrorContains(t, err, "nowhere.onnx")
	other := makeEnv(t, "BinPack-v0")
	s := defaultSmall()
	_, err = onnx.New(s.bytes(), 1, other, onnx.Options{})
	require.ErrorContains(t, err, `input "board"; want the names of the observation arrays`)
}

// A model that takes the legal actions gets them.
func TestMask(t *testing.T) {
	needLibrary(t)
	env := makeEnv(t, "ConnectFour-v0")
	s := defaultSmall()
	s.mask = true
	m, err := onnx.New(s.bytes(), 1, env, onnx.Options{})
	require.NoError(t, err)
	defer m.Close()
	b := evaluatortest.Positions(env, 1, 1)
	before := evaluatortest.Evaluate(t, m, b).Value[0]
	weight := float32((84+3)%11)/100 - 0.05 // of the legality of column 3
	b.Legal[3] = !b.Legal[3]
	require.InDelta(t, -weight, evaluatortest.Evaluate(t, m, b).Value[0]-before, 1e-5)
	b.Legal = nil // all are
	evaluatortest.Evaluate(t, m, b)
}

// A file that changes is read again: what begins later has the new weights, what goes on keeps the old ones, and a
// broken file changes nothing.
func TestReload(t *testing.T) {
	needLibrary(t)
	env := makeEnv(t, "ConnectFour-v0")
	path := filepath.Join(t.TempDir(), "model.onnx")
	nets := networks(t, env)
	write := func(net *gorgonia.Net) {
		data, err := net.ONNX(env)
		require.NoError(t, err)
		require.NoError(t, atomicfile.Write(path, data))
	}
	write(nets["mlp"])
	var heard []error
	m, err := onnx.Open(path, env, onnx.Options{Reload: time.Nanosecond, OnReload: func(_ uint64, err error) { heard = append(heard, err) }})
	require.NoError(t, err)
	defer m.Close()
	b := batchOf(env, 4, 1)
	old, oldVersion, release := m.Pin()
	first := evaluatortest.Evaluate(t, old, b)
	require.NotZero(t, oldVersion)

	write(nets["resnet"])
	fresh, freshVersion, releaseFresh := m.Pin()
	require.NotEqual(t, oldVersion, freshVersion)
	require.Equal(t, []error{nil}, heard)
	own, err := nets["resnet"].Evaluator(env)
	require.NoError(t, err)
	require.InDeltaSlice(t, evaluatortest.Evaluate(t, own, b).Value, evaluatortest.Evaluate(t, fresh, b).Value, 1e-4)
	require.Equal(t, first, evaluatortest.Evaluate(t, old, b), "a search that goes on")
	release()
	releaseFresh()

	require.NoError(t, os.WriteFile(path, []byte("half a file"), 0o644))
	evaluatortest.Evaluate(t, m, b)
	require.Len(t, heard, 2)
	require.ErrorIs(t, heard[1], onnx.ErrModel)
	require.Equal(t, freshVersion, m.Version())
	require.NoError(t, os.Remove(path)) // on its way to be replaced
	evaluatortest.Evaluate(t, m, b)
	write(nets["mlp"])
	evaluatortest.Evaluate(t, m, b)
	require.Equal(t, oldVersion, m.Version(), "the same file has the same version")
}

// A search pins its weights: its result and every cached answer belong to one version.
func TestSearchPins(t *testing.T) {
	needLibrary(t)
	env := makeEnv(t, "ConnectFour-v0")
	nets := networks(t, env)
	data := map[string][]byte{}
	for name, net := range nets {
		var err error
		data[name], err = net.ONNX(env)
		require.NoError(t, err)
	}
	m, err := onnx.New(data["mlp"], 7, env, onnx.Options{})
	require.NoError(t, err)
	defer m.Close()
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	states := make([]int32, 4)
	require.NoError(t, store.Reset(nil, make([]uint64, 4), states))
	cfg := search.Default(tree.Gumbel, env.Spec())
	cfg.NumSimulations = 32
	cfg.Cache, err = evaluator.NewCache(1<<12, 7)
	require.NoError(t, err)
	run := func(ev evaluator.Evaluator) *search.Result {
		out := search.NewResult(4, 7)
		roots := &search.Roots{States: states, Seeds: search.Seeds(1, 4)}
		require.NoError(t, search.Run(context.Background(), store, nil, roots, ev, cfg, out))
		return out
	}
	first := run(m)
	require.Equal(t, uint64(7), first.Version)
	// The weights change in the middle of a search.
	cfg.Cache, err = evaluator.NewCache(1<<12, 7)
	require.NoError(t, err)
	calls := 0
	second := run(changing{m, func() {
		if calls++; calls == 5 {
			require.NoError(t, m.Replace(data["resnet"], 8))
		}
	}})
	require.Equal(t, uint64(7), second.Version)
	first.Stats, second.Stats = search.Stats{}, search.Stats{}
	require.Equal(t, first, second)
	third := run(m)
	require.Equal(t, uint64(8), third.Version)
	require.NotEqual(t, first.Raw, third.Raw, "nothing of the old weights is in the cache")
}

// changing calls a function before each evaluation of a pinned model.
type changing struct {
	*onnx.Model
	before func()
}

func (c changing) Pin() (evaluator.Evaluator, uint64, func()) {
	ev, version, release := c.Model.Pin()
	return evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		c.before()
		return ev.Evaluate(ctx, in, out)
	}), version, release
}
