package server_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// What the tests of abuse measure.

// panicLog counts the calls that failed with a panic, whoever made them.
type panicLog struct {
	mu    sync.Mutex
	count int
	first string
}

func (*panicLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *panicLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *panicLog) WithGroup(string) slog.Handler          { return l }

func (l *panicLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count++; l.count == 1 {
		r.Attrs(func(a slog.Attr) bool {
			text := a.String()
			l.first += text[:min(len(text), 1500)] + "\n"
			return true
		})
	}
	return nil
}

func (l *panicLog) requireNone(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Zero(t, l.count, "calls that failed with a panic; the first:\n%s", l.first)
}

// size is n, or a tenth of it in a short run.
func size(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// span is a time to measure in, or a tenth of it in a short run.
func span(d time.Duration) time.Duration {
	if testing.Short() {
		return d / 10
	}
	return d
}

// share is a bound on a ratio of two rates, which short measurements don't tell well.
func share(x float64) float64 {
	if testing.Short() {
		return x / 2
	}
	return x
}

const mib = 1 << 20

// heap is the bytes that live objects have.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// peakHeap watches the heap until stop is called, which returns the most that there was.
func peakHeap() (stop func() int64) {
	end, most := make(chan struct{}), make(chan int64, 1)
	go func() {
		var m runtime.MemStats
		peak := int64(0)
		for {
			select {
			case <-end:
				most <- peak
				return
			case <-time.After(20 * time.Millisecond):
				runtime.ReadMemStats(&m)
				peak = max(peak, int64(m.HeapAlloc))
			}
		}
	}()
	return func() int64 {
		close(end)
		return <-most
	}
}

// requireGoroutines: there are as few as before, 10 more at most, within 5 s.
func requireGoroutines(t testing.TB, before int) {
	t.Helper()
	began := time.Now()
	for runtime.NumGoroutine() > before+10 && time.Since(began) < 5*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	now := runtime.NumGoroutine()
	t.Logf("goroutines: %d before, %d after %v", before, now, time.Since(began).Round(time.Millisecond))
	if now > before+10 {
		stacks := make([]byte, mib)
		t.Fatalf("goroutines stay:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

func requireHeap(t testing.TB, before int64) {
	t.Helper()
	grown := heap() - before
	t.Logf("heap: %.1f MiB before, %+.1f MiB after", float64(before)/mib, float64(grown)/mib)
	require.Less(t, grown, int64(64*mib), "the heap has grown")
}

// checker searches the same again and again, and compares with a search in this process.
func checker(t testing.TB, c *client.Client, model string, ev evaluator.Evaluator) func() {
	cfg := config(connectFour(t), tree.Gumbel, 32)
	positions := games(10)
	want := local(t, connectFour(t), positions, ev, cfg, 11)
	return func() {
		t.Helper()
		got, err := c.Search(t.Context(), &client.Request{
			States: client.States{Env: client.Env{ID: c4}, Games: positions}, Model: model, Config: &cfg, Seed: 11,
		})
		require.NoError(t, err)
		requireSame(t, want, got)
	}
}
