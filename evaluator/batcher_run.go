package evaluator

import (
	"context"
	"fmt"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/safe"
)

// batch is the memory of a stream: one batch at a time.
type batch struct {
	in     Batch
	out    Output
	legal  []bool // [MaxBatch, A]
	chance []bool // [MaxBatch]

	*weights
	pieces []piece
	n      int
	users  int // requests whose callers still wait; guarded by Batcher.mu
	cancel context.CancelFunc
}

// reserve makes the memory of a batch.
func (b *Batcher) reserve(t *batch) {
	n, a := b.cfg.MaxBatch, b.spec.NumActions
	t.in = Batch{Spec: b.spec, Obs: envs.NewArrays(b.spec.Obs, n)}
	t.legal, t.chance = make([]bool, n*a), make([]bool, n)
	t.out = Output{Logits: make([]float32, n*a), Value: make([]float32, n)}
}

// stream makes batches and evaluates them, until Close.
func (b *Batcher) stream() {
	t := &batch{}
	for {
		ctx, ok := b.next(t)
		if !ok {
			return
		}
		if t.in.Spec == nil {
			b.reserve(t)
		}
		began := time.Now()
		err := safe.Call(func() error { return t.evaluate(ctx) })
		b.finish(t, err, time.Since(began))
	}
}

// next waits for a batch.
func (b *Batcher) next(t *batch) (context.Context, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && b.running <= b.wanted {
		switch b.ready(time.Now()) {
		case notYet:
			if len(b.queue) > 0 && b.busy < b.devices {
				b.timer.Reset(b.cfg.MaxWait - time.Since(b.queue[0].since))
			}
			b.work.Wait()
			continue
		case full:
			b.stats.Full++
		case waited:
			b.stats.Waited++
		case everyone:
			b.stats.Everyone++
		}
		var ctx context.Context
		ctx, t.cancel = context.WithCancel(b.ctx)
		b.gather(t)
		b.busy++
		if len(b.queue) > 0 { // there may be enough for another stream
			b.work.Signal()
		}
		return ctx, true
	}
	b.running--
	b.work.Signal() // the call may have been meant for one that stays
	return nil, false
}

// evaluate fills the batch, has it evaluated and gives every request its answers.
func (t *batch) evaluate(ctx context.Context) error {
	t.copyIn()
	if err := t.ev.Evaluate(ctx, &t.in, &t.out); err != nil {
		return err
	}
	if n := len(t.out.Errors); t.out.Errors != nil && n < t.n {
		return fmt.Errorf("evaluator: errors of %d rows; want %d", n, t.n)
	}
	for i := range t.pieces {
		t.pieces[i].copyOut(t)
	}
	return nil
}

// copyIn copies the rows of the requests whose callers are still there. Rows of others are whatever they were.
func (t *batch) copyIn() {
	t.in.N, t.in.Legal, t.in.Chance = t.n, nil, nil
	t.out.Uniform, t.out.Errors = false, nil
	for i := range t.pieces {
		t.pieces[i].copyIn(t)
	}
}

func (p *piece) copyIn(t *batch) {
	r := p.r
	r.memory.Lock()
	defer r.memory.Unlock()
	if r.gone {
		return
	}
	n := p.hi - p.lo
	for k := range t.in.Obs {
		t.in.Obs[k].CopyRows(p.at, &r.in.Obs[k], p.lo, n)
	}
	a := t.in.Spec.NumActions
	legal := t.legal[p.at*a : (p.at+n)*a]
	if r.in.Legal != nil {
		t.in.Legal = t.legal
		copy(legal, r.in.Legal[p.lo*a:])
	} else {
		for i := range legal {
			legal[i] = true
		}
	}
	if r.in.Chance != nil {
		t.in.Chance = t.chance
		copy(t.chance[p.at:], r.in.Chance[p.lo:p.hi])
	} else {
		clear(t.chance[p.at : p.at+n])
	}
}

// finish lets the callers of a batch go on.
func (b *Batcher) finish(t *batch, err error, took time.Duration) {
	b.settle(t, err, took)
	t.cancel()
	b.mu.Lock()
	t.uses--
	free := t.free()
	b.mu.Unlock()
	free()
}

// settle counts a batch, and finishes the requests that have all their answers.
func (b *Batcher) settle(t *batch, err error, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && b.closed {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	b.busy--
	b.work.Broadcast() // a batch that isn't full may be next
	s := &b.stats
	s.Batches++
	s.Rows += t.n
	s.Busy += took
	s.LargestBatch = max(s.LargestBatch, t.n)
	if err != nil {
		s.Failed++
	}
	for _, p := range t.pieces {
		p.r.drop(t)
		if err != nil {
			b.remove(p.r) // what still waits of it fails too
			p.r.fail(err)
		} else if p.r.left -= p.hi - p.lo; p.r.left == 0 {
			p.r.finish()
		}
	}
}

// drop forgets a batch that ended.
func (r *request) drop(t *batch) {
	for i, x := range r.batches {
		if x == t {
			r.batches = append(r.batches[:i], r.batches[i+1:]...)
			return
		}
	}
}

func (p *piece) copyOut(t *batch) {
	r := p.r
	r.memory.Lock()
	defer r.memory.Unlock()
	if r.gone {
		return
	}
	a, n := t.in.Spec.NumActions, p.hi-p.lo
	copy(r.out.Value[p.lo:p.hi], t.out.Value[p.at:p.at+n])
	to := r.out.Logits[p.lo*a : p.hi*a]
	if t.out.Uniform {
		clear(to)
	} else {
		copy(to, t.out.Logits[p.at*a:])
	}
	if t.out.Errors == nil {
		return
	}
	for i, err := range t.out.Errors[p.at : p.at+n] {
		if err != nil {
			r.out.Fail(p.lo+i, r.in.N, err)
		}
	}
}
