package pool

import (
	"slices"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/safe"
)

// scratch is the memory of one thread's work, reused.
type scratch struct {
	jobs
	order, movers, slots []int32
	was                  []status

	out   []envs.Outcome
	errs  []error
	seen  []bool
	batch Batch // for workers: contiguous rows
	spec  *envs.Spec
}

// fit makes room for the results of the jobs.
func (sc *scratch) fit() {
	n := sc.len()
	sc.movers = grow(sc.movers, n)
	sc.out, sc.errs = grow(sc.out, n), grow(sc.errs, n)
}

func grow[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n, n+n/2)
	}
	return x[:n]
}

// upTo returns 0, 1, ..., n-1.
func (sc *scratch) upTo(n int) []int32 {
	for len(sc.order) < n {
		sc.order = append(sc.order, int32(len(sc.order)))
	}
	return sc.order[:n]
}

// marks returns n flags, all false; unmark them after use.
func (sc *scratch) marks(n int) []bool {
	if len(sc.seen) < n {
		sc.seen = make([]bool, n)
	}
	return sc.seen
}

func (sc *scratch) unmark(ids []int32) {
	for _, e := range ids {
		if e >= 0 && int(e) < len(sc.seen) {
			sc.seen[e] = false
		}
	}
}

// perform does jobs lo to hi-1 of the scratch, which has room for all of them, and writes their
// results to the same rows of b, the outcomes to sc.out and panics to sc.errs.
func (p *Pool) perform(sc *scratch, lo, hi int, b *Batch) {
	start := time.Now()
	w := work{p, sc, b, lo, hi}
	w.steps()
	if !slices.Equal(sc.parent[lo:hi], sc.child[lo:hi]) {
		p.live.Moved(sc.env[lo:hi], sc.parent[lo:hi], sc.child[lo:hi])
	}
	w.endings()
	w.read()
	p.cost.Learn(hi-lo, time.Since(start))
}

// work is some rows of a batch in the hands of one thread.
type work struct {
	p      *Pool
	sc     *scratch
	b      *Batch
	lo, hi int
}

// steps does what the jobs say to the states.
func (w *work) steps() {
	sc := w.sc
	clear(sc.errs[w.lo:w.hi])
	timed := w.p.timing.due(sc.env[w.lo], w.p.cost.Cost())
	for lo := w.lo; lo < w.hi; {
		hi := lo + 1
		for ; hi < w.hi && sc.kind[lo] == jobStep && sc.kind[hi] == jobStep; hi++ {
		}
		switch {
		case sc.kind[lo] != jobStep:
			w.stageRow(lo, func() { w.begin(lo) })
		case timed:
			w.timedSteps(lo, hi)
		default:
			w.stepRows(lo, hi)
		}
		lo = hi
	}
}

// stepRows does what rows lo to hi-1 say, which are all steps.
func (w *work) stepRows(lo, hi int) {
	sc, a := w.sc, w.p.live.Arena()
	if w.b.Rewards != nil {
		w.stage(lo, hi, func(lo, hi int) { a.ToPlay(sc.parent[lo:hi], sc.movers[lo:hi]) })
	}
	w.stage(lo, hi, func(lo, hi int) {
		a.Step(sc.parent[lo:hi], sc.child[lo:hi], sc.action[lo:hi], sc.out[lo:hi])
	})
	if n := w.p.env.Spec().NumPlayers; w.b.Rewards != nil {
		w.stage(lo, hi, func(lo, hi int) {
			a.Rewards(sc.child[lo:hi], sc.movers[lo:hi], sc.out[lo:hi], w.b.Rewards[lo*n:hi*n])
		})
	}
}

// timedSteps steps rows lo to hi-1 by the clock: one by one, or all together where the rules do that.
func (w *work) timedSteps(lo, hi int) {
	part := 1
	if w.p.env.Capabilities().Batches {
		part = hi - lo
	}
	for ; lo < hi; lo += part {
		start := time.Now()
		w.stepRows(lo, lo+part)
		took := time.Since(start) / time.Duration(part)
		for _, e := range w.sc.env[lo : lo+part] {
			w.p.timing.note(e, took)
		}
	}
}

// begin starts an episode in row i.
func (w *work) begin(i int) {
	p, sc := w.p, w.sc
	a, e := p.live.Arena(), sc.env[i]
	slot, id := sc.child[i:i+1], sc.env[i:i+1]
	sc.out[i] = envs.Outcome{}
	w.clearRewards(i)
	p.elapsed[e] = -1
	seed := p.nextSeed(e, sc.kind[i])
	if sc.kind[i] == jobReset {
		a.Reset(slot, id, seed)
		return
	}
	if sc.parent[i] != slot[0] {
		_ = a.Copy(slot, a, sc.parent[i:i+1]) // the same arena: can't fail
	}
	a.Restart(slot, id, seed)
}

// endings writes the outcomes and, in the mode SameStep, starts the next episode where one ended.
func (w *work) endings() {
	p, sc := w.p, w.sc
	for i := w.lo; i < w.hi; i++ {
		e := sc.env[i]
		p.elapsed[e]++
		put(w.b.Elapsed, i, p.elapsed[e])
	}
	over := w.b.outcomes(sc.out, w.lo, w.hi)
	p.log(sc, w.lo, w.hi)
	if !over || p.cfg.Autoreset != SameStep {
		return
	}
	for i := w.lo; i < w.hi; i++ {
		if o := &sc.out[i]; (o.Terminated || o.Truncated) && sc.errs[i] == nil {
			w.nextEpisode(i)
		}
	}
}

// nextEpisode keeps the last observation of row i's environment and starts its next episode.
func (w *work) nextEpisode(i int) {
	w.stageRow(i, func() {
		p, e := w.p, w.sc.env[i]
		a, slot := p.live.Arena(), w.sc.child[i:i+1]
		a.Observe(slot, p.rows.final, int(e))
		a.Info(slot, p.rows.finalInfo, int(e))
		seed := p.nextSeed(e, jobRestart)
		p.elapsed[e] = 0
		p.unlog(e)
		a.Restart(slot, w.sc.env[i:i+1], seed)
	})
}

// read writes what the states look like now.
func (w *work) read() {
	a, slots, b := w.p.live.Arena(), w.sc.child, w.b
	w.stage(w.lo, w.hi, func(lo, hi int) { a.Observe(slots[lo:hi], b.Obs, lo) })
	if b.Info != nil {
		w.stage(w.lo, w.hi, func(lo, hi int) { a.Info(slots[lo:hi], b.Info, lo) })
	}
	if b.Mask != nil {
		k := w.p.env.Spec().NumActions
		w.stage(w.lo, w.hi, func(lo, hi int) { a.Mask(slots[lo:hi], b.Mask[lo*k:hi*k]) })
	}
	if b.ToPlay != nil {
		w.stage(w.lo, w.hi, func(lo, hi int) { a.ToPlay(slots[lo:hi], b.ToPlay[lo:hi]) })
	}
}

// stage calls f for rows lo to hi-1, and again for the rest after a row whose environment panicked.
func (w *work) stage(lo, hi int, f func(lo, hi int)) {
	for lo < hi {
		err := guarded(func() { f(lo, hi) })
		if err == nil {
			return
		}
		first, last := 0, 0
		if p, ok := err.Value.(*envs.RowPanicError); ok {
			first, last, err = p.Row, p.Row, &safe.PanicError{Value: p.Value, Stack: p.Stack}
			if p.All {
				first, last = 0, hi-lo-1
			}
		}
		for row := first; row <= last; row++ {
			w.fail(lo+row, err)
		}
		lo += last + 1
	}
}

// stageRow calls f, which is about row i alone.
func (w *work) stageRow(i int, f func()) {
	if err := guarded(f); err != nil {
		if p, ok := err.Value.(*envs.RowPanicError); ok {
			err = &safe.PanicError{Value: p.Value, Stack: p.Stack}
		}
		w.fail(i, err)
	}
}

func (w *work) fail(i int, err error) {
	w.sc.errs[i], w.sc.out[i] = err, envs.Outcome{}
	w.clearRewards(i)
}

// clearRewards says that row i's step brought nobody anything.
func (w *work) clearRewards(i int) {
	if n := w.p.env.Spec().NumPlayers; w.b.Rewards != nil {
		clear(w.b.Rewards[i*n : (i+1)*n])
	}
}

func guarded(f func()) (err *safe.PanicError) {
	defer func() {
		if v := recover(); v != nil {
			err = safe.NewPanic(v)
		}
	}()
	f()
	return nil
}

// hire starts as many workers as the queue deserves, beside those that are busy. Call with the lock held.
func (p *Pool) hire() {
	for p.coming+p.busy < p.threads && p.coming < p.queue.len() {
		if !p.steppers.start(p.drain) {
			return
		}
		p.coming++
	}
}

// drain does jobs until the queue is empty. It is the body of a worker.
func (p *Pool) drain() {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming--
	// A worker may come round late and find work that meanwhile waits for Recv.
	for p.queue.len() > 0 && !p.inline {
		p.queue.move(min(p.chunk(), p.queue.len()), &sc.jobs)
		p.busy++
		p.mu.Unlock()
		sc.fit()
		b := sc.rows(p.env.Spec())
		p.perform(sc, 0, sc.len(), b)
		p.keep(sc, b)
		p.mu.Lock()
		p.busy--
		p.done = append(p.done, sc.env...)
		p.wake.Broadcast()
	}
	p.wake.Broadcast()
}

// rows returns the scratch's own batch, with room for its jobs.
func (sc *scratch) rows(spec *envs.Spec) *Batch {
	if n := sc.len(); sc.spec != spec || len(sc.batch.ToPlay) < n {
		sc.spec = spec
		sc.batch = Batch{
			Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
			ToPlay: make([]int32, n), Elapsed: make([]int32, n),
			Info: envs.NewArrays(spec.Info, n), Rewards: newRewards(spec, n),
		}
	}
	return &sc.batch
}

// keep copies the results of a worker to the environments' own rows.
func (p *Pool) keep(sc *scratch, b *Batch) {
	k, players, r := p.env.Spec().NumActions, p.env.Spec().NumPlayers, &p.rows
	runs(sc.env, func(i, e, n int) {
		for a := range r.Obs {
			r.Obs[a].CopyRows(e, &b.Obs[a], i, n)
		}
		for a := range r.Info {
			r.Info[a].CopyRows(e, &b.Info[a], i, n)
		}
		copy(r.Mask[e*k:(e+n)*k], b.Mask[i*k:(i+n)*k])
		if r.Rewards != nil {
			copy(r.Rewards[e*players:(e+n)*players], b.Rewards[i*players:(i+n)*players])
		}
		copy(r.outcome[e:e+n], sc.out[i:i+n])
		copy(r.errs[e:e+n], sc.errs[i:i+n])
		copy(r.Elapsed[e:e+n], b.Elapsed[i:i+n])
		copy(r.ToPlay[e:e+n], b.ToPlay[i:i+n])
	})
}

// runs calls f for each run of consecutive environments: rows i to i+n-1 are those of e to e+n-1.
func runs(ids []int32, f func(i, e, n int)) {
	for i := 0; i < len(ids); {
		n := 1
		for i+n < len(ids) && ids[i+n] == ids[i]+int32(n) {
			n++
		}
		f(i, int(ids[i]), n)
		i += n
	}
}

// chunk returns how many jobs a worker takes at a time: about 100 us of work, so that taking them
// costs little and a slow environment holds up few others.
func (p *Pool) chunk() int {
	cost := p.cost.Cost()
	if cost == 0 {
		return 1
	}
	return max(1, min(int(dispatch.ShardNanos/cost), p.queue.len()/p.threads))
}
