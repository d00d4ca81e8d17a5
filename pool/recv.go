package pool

import (
	"errors"
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
	Mask       []bool       // [B, A]
	Info       []envs.Array // Spec.Info
	Reward     []float32    // to the player who moved
	Rewards    []float32    // [B, P] to each player
	Terminated []bool
	Truncated  []bool
	Over       []bool  // either of both
	Failed     []bool  // the environment panicked: nothing else of the row counts
	ToPlay     []int32 // the player to move now
	Elapsed    []int32 // steps of the episode, the one just ended if it did

	// The last observation and info of the episodes that ended and began anew (SameStep), a row for each
	// entry of Over that is true.
	Final, FinalInfo []envs.Array
	Done             int // how many rows ended: written by Recv
}

// rows holds the last results of every environment, a row each.
type rows struct {
	Batch
	outcome []envs.Outcome
	errs    []error // a panic of the environment

	// The last observation and info of an episode that just ended (SameStep).
	final, finalInfo []envs.Array
}

func newRows(spec *envs.Spec, n int) rows {
	return rows{
		Batch: Batch{
			Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
			ToPlay: make([]int32, n), Elapsed: make([]int32, n),
			Info: envs.NewArrays(spec.Info, n), Rewards: newRewards(spec, n),
		},
		outcome:   make([]envs.Outcome, n),
		final:     envs.NewArrays(spec.Obs, n),
		finalInfo: envs.NewArrays(spec.Info, n),
		errs:      make([]error, n),
	}
}

// newRewards returns room for everybody's rewards; nil for a single player.
func newRewards(spec *envs.Spec, n int) []float32 {
	if spec.NumPlayers == 1 {
		return nil
	}
	return make([]float32, n*spec.NumPlayers)
}

// Recv waits for results and writes them to b: all environments in flight if BatchSize is NumEnvs,
// in the order they were sent; else BatchSize of them, first ready first. It returns the number of
// rows. A negative timeout waits for ever; after a timeout (ErrTimeout) nothing is lost. (With the
// dispatch Inline the calling thread does the work, and the timeout isn't kept.) With fewer
// environments in flight than rows wanted, and none to come, it is ErrNothing at once.
//
// If the code of environments panicked, Recv returns the rows and an error that names them; those
// environments must be reset before they are sent anything.
func (p *Pool) Recv(timeout time.Duration, b *Batch) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.Done = 0
	if p.inline && timeout >= 0 && p.cfg.Dispatch != dispatch.Inline {
		p.handOver() // so that the time can be kept
	}
	if p.inline {
		want, err := p.wanted()
		if err != nil {
			return 0, err
		}
		return want, p.recvInline(want, b)
	}
	want, err := p.wait(timeout)
	if err != nil {
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
	p.queue.move(want, &sc.jobs)
	sc.fit()
	p.out -= want
	p.guests++
	p.mu.Unlock()
	if shards := p.cost.Shards(want); shards > 1 {
		p.workers.Run(want, shards, func(lo, hi int) { p.perform(sc, lo, hi, b) })
	} else {
		p.perform(sc, 0, want, b)
	}
	p.mu.Lock()
	p.guests--
	p.wake.Broadcast()
	copy(b.EnvID, sc.env)
	return p.settle(sc.env, sc.out, sc.errs, b)
}

// wait blocks until enough rows are ready, and returns how many a Recv gets: while it waits, others may send
// or receive. Call with the lock held.
func (p *Pool) wait(timeout time.Duration) (want int, err error) {
	late := false
	if timeout >= 0 {
		timer := time.AfterFunc(timeout, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			late = true
			p.wake.Broadcast()
		})
		defer timer.Stop()
	}
	for {
		if want, err = p.wanted(); err != nil || len(p.done) >= want {
			return want, err
		}
		if late {
			return 0, fmt.Errorf("%w: %d of %d rows ready after %v", ErrTimeout, len(p.done), want, timeout)
		}
		p.wake.Wait()
	}
}

// collect moves want ready rows of the workers to b. Call with the lock held.
func (p *Pool) collect(want int, b *Batch) error {
	ids := p.done[:want]
	if p.cfg.BatchSize == p.cfg.NumEnvs {
		copy(ids, p.sent)
	}
	p.sent = p.sent[:0]
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	sc.out, sc.errs = grow(sc.out, want), grow(sc.errs, want)
	runs(ids, func(i, e, n int) {
		p.rows.copyTo(b, i, e, n, p.env.Spec())
		copy(sc.out[i:i+n], p.rows.outcome[e:e+n])
		copy(sc.errs[i:i+n], p.rows.errs[e:e+n])
		clear(p.rows.errs[e : e+n])
	})
	copy(b.EnvID, ids)
	b.outcomes(sc.out, 0, want)
	failed := p.settle(ids, sc.out, sc.errs, b)
	p.done = append(p.done[:0], p.done[want:]...)
	p.out -= want
	return failed
}

// settle ends the flight of environments. It returns an error that names those that panicked. Call with the
// lock held.
func (p *Pool) settle(ids []int32, out []envs.Outcome, errs []error, b *Batch) error {
	for _, e := range ids {
		p.status[e] = ready
	}
	for i := range out {
		if out[i].Terminated || out[i].Truncated {
			p.end(ids[i], b)
		}
	}
	clear(b.Failed)
	var failed []error
	for i, err := range errs {
		if err != nil {
			put(b.Failed, i, true)
			p.status[ids[i]] = fresh
			failed = append(failed, fmt.Errorf("pool: env_id %d: %w", ids[i], err))
		}
	}
	if p.logs != nil {
		p.startNewLogs(ids)
	}
	return errors.Join(failed...)
}

// end notes that an episode ended. Call with the lock held.
func (p *Pool) end(e int32, b *Batch) {
	if p.cfg.Autoreset != SameStep {
		p.status[e] = ended
	}
	for k := range b.Final {
		b.Final[k].CopyRow(b.Done, &p.rows.final[k], int(e))
	}
	for k := range b.FinalInfo {
		b.FinalInfo[k].CopyRow(b.Done, &p.rows.finalInfo[k], int(e))
	}
	b.Done++
}

// copyTo copies the rows of n environments from e on to row i of b and on, but for their outcomes.
func (r *rows) copyTo(b *Batch, i, e, n int, spec *envs.Spec) {
	actions, players := spec.NumActions, spec.NumPlayers
	for k := range b.Obs {
		b.Obs[k].CopyRows(i, &r.Obs[k], e, n)
	}
	for k := range b.Info {
		b.Info[k].CopyRows(i, &r.Info[k], e, n)
	}
	if b.Rewards != nil && players > 1 {
		copy(b.Rewards[i*players:], r.Rewards[e*players:(e+n)*players])
	}
	if b.Mask != nil {
		copy(b.Mask[i*actions:], r.Mask[e*actions:(e+n)*actions])
	}
	if b.Elapsed != nil {
		copy(b.Elapsed[i:], r.Elapsed[e:e+n])
	}
	if b.ToPlay != nil {
		copy(b.ToPlay[i:], r.ToPlay[e:e+n])
	}
}

// outcomes writes what steps brought to rows lo to hi-1, and returns whether one of them ended an episode.
func (b *Batch) outcomes(out []envs.Outcome, lo, hi int) (any bool) {
	for i := lo; i < hi; i++ {
		o := &out[i]
		over := o.Terminated || o.Truncated
		any = any || over
		put(b.Reward, i, o.Reward)
		put(b.Terminated, i, o.Terminated)
		put(b.Truncated, i, o.Truncated)
		put(b.Over, i, over)
	}
	return any
}

func put[T any](x []T, i int, v T) {
	if x != nil {
		x[i] = v
	}
}
