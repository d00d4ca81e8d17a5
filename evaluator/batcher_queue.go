package evaluator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// request is a call of Evaluate. Its rows are given away in their order, to one batch or to several.
type request struct {
	client *Client
	*weights
	in    *Batch
	out   *Output
	since time.Time

	// guarded by Batcher.mu
	next, hi int // rows that wait
	left     int // rows without an answer
	done     chan struct{}
	finished bool // done is closed
	err      error
	batches  []*batch // under evaluation that have rows of it

	memory sync.Mutex // held while in is read and out is written; taken alone
	gone   bool       // guarded by memory: the caller has left, in and out are his again
}

// fail ends a request with an error, the first of them. Call with Batcher.mu held.
func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.next = r.hi
	r.finish()
}

// finish lets the caller go on. Call with Batcher.mu held.
func (r *request) finish() {
	if !r.finished {
		r.finished = true
		r.client.calls--
		r.client.b.stats.Requests++
		close(r.done)
	}
}

// weights are an evaluator whose answers don't change, and their version. They are given back when their owner has
// released them and no batch uses them any more: a caller may leave while his rows are being evaluated.
type weights struct {
	ev      Evaluator
	version uint64
	release func() // nil: they aren't pinned

	// guarded by Batcher.mu
	uses     int // batches under evaluation
	released bool
}

// free gives the weights back, once. Call with Batcher.mu held, and call what it returns without.
func (w *weights) free() func() {
	if w.release == nil || !w.released || w.uses > 0 {
		return func() {}
	}
	f := w.release
	w.release = nil
	return f
}

// check refuses a request whose memory isn't what it should be.
func (b *Batcher) check(in *Batch, out *Output) error {
	a := b.spec.NumActions
	switch {
	case len(in.Obs) != len(b.spec.Obs):
		return fmt.Errorf("%w: a batch of %d observation arrays; want %d", ErrBatcher, len(in.Obs), len(b.spec.Obs))
	case len(out.Value) < in.N || len(out.Logits) < in.N*a:
		return fmt.Errorf("%w: room for %d values and %d logits; want %d and %d", ErrBatcher, len(out.Value),
			len(out.Logits), in.N, in.N*a)
	case in.Legal != nil && len(in.Legal) < in.N*a, in.Chance != nil && len(in.Chance) < in.N:
		return fmt.Errorf("%w: %d legal actions, %d chance flags; want %d and %d", ErrBatcher, len(in.Legal),
			len(in.Chance), in.N*a, in.N)
	}
	for k := range in.Obs {
		if o := &in.Obs[k]; o.Size() != b.spec.Obs[k].Len() || o.Rows() < in.N {
			return fmt.Errorf("%w: observation array %q has %d rows of %d; want %d of %d", ErrBatcher, b.spec.Obs[k].Name,
				o.Rows(), o.Size(), in.N, b.spec.Obs[k].Len())
		}
	}
	return nil
}

func (c *Client) evaluate(ctx context.Context, w *weights, in *Batch, out *Output) error {
	if err := ctx.Err(); err != nil || in.N == 0 {
		return err
	}
	if err := c.b.check(in, out); err != nil {
		return err
	}
	out.Uniform = false
	r := &request{
		client: c, weights: w, in: in, out: out, hi: in.N, left: in.N, since: time.Now(), done: make(chan struct{}),
	}
	if err := c.b.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		c.b.withdraw(r, ctx.Err())
	}
	r.memory.Lock() // a batch that has rows of a request which failed may still be under evaluation
	r.gone = true
	r.memory.Unlock()
	return r.err
}

// enqueue puts a request into the queue, when there is room.
func (b *Batcher) enqueue(ctx context.Context, r *request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if fits := b.fits(r); !fits && b.cfg.Refuse {
		b.stats.Refused++
		return ErrBusy
	} else if !fits || len(b.waiters) > 0 {
		b.awaitRoom(ctx, r)
	}
	if b.closed {
		return ErrClosed
	}
	if ctx.Err() != nil {
		b.stats.Cancelled++
		return ctx.Err()
	}
	r.client.calls++
	b.queue = append(b.queue, r)
	b.rows += r.hi
	b.stats.MaxRowsWait = max(b.stats.MaxRowsWait, b.rows)
	b.work.Signal()
	return nil
}

// fits says whether the queue has room for a request; an empty one has for any. Call with mu held.
func (b *Batcher) fits(r *request) bool { return b.rows == 0 || b.rows+r.hi <= b.cfg.Queue }

// awaitRoom waits until the queue has room, first come, first served. Call with mu held.
func (b *Batcher) awaitRoom(ctx context.Context, r *request) {
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.room.Broadcast()
	})
	defer stop()
	b.waiters = append(b.waiters, r)
	for (b.waiters[0] != r || !b.fits(r)) && !b.closed && ctx.Err() == nil {
		b.room.Wait()
	}
	b.waiters = slices.DeleteFunc(b.waiters, func(w *request) bool { return w == r })
	b.room.Broadcast() // the next one may fit too
}

// withdraw takes back what waits of a request whose caller leaves. A batch that nobody waits for any more is
// told to stop.
func (b *Batcher) withdraw(r *request, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.finished {
		return
	}
	b.stats.Cancelled++
	b.remove(r)
	r.fail(err)
	for _, t := range r.batches {
		if t.users--; t.users == 0 {
			t.cancel()
		}
	}
	r.batches = nil
}

// remove takes a request out of the queue. Call with mu held.
func (b *Batcher) remove(r *request) {
	for i, q := range b.queue {
		if q == r {
			b.rows -= r.hi - r.next
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.room.Broadcast()
			return
		}
	}
}

// reason is why a batch begins.
type reason int

const (
	notYet reason = iota
	full
	waited
	everyone
)

// ready says whether a batch should begin now. Call with mu held.
func (b *Batcher) ready(now time.Time) reason {
	if len(b.queue) == 0 {
		return notYet
	}
	users, calls := 0, 0
	for c := range b.clients {
		users += max(c.present, c.calls)
		calls += c.calls
	}
	switch {
	case b.rows >= b.most:
		return full
	case b.busy >= 2*b.devices:
		return notYet
	case calls >= users:
		return everyone
	case b.busy >= b.devices:
		return notYet
	case now.Sub(b.queue[0].since) >= b.cfg.MaxWait:
		return waited
	}
	return notYet
}

// piece is rows of a request in a batch.
type piece struct {
	r      *request
	lo, hi int
	at     int // row of the batch
}

// gather takes rows for a batch from the queue. Call with mu held.
func (b *Batcher) gather(t *batch) {
	for _, r := range b.queue {
		r.client.taken = 0
	}
	t.pieces, t.n, t.users = t.pieces[:0], 0, 0
	for t.n < b.most {
		r := b.choose(t)
		if r == nil {
			break
		}
		if r.next == 0 {
			b.stats.Wait += time.Since(r.since)
		}
		n := min(r.hi-r.next, b.most-t.n, max(1, b.share(r)))
		if last := len(t.pieces) - 1; last >= 0 && t.pieces[last].r == r {
			t.pieces[last].hi += n
		} else {
			t.pieces = append(t.pieces, piece{r, r.next, r.next + n, t.n})
			r.batches = append(r.batches, t)
			t.users++
		}
		if t.n == 0 {
			t.weights = r.weights
			t.uses++
		}
		r.next += n
		r.client.taken += n
		b.rows -= n
		t.n += n
		if r.next == r.hi {
			b.remove(r)
		}
	}
	b.room.Broadcast()
}

// choose returns the request that the next rows come from: of the highest priority, then of the client with the
// fewest rows in the batch, then the oldest. All must have the same weights.
func (b *Batcher) choose(t *batch) *request {
	var best *request
	for _, r := range b.queue {
		switch {
		case t.n > 0 && r.version != t.version:
		case best == nil, r.client.priority > best.client.priority,
			r.client.priority == best.client.priority && r.client.taken < best.client.taken:
			best = r
		}
	}
	return best
}

// share is how many rows of a request go into a batch at a time: an even part of it where several clients wait.
func (b *Batcher) share(r *request) int {
	others := 0
	for c := range b.clients {
		if c.calls > 0 && c.priority == r.client.priority {
			others++
		}
	}
	return (b.most + others - 1) / max(1, others)
}
