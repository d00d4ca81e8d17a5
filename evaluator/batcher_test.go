package evaluator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/evaluatortest"
	"github.com/stretchr/testify/require"
)

// gate is an evaluator that notes its batches and waits to be let through.
type gate struct {
	mu      sync.Mutex
	sizes   []int
	open    chan struct{} // nil: always
	entered chan int      // gets the size of each batch; nil: nobody listens
}

func (*gate) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

func (g *gate) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	g.mu.Lock()
	g.sizes = append(g.sizes, in.N)
	g.mu.Unlock()
	if g.entered != nil {
		g.entered <- in.N
	}
	if g.open != nil {
		select {
		case <-g.open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return weighted(ctx, in, out)
}

func newBatcher(t *testing.T, ev evaluator.Evaluator, cfg evaluator.BatcherConfig) *evaluator.Batcher {
	b, err := evaluator.NewBatcher(ev, makeEnv(t, "ConnectFour-v0").Spec(), cfg)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func positions(t *testing.T, n int, seed uint64) *evaluator.Batch {
	return evaluatortest.Positions(makeEnv(t, "ConnectFour-v0"), n, seed)
}

// ask evaluates in the background and checks the answer.
func ask(t *testing.T, wg *sync.WaitGroup, ev evaluator.Evaluator, b *evaluator.Batch) {
	want := evaluatortest.Evaluate(t, evaluator.Func(weighted), b)
	wg.Go(func() {
		out := evaluator.Output{Logits: make([]float32, 7*b.N), Value: make([]float32, b.N)}
		if err := ev.Evaluate(context.Background(), b, &out); err != nil {
			t.Error(err)
			return
		}
		for i, v := range want.Value {
			if out.Value[i] != v {
				t.Errorf("row %d is %v; want %v", i, out.Value[i], v)
			}
		}
	})
}

// The three reasons for which a batch begins.
func TestBatcherFlushes(t *testing.T) {
	g := &gate{}
	b := newBatcher(t, g, evaluator.BatcherConfig{MaxBatch: 8, MaxWait: time.Hour})
	one, two := b.Client(0), b.Client(0)
	var wg sync.WaitGroup
	ask(t, &wg, one, positions(t, 3, 1)) // nobody else is there
	wg.Wait()
	require.Equal(t, 1, b.Stats().Everyone)

	leave := two.Enter() // two is there and busy: a batch waits for it
	ask(t, &wg, one, positions(t, 3, 2))
	require.Eventually(t, func() bool { return b.Stats().QueueRows == 3 }, 10*time.Second, time.Millisecond)
	time.Sleep(20 * time.Millisecond)
	require.Equal(t, 1, b.Stats().Batches)
	ask(t, &wg, two, positions(t, 2, 3)) // now everyone waits
	wg.Wait()
	require.Equal(t, []int{3, 5}, g.sizes)
	require.Equal(t, 2, b.Stats().Everyone)

	ask(t, &wg, one, positions(t, 8, 4)) // full
	wg.Wait()
	require.Equal(t, 1, b.Stats().Full)

	ask(t, &wg, one, positions(t, 3, 5))
	require.Eventually(t, func() bool { return b.Stats().QueueRows == 3 }, 10*time.Second, time.Millisecond)
	leave() // whoever leaves isn't waited for
	wg.Wait()
	leave() // a second time does nothing
	stats := b.Stats()
	require.Equal(t, 3, stats.Everyone)
	require.Equal(t, 4, stats.Batches)
	require.Equal(t, 19, stats.Rows)
	require.Equal(t, 5, stats.Requests)
	require.InDelta(t, 19./32, stats.Fill(8), 1e-9)

	b2 := newBatcher(t, &gate{}, evaluator.BatcherConfig{MaxBatch: 8, MaxWait: 30 * time.Millisecond})
	defer b2.Client(0).Enter()()
	began := time.Now()
	ask(t, &wg, b2.Client(0), positions(t, 1, 1))
	wg.Wait()
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	require.Equal(t, 1, b2.Stats().Waited)
}

// A request larger than a batch is cut; one batch holds rows of several requests.
func TestBatcherCuts(t *testing.T) {
	g := &gate{}
	b := newBatcher(t, g, evaluator.BatcherConfig{MaxBatch: 10, Streams: 3})
	var wg sync.WaitGroup
	for i := range 12 {
		ask(t, &wg, b.Client(0), positions(t, 1+7*i%40, uint64(i)))
	}
	wg.Wait()
	for _, n := range g.sizes {
		require.LessOrEqual(t, n, 10)
	}
	require.Zero(t, b.Stats().QueueRows)
}

// Clients share a batch evenly, however much one of them asks for; a higher priority goes first.
func TestBatcherIsFair(t *testing.T) {
	g := &gate{open: make(chan struct{}), entered: make(chan int)}
	var mu sync.Mutex
	var order []string
	b := newBatcher(t, g, evaluator.BatcherConfig{MaxBatch: 8})
	var wg sync.WaitGroup
	start := func(name string, c *evaluator.Client, n int) {
		wg.Go(func() {
			in := positions(t, n, 1)
			out := evaluator.Output{Logits: make([]float32, 7*n), Value: make([]float32, n)}
			if err := c.Evaluate(context.Background(), in, &out); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
		})
	}
	next := func() { g.open <- struct{}{} }
	waiting := func(rows int) {
		require.Eventually(t, func() bool { return b.Stats().QueueRows == rows }, 10*time.Second, time.Millisecond)
	}
	start("first", b.Client(0), 8)
	<-g.entered
	greedy, modest, urgent := b.Client(0), b.Client(0), b.Client(1)
	for range 5 {
		start("greedy", greedy, 8)
	}
	waiting(40)
	start("modest", modest, 4)
	waiting(44)
	start("urgent", urgent, 2)
	waiting(46)
	next()      // first
	<-g.entered // urgent's 2, modest's 3, greedy's 3
	next()
	<-g.entered
	ended := func(n int) []string {
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(order) == n }, 10*time.Second, time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), order...)
	}
	require.ElementsMatch(t, []string{"first", "urgent"}, ended(2))
	next() // modest's last row, and the rest of the first that the greedy client asked for
	<-g.entered
	require.ElementsMatch(t, []string{"first", "urgent", "modest", "greedy"}, ended(4))
	go func() {
		for range g.entered {
		}
	}()
	close(g.open)
	wg.Wait()
	close(g.entered)
}

func TestBatcherQueueIsBounded(t *testing.T) {
	g := &gate{open: make(chan struct{}), entered: make(chan int, 100)}
	refusing := newBatcher(t, g, evaluator.BatcherConfig{MaxBatch: 4, Queue: 8, Refuse: true})
	var wg sync.WaitGroup
	ask(t, &wg, refusing.Client(0), positions(t, 4, 1))
	<-g.entered
	ask(t, &wg, refusing.Client(0), positions(t, 8, 2))
	require.Eventually(t, func() bool { return refusing.Stats().QueueRows == 8 }, 10*time.Second, time.Millisecond)
	out := evaluator.Output{Logits: make([]float32, 7), Value: make([]float32, 1)}
	require.ErrorIs(t, refusing.Client(0).Evaluate(context.Background(), positions(t, 1, 3), &out), evaluator.ErrBusy)
	require.Equal(t, 1, refusing.Stats().Refused)
	close(g.open)
	wg.Wait()

	h := &gate{open: make(chan struct{}), entered: make(chan int, 100)}
	patient := newBatcher(t, h, evaluator.BatcherConfig{MaxBatch: 4, Queue: 8})
	ask(t, &wg, patient.Client(0), positions(t, 4, 1))
	<-h.entered
	ask(t, &wg, patient.Client(0), positions(t, 8, 2))
	require.Eventually(t, func() bool { return patient.Stats().QueueRows == 8 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, patient.Client(0).Evaluate(ctx, positions(t, 1, 3), &out), context.DeadlineExceeded, "no room in time")
	ask(t, &wg, patient.Client(0), positions(t, 3, 3)) // waits for room
	close(h.open)
	wg.Wait()
	require.LessOrEqual(t, patient.Stats().MaxRowsWait, 8)
}

// Whoever leaves takes his rows out of the queue; a batch that nobody waits for any more is told to stop, and what
// others asked for is not disturbed.
func TestBatcherCancellation(t *testing.T) {
	g := &gate{open: make(chan struct{}), entered: make(chan int, 100)}
	b := newBatcher(t, g, evaluator.BatcherConfig{MaxBatch: 4})
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 2)
	leave := func(n int) {
		out := evaluator.Output{Logits: make([]float32, 7*n), Value: make([]float32, n)}
		failed <- b.Client(0).Evaluate(ctx, positions(t, n, 9), &out)
	}
	go leave(4)
	<-g.entered // under evaluation
	go leave(2)
	require.Eventually(t, func() bool { return b.Stats().QueueRows == 2 }, 10*time.Second, time.Millisecond)
	var wg sync.WaitGroup
	ask(t, &wg, b.Client(0), positions(t, 3, 1))
	require.Eventually(t, func() bool { return b.Stats().QueueRows == 5 }, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Equal(t, 3, <-g.entered, "the batch was told to stop, and the other request goes on alone")
	close(g.open)
	wg.Wait()
	require.Equal(t, 2, b.Stats().Cancelled)
}

// An error or a panic fails its batch alone, and a bad row its request's row alone.
func TestBatcherFailures(t *testing.T) {
	var calls atomic.Int32
	b := newBatcher(t, evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		switch calls.Add(1) {
		case 1:
			return errors.New("out of memory")
		case 2:
			panic("index out of range")
		case 3:
			out.Fail(1, in.N, errors.New("bad row"))
		}
		return weighted(ctx, in, out)
	}), evaluator.BatcherConfig{MaxBatch: 4})
	c := b.Client(0)
	in := positions(t, 3, 1)
	out := evaluator.Output{Logits: make([]float32, 21), Value: make([]float32, 3)}
	require.ErrorContains(t, c.Evaluate(context.Background(), in, &out), "out of memory")
	require.ErrorContains(t, c.Evaluate(context.Background(), in, &out), "index out of range")
	require.NoError(t, c.Evaluate(context.Background(), in, &out))
	require.NoError(t, out.Errors[0])
	require.EqualError(t, out.Errors[1], "bad row")
	out.Errors = nil
	require.NoError(t, c.Evaluate(context.Background(), in, &out))
	require.Nil(t, out.Errors)
	require.Equal(t, 2, b.Stats().Failed)
}

// versions is an evaluator with weights that change: its value is their version.
type versions struct{ now atomic.Uint64 }

func (*versions) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

func (v *versions) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	ev, _, release := v.Pin()
	defer release()
	return ev.Evaluate(ctx, in, out)
}

func (v *versions) Pin() (evaluator.Evaluator, uint64, func()) {
	n := v.now.Load()
	return evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		for i := range in.N {
			out.Value[i] = float32(n)
		}
		return nil
	}), n, func() {}
}

// Requests with different weights are never in one batch.
func TestBatcherVersions(t *testing.T) {
	v := &versions{}
	v.now.Store(1)
	b := newBatcher(t, v, evaluator.BatcherConfig{MaxBatch: 8, MaxWait: time.Hour})
	c := b.Client(0)
	old, version, release := evaluator.Pin(c)
	defer release()
	require.Equal(t, uint64(1), version)
	v.now.Store(2)
	fresh, version, release2 := evaluator.Pin(c)
	defer release2()
	require.Equal(t, uint64(2), version)
	leave := c.Enter()
	defer c.Enter()()
	var wg sync.WaitGroup
	for ev, want := range map[evaluator.Evaluator]float32{old: 1, fresh: 2} {
		wg.Go(func() {
			out := evaluator.Output{Logits: make([]float32, 14), Value: make([]float32, 2)}
			if err := ev.Evaluate(context.Background(), positions(t, 2, 1), &out); err != nil || out.Value[0] != want || out.Value[1] != want {
				t.Errorf("%v %v; want %v", out.Value, err, want)
			}
		})
	}
	require.Eventually(t, func() bool { return b.Stats().Batches >= 1 }, 10*time.Second, time.Millisecond)
	leave()
	wg.Wait()
	require.Equal(t, 2, b.Stats().Batches)
}

// held is an evaluator whose weights must not be released while it evaluates, and that doesn't care for ctx.
type held struct {
	entered, open chan struct{}
	evaluating    atomic.Bool
	released      atomic.Int32
	t             *testing.T
}

func (*held) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

func (h *held) Evaluate(context.Context, *evaluator.Batch, *evaluator.Output) error {
	h.evaluating.Store(true)
	defer h.evaluating.Store(false)
	h.entered <- struct{}{}
	<-h.open
	return nil
}

func (h *held) Pin() (evaluator.Evaluator, uint64, func()) {
	return h, 1, func() {
		if h.evaluating.Load() {
			h.t.Error("released while in use")
		}
		h.released.Add(1)
	}
}

// A caller who leaves, and releases what he pinned, does not take the weights from a batch under evaluation.
func TestBatcherKeepsWeightsInUse(t *testing.T) {
	h := &held{entered: make(chan struct{}), open: make(chan struct{}), t: t}
	b := newBatcher(t, h, evaluator.BatcherConfig{})
	ev, _, release := evaluator.Pin(b.Client(0))
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		out := evaluator.Output{Logits: make([]float32, 14), Value: make([]float32, 2)}
		failed <- ev.Evaluate(ctx, positions(t, 2, 1), &out)
	}()
	<-h.entered
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	release()
	require.Zero(t, h.released.Load())
	close(h.open)
	require.Eventually(t, func() bool { return h.released.Load() == 1 }, 10*time.Second, time.Millisecond)
	_, _, release = evaluator.Pin(b.Client(0)) // nobody uses it
	release()
	require.Equal(t, int32(2), h.released.Load())
}

// Memory that isn't what it should be is refused by name; what an evaluator does to its own fails its batch.
func TestBatcherRefusesBadMemory(t *testing.T) {
	short := false
	b := newBatcher(t, evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		if short {
			out.Errors = make([]error, 1)
		}
		return weighted(ctx, in, out)
	}), evaluator.BatcherConfig{})
	c := b.Client(0)
	try := func(change func(in *evaluator.Batch, out *evaluator.Output)) error {
		in := positions(t, 3, 1)
		out := evaluator.Output{Logits: make([]float32, 21), Value: make([]float32, 3)}
		change(in, &out)
		return c.Evaluate(context.Background(), in, &out)
	}
	for want, change := range map[string]func(in *evaluator.Batch, out *evaluator.Output){
		"0 observation arrays": func(in *evaluator.Batch, _ *evaluator.Output) { in.Obs = nil },
		`"board" has 3 rows of 84`: func(in *evaluator.Batch, out *evaluator.Output) {
			in.N = 4
			*out = evaluator.Output{Logits: make([]float32, 28), Value: make([]float32, 4)}
			in.Legal = nil
		},
		"room for 3 values and 20": func(_ *evaluator.Batch, out *evaluator.Output) { out.Logits = out.Logits[:20] },
		"7 legal actions":          func(in *evaluator.Batch, _ *evaluator.Output) { in.Legal = in.Legal[:7] },
	} {
		require.ErrorContains(t, try(change), want)
	}
	short = true
	require.ErrorContains(t, try(func(*evaluator.Batch, *evaluator.Output) {}), "errors of 1 rows; want 3")
	short = false
	require.NoError(t, try(func(*evaluator.Batch, *evaluator.Output) {}))
	require.Zero(t, b.Stats().QueueRows)
}

// Rows of a request without chance flags have none, whatever earlier batches had.
func TestBatcherChance(t *testing.T) {
	marked := make(chan int, 10)
	b := newBatcher(t, evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		n := 0
		for i := range in.N {
			if in.Chance != nil && in.Chance[i] {
				n++
			}
		}
		marked <- n
		return weighted(ctx, in, out)
	}), evaluator.BatcherConfig{MaxWait: time.Hour})
	with := func(n int, chance bool) *evaluator.Batch {
		in := positions(t, n, 1)
		if in.Chance = make([]bool, n); chance {
			in.Chance[0], in.Chance[n-1] = true, true
		}
		return in
	}
	one, two := b.Client(0), b.Client(0)
	var wg sync.WaitGroup
	ask(t, &wg, one, with(6, true))
	wg.Wait()
	require.Equal(t, 2, <-marked)
	leaveOne, leaveTwo := one.Enter(), two.Enter()
	ask(t, &wg, one, positions(t, 6, 2))
	ask(t, &wg, two, with(3, false))
	wg.Wait()
	require.Equal(t, 0, <-marked)
	leaveOne()
	leaveTwo()
}

// Close tells what is being evaluated to stop, and fails what waits.
func TestBatcherClose(t *testing.T) {
	g := &gate{open: make(chan struct{}), entered: make(chan int, 10)}
	b := newBatcher(t, g, evaluator.BatcherConfig{MaxBatch: 4})
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			out := evaluator.Output{Logits: make([]float32, 28), Value: make([]float32, 4)}
			failed <- b.Client(0).Evaluate(context.Background(), positions(t, 4, 1), &out)
		}()
	}
	<-g.entered
	require.Eventually(t, func() bool { return b.Stats().QueueRows == 4 }, 10*time.Second, time.Millisecond)
	b.Close()
	require.ErrorIs(t, <-failed, evaluator.ErrClosed)
	require.ErrorIs(t, <-failed, evaluator.ErrClosed)
	require.Zero(t, b.Stats().QueueRows)
}

func TestBatcherConfig(t *testing.T) {
	spec := makeEnv(t, "ConnectFour-v0").Spec()
	for want, cfg := range map[string]evaluator.BatcherConfig{
		"MaxBatch -1": {MaxBatch: -1}, "Queue -2": {Queue: -2}, "Streams -1": {Streams: -1}, "MaxWait -1ns": {MaxWait: -1},
	} {
		_, err := evaluator.NewBatcher(evaluator.Func(weighted), spec, cfg)
		require.ErrorIs(t, err, evaluator.ErrBatcher)
		require.ErrorContains(t, err, want)
	}
	rollout, err := evaluator.NewRollout(1, 1)
	require.NoError(t, err)
	_, err = evaluator.NewBatcher(rollout, spec, evaluator.BatcherConfig{})
	require.ErrorContains(t, err, "reads states")
}

func BenchmarkBatcher(b *testing.B) {
	env := makeEnv(b, "ConnectFour-v0")
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d/rows=8", clients), func(b *testing.B) {
			batcher, err := evaluator.NewBatcher(evaluator.Uniform{}, env.Spec(), evaluator.BatcherConfig{})
			require.NoError(b, err)
			defer batcher.Close()
			b.ReportAllocs()
			var wg sync.WaitGroup
			for range clients {
				c := batcher.Client(0)
				in := evaluatortest.Positions(env, 8, 1)
				wg.Go(func() {
					defer c.Enter()()
					out := evaluator.Output{Logits: make([]float32, 56), Value: make([]float32, 8)}
					for range b.N / clients {
						_ = c.Evaluate(context.Background(), in, &out)
					}
				})
			}
			wg.Wait()
		})
	}
}
