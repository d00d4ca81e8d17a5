package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/stretchr/testify/require"
)

// fill lets calls of clients wait, in this order.
func fill(t *testing.T, a *admission, clients ...string) []chan error {
	var out []chan error
	for i, c := range clients {
		got := make(chan error, 1)
		_, queued := a.counts()
		go func() {
			done, err := a.enter(context.Background(), c)
			got <- err
			if err == nil {
				done()
			}
		}()
		require.Eventually(t, func() bool {
			_, q := a.counts()
			return q == queued+1 || len(got) > 0
		}, time.Second, time.Millisecond, "call %d", i)
		out = append(out, got)
	}
	return out
}

func TestAdmissionTakesTurns(t *testing.T) {
	a := newAdmission(1, 100)
	done, err := a.enter(t.Context(), "first")
	require.NoError(t, err)
	var order []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, c := range []string{"heavy", "heavy", "heavy", "heavy", "light", "heavy", "other"} {
		wg.Go(func() {
			done, err := a.enter(context.Background(), c)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, c)
			mu.Unlock()
			done()
		})
		require.Eventually(t, func() bool { _, q := a.counts(); return q == i+1 }, time.Second, time.Millisecond)
	}
	done()
	done() // a second time does nothing
	wg.Wait()
	require.Equal(t, []string{"heavy", "light", "other", "heavy", "heavy", "heavy", "heavy"}, order)
	running, queued := a.counts()
	require.Zero(t, running+queued)
}

func TestAdmissionRefuses(t *testing.T) {
	a := newAdmission(1, 3)
	done, err := a.enter(t.Context(), "x")
	require.NoError(t, err)
	waiting := fill(t, a, "heavy", "heavy", "heavy")
	_, err = a.enter(t.Context(), "heavy")
	e := wire.From(err)
	require.Equal(t, errcode.Overloaded, e.Code)
	require.Positive(t, e.RetryAfter)
	require.Error(t, a.full("heavy"))
	require.NoError(t, a.full("light"))
	light := make(chan error, 1)
	go func() {
		done, err := a.enter(context.Background(), "light") // takes the place of heavy's newest
		light <- err
		done()
	}()
	require.Equal(t, errcode.Overloaded, wire.From(<-waiting[2]).Code)
	done()
	for _, w := range []chan error{waiting[0], waiting[1], light} {
		require.NoError(t, <-w)
	}
}

func TestAdmissionCancel(t *testing.T) {
	a := newAdmission(1, 10)
	done, err := a.enter(t.Context(), "x")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = a.enter(ctx, "y")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, queued := a.counts()
	require.Zero(t, queued)
	waiting := fill(t, a, "y")
	a.close()
	require.Equal(t, errcode.Unavailable, wire.From(<-waiting[0]).Code)
	_, err = a.enter(t.Context(), "z")
	require.Equal(t, errcode.Unavailable, wire.From(err).Code)
	done()
}

// TestAdmissionHammer: never more than the limit at work, and nothing is left over.
func TestAdmissionHammer(t *testing.T) {
	a := newAdmission(4, 8)
	var at, most, served atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for k := range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(k%5)*time.Millisecond)
				done, err := a.enter(ctx, fmt.Sprint(i%7))
				if err == nil {
					n := at.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(50 * time.Microsecond)
					at.Add(-1)
					served.Add(1)
					done()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(4))
	require.Positive(t, served.Load())
	running, queued := a.counts()
	require.Zero(t, running+queued)
}
