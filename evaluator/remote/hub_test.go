package remote_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/evaluatortest"
	"github.com/azserve/azserve/evaluator/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is an evaluator in this process: its connection is a function.
type peer struct {
	t      *testing.T
	worker *remote.Worker
	answer func(p *peer, id uint64, b *evaluator.Batch) // nil: honest

	mu        sync.Mutex
	batches   int
	cancelled []uint64
	broken    error
}

func (p *peer) Send(r *remote.Request) error {
	p.mu.Lock()
	p.batches++
	err := p.broken
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if p.answer != nil {
		p.answer(p, r.ID, r.Batch)
		return nil
	}
	logits, values := honest(r.Batch, r.Version)
	go p.worker.Answer(r.ID, logits, values)
	return nil
}

func (p *peer) Cancel(id uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelled = append(p.cancelled, id)
	return nil
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batches
}

// honest answers by what is seen, so that rows can be told apart.
func honest(b *evaluator.Batch, version uint64) (logits, values []float32) {
	for i := range b.N {
		row := make([]float32, b.Obs[0].Size())
		b.Obs[0].Floats(i, row)
		sum := float32(version)
		for k, x := range row {
			sum += x * float32(k%7+1) / 64
		}
		for a := range b.Spec.NumActions {
			logits = append(logits, sum*float32(a))
		}
		values = append(values, float32(math.Tanh(float64(sum))))
	}
	return logits, values
}

func attach(t *testing.T, h *remote.Hub, hello remote.Hello, answer func(*peer, uint64, *evaluator.Batch)) *peer {
	p := &peer{t: t, answer: answer}
	if hello.MaxBatch == 0 {
		hello.MaxBatch = 256
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	p.worker, err = h.Attach(p, hello)
	require.NoError(t, err)
	return p
}

func connectFour(t *testing.T) *envs.Env {
	env, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	return env
}

func batch(env *envs.Env, n int) (*evaluator.Batch, *evaluator.Output) {
	spec := env.Spec()
	b := &evaluator.Batch{N: n, Spec: spec, Obs: envs.NewArrays(spec.Obs, n)}
	for i := range n {
		o := &b.Obs[0]
		for k := range o.Size() {
			bit := i>>(k%8)&1 == 1
			switch {
			case o.F32 != nil:
				o.F32[i*o.Size()+k] = map[bool]float32{true: 1}[bit]
			case o.Bool != nil:
				o.Bool[i*o.Size()+k] = bit
			}
		}
	}
	return b, &evaluator.Output{Logits: make([]float32, n*spec.NumActions), Value: make([]float32, n)}
}

func requireHonest(t *testing.T, in *evaluator.Batch, out *evaluator.Output, version uint64) {
	logits, values := honest(in, version)
	require.Equal(t, logits, out.Logits)
	require.Equal(t, values, out.Value)
}

func TestBattery(t *testing.T) {
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	attach(t, h, remote.Hello{Name: "a", MaxBatch: 3, InFlight: 2}, nil)
	attach(t, h, remote.Hello{Name: "b", MaxBatch: 64, InFlight: 1}, nil)
	env := connectFour(t)
	evaluatortest.Battery(t, env, h.Evaluator(env), 100, nil)
}

// TestLost: an evaluator that dies with batches in flight costs nothing but time.
func TestLost(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	dies := attach(t, h, remote.Hello{Name: "dies", InFlight: 8},
		func(p *peer, _ uint64, _ *evaluator.Batch) { go p.worker.Detach(nil) })
	attach(t, h, remote.Hello{Name: "lives", InFlight: 1}, nil)
	in, out := batch(env, 20)
	require.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out))
	requireHonest(t, in, out, 0)
	require.Equal(t, 1, dies.count())
	s := h.Stats()
	require.EqualValues(t, 1, s.Retried)
	require.Equal(t, 1, s.Evaluators)
	require.ErrorIs(t, dies.worker.Err(), remote.ErrGone)
}

// TestHangs: one that doesn't answer is cut off in time, and its batch done elsewhere; with nobody else it is an
// error.
func TestHangs(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond})
	defer h.Close()
	silent := func(*peer, uint64, *evaluator.Batch) {}
	hung := attach(t, h, remote.Hello{Name: "hung", InFlight: 8}, silent)
	attach(t, h, remote.Hello{Name: "lives", InFlight: 1}, nil)
	in, out := batch(env, 4)
	require.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out))
	requireHonest(t, in, out, 0)
	require.ErrorIs(t, hung.worker.Err(), remote.ErrCutOff)
	require.ErrorContains(t, hung.worker.Err(), "evaluator hung: no answer")

	alone := remote.NewHub("m", remote.Config{Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond})
	defer alone.Close()
	attach(t, alone, remote.Hello{Name: "hung"}, silent)
	err := alone.Evaluator(env).Evaluate(t.Context(), in, out)
	require.ErrorIs(t, err, remote.ErrUnavailable)
	require.ErrorContains(t, err, "model m")
}

// TestComesBack: a batch waits a little for an evaluator that starts again.
func TestComesBack(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{Grace: 10 * time.Second})
	defer h.Close()
	in, out := batch(env, 4)
	done := make(chan error)
	go func() { done <- h.Evaluator(env).Evaluate(t.Context(), in, out) }()
	require.Never(t, func() bool { return len(done) > 0 }, 20*time.Millisecond, 5*time.Millisecond)
	attach(t, h, remote.Hello{Name: "late"}, nil)
	require.NoError(t, <-done)
	requireHonest(t, in, out, 0)
}

// TestBadAnswers: each fails its own batch, and the third in a row cuts the evaluator off.
func TestBadAnswers(t *testing.T) {
	env := connectFour(t)
	a := env.Spec().NumActions
	kinds := map[string]func(p *peer, id uint64, b *evaluator.Batch){
		"too few rows": func(p *peer, id uint64, b *evaluator.Batch) {
			p.worker.Answer(id, make([]float32, (b.N-1)*a), make([]float32, b.N-1))
		},
		"too many logits": func(p *peer, id uint64, b *evaluator.Batch) {
			p.worker.Answer(id, make([]float32, b.N*(a+1)), make([]float32, b.N))
		},
		"empty":   func(p *peer, id uint64, _ *evaluator.Batch) { p.worker.Answer(id, nil, nil) },
		"says so": func(p *peer, id uint64, _ *evaluator.Batch) { p.worker.Fail(id, "out of memory") },
	}
	for name, answer := range kinds {
		t.Run(name, func(t *testing.T) {
			h := remote.NewHub("m", remote.Config{Grace: time.Millisecond})
			defer h.Close()
			p := attach(t, h, remote.Hello{Name: "bad"}, answer)
			in, out := batch(env, 4)
			for range 3 {
				err := h.Evaluator(env).Evaluate(t.Context(), in, out)
				require.ErrorIs(t, err, remote.ErrFailed)
				require.ErrorContains(t, err, "evaluator bad")
			}
			require.ErrorIs(t, p.worker.Err(), remote.ErrCutOff)
			require.ErrorIs(t, h.Evaluator(env).Evaluate(t.Context(), in, out), remote.ErrUnavailable)
		})
	}
}

// TestBadRows: NaN fails its row and no other; three batches with some in a row cut the evaluator off, and a good one
// in between forgives.
func TestBadRows(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	var batches int
	p := attach(t, h, remote.Hello{Name: "sick"}, func(p *peer, id uint64, b *evaluator.Batch) {
		logits, values := honest(b, 0)
		if batches++; batches%3 != 0 {
			values[2] = float32(math.NaN())
		}
		p.worker.Answer(id, logits, values)
	})
	in, out := batch(env, 4)
	for i := range 9 {
		require.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out))
		if (i+1)%3 == 0 {
			require.Nil(t, out.Errors)
			continue
		}
		require.ErrorContains(t, out.Errors[2], "evaluator sick of model m: row 2: value is NaN")
		require.Nil(t, out.Errors[0])
	}
	require.NoError(t, p.worker.Err())
}

// TestNeverAsked: answers to what was never asked are bad answers; late and double ones are dropped.
func TestNeverAsked(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	p := attach(t, h, remote.Hello{Name: "p"}, func(p *peer, id uint64, b *evaluator.Batch) {
		logits, values := honest(b, 0)
		p.worker.Answer(id, logits, values)
		p.worker.Answer(id, make([]float32, len(logits)), make([]float32, len(values)))
	})
	in, out := batch(env, 4)
	for range 10 {
		require.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out))
		requireHonest(t, in, out, 0)
	}
	require.NoError(t, p.worker.Err())
	for range 3 {
		p.worker.Answer(1<<40, nil, nil)
	}
	require.ErrorIs(t, p.worker.Err(), remote.ErrCutOff)
}

// TestVersions: a search keeps its weights as long as an evaluator has them.
func TestVersions(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	p := attach(t, h, remote.Hello{Name: "p", Versions: []uint64{3}}, nil)
	old, version, release := evaluator.Pin(h.Evaluator(env))
	defer release()
	require.EqualValues(t, 3, version)
	in, out := batch(env, 4)
	p.worker.SetVersions([]uint64{3, 4})
	require.NoError(t, old.Evaluate(t.Context(), in, out))
	requireHonest(t, in, out, 3)
	require.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out))
	requireHonest(t, in, out, 4)
	p.worker.SetVersions([]uint64{4, 5})
	err := old.Evaluate(t.Context(), in, out)
	require.ErrorIs(t, err, remote.ErrUnavailable)
	require.ErrorContains(t, err, "version 3")
}

// TestVersionsOfTheOthers: an evaluator that is behind doesn't take the others back, and one that leaves doesn't take
// its weights with it where others have some.
func TestVersionsOfTheOthers(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	attach(t, h, remote.Hello{Name: "a", Versions: []uint64{5}}, nil)
	behind := attach(t, h, remote.Hello{Name: "b", Versions: []uint64{3}}, nil)
	require.EqualValues(t, 5, h.Stats().Version)
	behind.worker.SetVersions([]uint64{3, 6})
	require.EqualValues(t, 6, h.Stats().Version)
	behind.worker.Detach(nil)
	require.EqualValues(t, 5, h.Stats().Version)
	in, out := batch(env, 4)
	require.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out))
	requireHonest(t, in, out, 5)
}

// TestCancel: a caller who leaves tells the evaluator so.
func TestCancel(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	ctx, cancel := context.WithCancel(t.Context())
	p := attach(t, h, remote.Hello{Name: "p"}, func(*peer, uint64, *evaluator.Batch) { cancel() })
	in, out := batch(env, 4)
	require.ErrorIs(t, h.Evaluator(env).Evaluate(ctx, in, out), context.Canceled)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.cancelled, 1)
}

// TestShares: evaluators get work by how much they take.
func TestShares(t *testing.T) {
	env := connectFour(t)
	h := remote.NewHub("m", remote.Config{})
	defer h.Close()
	var seen remote.Capacity
	stop := h.Listen(func(c remote.Capacity) { seen = c })
	defer stop()
	a := attach(t, h, remote.Hello{Name: "a", InFlight: 4, MaxBatch: 64}, nil)
	b := attach(t, h, remote.Hello{Name: "b", InFlight: 4, MaxBatch: 32}, nil)
	require.Equal(t, remote.Capacity{Evaluators: 2, Batches: 8, MaxBatch: 32}, seen)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				in, out := batch(env, 8)
				if assert.NoError(t, h.Evaluator(env).Evaluate(t.Context(), in, out)) {
					requireHonest(t, in, out, 0)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 400, a.count()+b.count())
	require.Greater(t, min(a.count(), b.count()), 40)
	_, err := h.Attach(a, remote.Hello{MaxBatch: 0})
	require.ErrorIs(t, err, remote.ErrHello)
}
