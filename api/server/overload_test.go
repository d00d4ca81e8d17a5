package server_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// tally is how calls ended.
type tally struct {
	mu      sync.Mutex
	ok      int
	late    int // that came with an answer after their deadline
	codes   map[errcode.Code]int
	hints   int // refusals that say when to try again
	worst   time.Duration
	example map[errcode.Code]string
}

// load makes calls of a client.
type load struct {
	c       *client.Client
	request *client.Request
}

// newLoad is a client with a connection of its own, whose calls search one row with 8 simulations.
func newLoad(t testing.TB, at, model string) *load {
	cfg := config(connectFour(t), tree.AlphaZero, 8)
	return &load{dial(t, at, client.Config{NoRetry: true}), &client.Request{
		States: client.States{Env: client.Env{ID: c4}, Games: games(1)}, Model: model, Config: &cfg,
	}}
}

// call makes a call with a deadline and counts how it ended.
func (l *load) call(limit time.Duration, out *tally) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	began := time.Now()
	_, err := l.c.Search(ctx, l.request)
	now := time.Now()
	out.mu.Lock()
	defer out.mu.Unlock()
	out.worst = max(out.worst, now.Sub(began))
	if err == nil {
		out.ok++
		if now.After(deadline.Add(50 * time.Millisecond)) { // that the test's own scheduling may take
			out.late++
		}
		return
	}
	e := wire.From(err)
	if out.codes == nil {
		out.codes, out.example = map[errcode.Code]int{}, map[errcode.Code]string{}
	}
	out.codes[e.Code]++
	out.example[e.Code] = e.Error()
	if e.RetryAfter > 0 {
		out.hints++
	}
}

// closed is n callers, each of whom calls again when he has his answer. It returns the answers a second.
func (l *load) closed(n int, d time.Duration, out *tally) float64 {
	var wg sync.WaitGroup
	began := time.Now()
	end := began.Add(d)
	for range n {
		wg.Go(func() {
			for time.Now().Before(end) {
				l.call(10*time.Second, out)
			}
		})
	}
	wg.Wait()
	return float64(out.ok) / time.Since(began).Seconds()
}

// open is calls at a rate, whatever becomes of them. It returns how many there were, and waits for all.
func (l *load) open(rate float64, d, limit time.Duration, out *tally) (n int) {
	var wg sync.WaitGroup
	began := time.Now()
	for now := began; now.Sub(began) < d; now = time.Now() {
		for due := int(now.Sub(began).Seconds() * rate); n < due; n++ {
			wg.Go(func() { l.call(limit, out) })
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	return n
}

// overloaded starts a server whose evaluator takes 5 ms for a batch of 16 at most, and measures what it can do.
func overloaded(t *testing.T) (at string, peak float64) {
	_, at = start(t, server.Config{MaxConcurrent: 32, MaxQueue: 64})
	slow := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		time.Sleep(5 * time.Millisecond)
		return seen(ctx, in, out)
	})
	attach(t, dial(t, at, client.Config{NoRetry: true}), client.Attach{Model: "slow", MaxBatch: 16}, slow)
	l := newLoad(t, at, "slow")
	l.closed(64, span(200*time.Millisecond), &tally{})
	out := &tally{}
	peak = l.closed(64, span(1500*time.Millisecond), out)
	require.Empty(t, out.codes, "%v", out.example)
	t.Logf("peak: %.0f searches a second, the longest %v", peak, out.worst)
	require.Greater(t, peak, 50.0)
	return at, peak
}

// TestAbuseOverload: with four times the calls that a server can do it does as many as ever, and says of the others
// at once that there are too many.
func TestAbuseOverload(t *testing.T) {
	at, peak := overloaded(t)
	out, d := &tally{}, span(3*time.Second)
	began := time.Now()
	n := newLoad(t, at, "slow").open(4*peak, d, time.Second, out)
	good := float64(out.ok) / time.Since(began).Seconds()
	t.Logf("%d calls at 4 times that: %.0f good answers a second, %.0f %% of the peak; the longest %v; others: "+
		"%v, %d say when to try again", n, good, 100*good/peak, out.worst, out.codes, out.hints)
	require.Greater(t, float64(n), 3.5*peak*d.Seconds(), "the load was not made")
	require.GreaterOrEqual(t, good, share(0.8)*peak)
	require.Zero(t, out.late, "answers after their deadline")
	refused := out.codes[errcode.Overloaded]
	require.Equal(t, n-out.ok, refused+out.codes[errcode.Deadline], "%v", out.example)
	require.GreaterOrEqual(t, out.hints, refused, "each that is refused is told when to try again")
	require.Greater(t, refused, n/4)
}

// TestAbuseFairness: one client with ten times the calls that a server can do costs another, who asks for little, no
// answer.
func TestAbuseFairness(t *testing.T) {
	at, peak := overloaded(t)
	heavy, light := &tally{}, &tally{}
	greedy, modest := newLoad(t, at, "slow"), newLoad(t, at, "slow")
	d := span(2500 * time.Millisecond)
	made := make(chan int, 1)
	go func() { made <- greedy.open(10*peak, d, time.Second, heavy) }()
	time.Sleep(d / 10)
	n := modest.open(peak/20, d*8/10, 2*time.Second, light)
	all := <-made
	t.Logf("%d calls of the one at 10 times what can be done: %d good, %v", all, heavy.ok, heavy.codes)
	t.Logf("%d calls of the other at a twentieth: %d good, the longest %v, others %v", n, light.ok, light.worst,
		light.example)
	require.Greater(t, float64(all), 6*peak*d.Seconds(), "the load was not made")
	require.GreaterOrEqual(t, n, size(10))
	require.Equal(t, n, light.ok, "%v", light.example)
	require.Zero(t, light.late)
}
