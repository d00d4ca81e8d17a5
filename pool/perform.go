package pool

import (
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/safe"
)

// scratch is the memory of one thread's work, reused.
type scratch struct {
	jobs              []job
	ids, order        []int32
	parents, children []int32
	actions           []int32

	out   []envs.Outcome
	errs  []error
	seen  []bool
	batch Batch // for workers: contiguous rows
	spec  *envs.Spec
}

// fit makes room for n rows.
func (sc *scratch) fit(n int) {
	sc.ids, sc.parents = grow(sc.ids, n), grow(sc.parents, n)
	sc.children, sc.actions = grow(sc.children, n), grow(sc.actions, n)
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

// take moves the oldest n jobs of the queue to the scratch. Call with the lock held.
func (p *Pool) take(n int, sc *scratch) {
	sc.jobs = append(sc.jobs[:0], p.queue[:n]...)
	p.queue = append(p.queue[:0], p.queue[n:]...)
}

// perform does jobs lo to hi-1 of the scratch, which has room for all of them, and writes their
// results to the same rows of b, the outcomes to sc.out and panics to sc.errs.
func (p *Pool) perform(sc *scratch, lo, hi int, b *Batch) {
	start := time.Now()
	moved := false
	for i := lo; i < hi; i++ {
		j := &sc.jobs[i]
		sc.ids[i], sc.parents[i], sc.children[i], sc.actions[i] = j.env, j.parent, j.child, j.action
		moved = moved || j.parent != j.child
	}
	w := work{p, sc, b, lo, hi}
	w.steps()
	if moved {
		p.live.Moved(sc.ids[lo:hi], sc.parents[lo:hi], sc.children[lo:hi])
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
	sc, a := w.sc, w.p.live.Arena()
	clear(sc.errs[w.lo:w.hi])
	all := true
	for i := w.lo; i < w.hi; i++ {
		all = all && sc.jobs[i].kind == jobStep
	}
	if all {
		w.stage(func(lo, hi int) {
			a.Step(sc.parents[lo:hi], sc.children[lo:hi], sc.actions[lo:hi], sc.out[lo:hi])
		})
		return
	}
	for i := w.lo; i < w.hi; i++ {
		w.stageRow(i, func() { w.one(i) })
	}
}

// one does job i alone.
func (w *work) one(i int) {
	p, sc := w.p, w.sc
	a, e := p.live.Arena(), sc.jobs[i].env
	slot, id := sc.children[i:i+1], sc.ids[i:i+1]
	if sc.jobs[i].kind == jobStep {
		a.Step(sc.parents[i:i+1], slot, sc.actions[i:i+1], sc.out[i:i+1])
		return
	}
	sc.out[i] = envs.Outcome{}
	p.elapsed[e] = -1
	seed := [1]uint64{p.seedOf(e)}
	p.episode[e]++
	if sc.jobs[i].kind == jobReset {
		a.Reset(slot, id, seed[:])
		return
	}
	if sc.parents[i] != slot[0] {
		_ = a.Copy(slot, a, sc.parents[i:i+1]) // the same arena: can't fail
	}
	a.Restart(slot, id, seed[:])
}

// endings writes the outcomes and, in the mode SameStep, starts the next episode where one ended.
func (w *work) endings() {
	p, sc := w.p, w.sc
	for i := w.lo; i < w.hi; i++ {
		e, o := sc.ids[i], &sc.out[i]
		p.elapsed[e]++
		w.b.outcome(i, o, p.elapsed[e])
		if (o.Terminated || o.Truncated) && p.cfg.Autoreset == SameStep && sc.errs[i] == nil {
			w.nextEpisode(i)
		}
	}
}

// nextEpisode keeps the last observation of row i's environment and starts its next episode.
func (w *work) nextEpisode(i int) {
	w.stageRow(i, func() {
		p, e := w.p, w.sc.ids[i]
		a, slot := p.live.Arena(), w.sc.children[i:i+1]
		a.Observe(slot, p.rows.final, int(e))
		seed := [1]uint64{p.seedOf(e)}
		p.episode[e]++
		p.elapsed[e] = 0
		a.Restart(slot, w.sc.ids[i:i+1], seed[:])
	})
}

// read writes what the states look like now.
func (w *work) read() {
	a, slots, b := w.p.live.Arena(), w.sc.children, w.b
	w.stage(func(lo, hi int) { a.Observe(slots[lo:hi], b.Obs, lo) })
	if b.Mask != nil {
		k := w.p.env.Spec().NumActions
		w.stage(func(lo, hi int) { a.Mask(slots[lo:hi], b.Mask[lo*k:hi*k]) })
	}
	if b.ToPlay != nil {
		w.stage(func(lo, hi int) { a.ToPlay(slots[lo:hi], b.ToPlay[lo:hi]) })
	}
}

// stage calls f for all rows, and again for the rest after a row whose environment panicked.
func (w *work) stage(f func(lo, hi int)) {
	for lo := w.lo; lo < w.hi; {
		err := guarded(func() { f(lo, w.hi) })
		if err == nil {
			return
		}
		row := 0
		if p, ok := err.Value.(*envs.RowPanicError); ok {
			row, err = p.Row, &safe.PanicError{Value: p.Value, Stack: p.Stack}
		}
		w.fail(lo+row, err)
		lo += row + 1
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

// hire starts as many workers as the queue deserves. Call with the lock held.
func (p *Pool) hire() {
	for p.running < p.threads && p.running < len(p.queue) {
		p.running++
		if !p.workers.Start(p.drain) {
			p.running--
			return
		}
	}
}

// drain does jobs until the queue is empty. It is the body of a worker.
func (p *Pool) drain() {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	p.mu.Lock()
	defer p.mu.Unlock()
	// A worker may come round late and find work that meanwhile waits for Recv.
	for len(p.queue) > 0 && !p.inline {
		p.take(min(p.chunk(), len(p.queue)), sc)
		p.mu.Unlock()
		sc.fit(len(sc.jobs))
		b := sc.rows(p.env.Spec())
		p.perform(sc, 0, len(sc.jobs), b)
		p.keep(sc, b)
		p.mu.Lock()
		p.done = append(p.done, sc.ids...)
		p.wake.Broadcast()
	}
	p.running--
	p.wake.Broadcast()
}

// rows returns the scratch's own batch, with room for its jobs.
func (sc *scratch) rows(spec *envs.Spec) *Batch {
	if n := len(sc.jobs); sc.spec != spec || len(sc.batch.ToPlay) < n {
		sc.spec = spec
		sc.batch = Batch{
			Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
			ToPlay: make([]int32, n), Elapsed: make([]int32, n),
		}
	}
	return &sc.batch
}

// keep copies the results of a worker to the environments' own rows.
func (p *Pool) keep(sc *scratch, b *Batch) {
	k, r := p.env.Spec().NumActions, &p.rows
	for i, e := range sc.ids {
		for a := range r.Obs {
			r.Obs[a].CopyRow(int(e), &b.Obs[a], i)
		}
		copy(r.Mask[int(e)*k:(int(e)+1)*k], b.Mask[i*k:(i+1)*k])
		r.outcome[e], r.errs[e] = sc.out[i], sc.errs[i]
		r.Elapsed[e], r.ToPlay[e] = b.Elapsed[i], b.ToPlay[i]
	}
}

// chunk returns how many jobs a worker takes at a time: about 100 us of work, so that taking them
// costs little and a slow environment holds up few others.
func (p *Pool) chunk() int {
	cost := p.cost.Cost()
	if cost == 0 {
		return 1
	}
	return max(1, min(int(dispatch.ShardNanos/cost), len(p.queue)/p.threads))
}
