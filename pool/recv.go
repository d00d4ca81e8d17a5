package pool

import (
	"fmt"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
)

// Batch is where Recv writes, in the caller's memory, with room for NumEnvs rows when BatchSize is
// NumEnvs, else for BatchSize. Nil arrays aren't written.
type Batch struct {
	EnvID      []int32
	Obs        []envs.Array
	Mask       []bool    // [B, A]
	Reward     []float32 // to the player who moved
	Terminated []bool
	Truncated  []bool
	ToPlay     []int32 // the player to move now
	Elapsed    []int32 // steps of the episode, the one just ended if it did
	Done       int     // how many rows ended: written by Recv
}

// rows holds the last results of every environment, a row each.
type rows struct {
	Batch
	outcome []envs.Outcome
	final   []envs.Array // the last observation of an episode that just ended (SameStep)
	errs    []error      // a panic of the environment
}

func newRows(spec *envs.Spec, n int) rows {
	return rows{
		Batch: Batch{
			Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
			ToPlay: make([]int32, n), Elapsed: make([]int32, n),
		},
		outcome: make([]envs.Outcome, n),
		final:   envs.NewArrays(spec.Obs, n),
		errs:    make([]error, n),
	}
}

// Recv waits for results and writes them to b: all environments in flight if BatchSize is NumEnvs,
// in the order they were sent; else BatchSize of them, first ready first. It returns the number of
// rows. A negative timeout waits for ever; after a timeout (ErrTimeout) nothing is lost. (With the
// dispatch Inline the calling thread does the work, and the timeout isn't kept.) With fewer
// environments in flight than rows wanted, and none to come, it is ErrNothing at once.
//
// If the code of an environment panicked, Recv returns the rows and an error that names it; that
// environment must be reset before it is sent anything.
func (p *Pool) Recv(timeout time.Duration, b *Batch) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, err := p.wanted()
	if err != nil {
		return 0, err
	}
	b.Done = 0
	if p.inline && timeout >= 0 && p.cfg.Dispatch != dispatch.Inline {
		p.handOver() // so that the time can be kept
	}
	if p.inline {
		return want, p.recvInline(want, b)
	}
	if err := p.wait(want, timeout); err != nil {
		return 0, err
	}
	return want, p.collect(want, b)
}

// wanted returns how many rows a Recv gets now. Call with the lock held.
func (p *Pool) wanted() (int, error) {
	switch {
	case p.closed:
		return 0, ErrClosed
	case p.out == 0:
		return 0, ErrNothing
	case p.cfg.BatchSize == p.cfg.NumEnvs:
		return p.out, nil
	case p.out < p.cfg.BatchSize:
		return 0, fmt.Errorf("%w: %d in flight, batch_size is %d", ErrNothing, p.out, p.cfg.BatchSize)
	}
	return p.cfg.BatchSize, nil
}

// recvInline does the oldest want jobs on this thread, straight into b. Call with the lock held; it
// is free while the environments run.
func (p *Pool) recvInline(want int, b *Batch) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	p.take(want, sc)
	sc.fit(want)
	p.out -= want
	p.running++
	p.mu.Unlock()
	if shards := p.cost.Shards(want); shards > 1 {
		p.workers.Run(want, shards, func(lo, hi int) { p.perform(sc, lo, hi, b) })
	} else {
		p.perform(sc, 0, want, b)
	}
	p.mu.Lock()
	p.running--
	p.wake.Broadcast()
	var failed error
	for i := range sc.jobs {
		e := sc.jobs[i].env
		put(b.EnvID, i, e)
		failed = p.settle(e, &sc.out[i], sc.errs[i], b, failed)
	}
	return failed
}

// wait blocks until enough rows are ready. Call with the lock held.
func (p *Pool) wait(want int, timeout time.Duration) error {
	late := false
	if timeout >= 0 && len(p.done) < want {
		timer := time.AfterFunc(timeout, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			late = true
			p.wake.Broadcast()
		})
		defer timer.Stop()
	}
	for len(p.done) < want {
		switch {
		case p.closed:
			return ErrClosed
		case late:
			return fmt.Errorf("%w: %d of %d rows ready after %v", ErrTimeout, len(p.done), want, timeout)
		}
		p.wake.Wait()
	}
	return nil
}

// collect moves want ready rows of the workers to b. Call with the lock held.
func (p *Pool) collect(want int, b *Batch) error {
	ids := p.done[:want]
	if p.cfg.BatchSize == p.cfg.NumEnvs {
		copy(ids, p.sent)
	}
	p.sent = p.sent[:0]
	var failed error
	for i, e := range ids {
		p.rows.copyTo(b, i, int(e), p.env.Spec().NumActions)
		failed = p.settle(e, &p.rows.outcome[e], p.rows.errs[e], b, failed)
		p.rows.errs[e] = nil
	}
	p.done = append(p.done[:0], p.done[want:]...)
	p.out -= want
	return failed
}

// settle ends the flight of an environment. It returns failed, or the environment's own error if
// that is the first. Call with the lock held.
func (p *Pool) settle(e int32, o *envs.Outcome, err error, b *Batch, failed error) error {
	p.status[e] = ready
	if o.Terminated || o.Truncated {
		b.Done++
		if p.cfg.Autoreset != SameStep {
			p.status[e] = ended
		}
	}
	if err == nil {
		return failed
	}
	p.status[e] = fresh
	if failed != nil {
		return failed
	}
	return fmt.Errorf("pool: env_id %d: %w", e, err)
}

// copyTo copies environment e's row to row i of b.
func (r *rows) copyTo(b *Batch, i, e, actions int) {
	put(b.EnvID, i, int32(e))
	for k := range b.Obs {
		b.Obs[k].CopyRow(i, &r.Obs[k], e)
	}
	if b.Mask != nil {
		copy(b.Mask[i*actions:(i+1)*actions], r.Mask[e*actions:(e+1)*actions])
	}
	b.outcome(i, &r.outcome[e], r.Elapsed[e])
	put(b.ToPlay, i, r.ToPlay[e])
}

// outcome writes what a step brought to row i.
func (b *Batch) outcome(i int, o *envs.Outcome, elapsed int32) {
	put(b.Reward, i, o.Reward)
	put(b.Terminated, i, o.Terminated)
	put(b.Truncated, i, o.Truncated)
	put(b.Elapsed, i, elapsed)
}

func put[T any](x []T, i int, v T) {
	if x != nil {
		x[i] = v
	}
}

// FinalObs copies the last observations of the episodes that the environments ids just ended
// (SameStep), one row an id. Call it between their Recv and their next Send.
func (p *Pool) FinalObs(ids []int32, out []envs.Array) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkIdle(ids, sc); err != nil {
		return err
	}
	for i, e := range ids {
		for k := range out {
			out[k].CopyRow(i, &p.rows.final[k], int(e))
		}
	}
	return nil
}
