package pool

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"

	"github.com/azserve/azserve/internal/safe"
	"github.com/panjf2000/ants/v2"
)

// ErrThreads is returned for a number of threads that can't be.
var ErrThreads = errors.New("pool: bad number of threads")

// ThreadsVariable is the environment variable with the default number of threads.
const ThreadsVariable = "AZSERVE_NUM_THREADS"

// Threads returns the number of threads to use: requested if positive, else the variable
// AZSERVE_NUM_THREADS if set and not empty, else the CPUs this process may use (affinity and cgroup
// quota), the last at most limit. limit 0 means no limit.
func Threads(requested, limit int) (int, error) {
	if requested < 0 {
		return 0, fmt.Errorf("%w: %d; want 0 (default) or more", ErrThreads, requested)
	}
	if requested > 0 {
		return requested, nil
	}
	if v := os.Getenv(ThreadsVariable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%w: %s=%q; want a positive integer", ErrThreads, ThreadsVariable, v)
		}
		return n, nil
	}
	n := runtime.GOMAXPROCS(0)
	if limit > 0 {
		n = min(n, limit)
	}
	return n, nil
}

// Workers is a fixed set of threads that share batches. Safe for concurrent use. A function that
// runs on it must not call Run itself: all workers could end up waiting.
type Workers struct {
	pool *ants.PoolWithFuncGeneric[*shard]
	size int
	runs sync.Pool // *run
}

// run is one call of Run.
type run struct {
	shards []shard
	wait   sync.WaitGroup
	err    safe.First
}

// shard is one part of a run.
type shard struct {
	run    *run
	f      func(lo, hi int)
	lo, hi int
}

// NewWorkers starts size workers, to be ended by Close.
func NewWorkers(size int) (*Workers, error) { return NewPinned(size, nil) }

// NewPinned is NewWorkers with worker t bound to CPU cpus[t % len(cpus)]; without cpus the system decides.
// Work that a caller does itself stays on the caller's thread.
func NewPinned(size int, cpus []int) (*Workers, error) { return newWorkers(size, cpus, true) }

// newWorkers makes workers that turn work down when none is free, or else let the caller wait.
func newWorkers(size int, cpus []int, turnDown bool) (*Workers, error) {
	if size < 1 {
		return nil, fmt.Errorf("%w: %d workers; want at least 1", ErrThreads, size)
	}
	w := &Workers{size: size}
	w.runs.New = func() any { return &run{} }
	options := []ants.Option{ants.WithDisablePurge(true), ants.WithNonblocking(turnDown)}
	p, err := ants.NewPoolWithFuncGeneric(size, (*shard).do, options...)
	if err != nil {
		return nil, fmt.Errorf("pool: starting %d workers: %w", size, err)
	}
	w.pool = p
	if len(cpus) == 0 {
		return w, nil
	}
	if err := w.pin(cpus); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// pin gives every worker one task at the same time; each binds its own goroutine, which then serves the
// pool until it ends.
func (w *Workers) pin(cpus []int) error {
	errs := make([]error, w.size)
	var here, done sync.WaitGroup
	here.Add(w.size)
	done.Add(w.size)
	for t := range w.size {
		w.start(func() {
			defer done.Done()
			here.Done()
			here.Wait() // nobody is free again before all have begun
			errs[t] = pinThread(cpus[t%len(cpus)])
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// Size returns the number of workers.
func (w *Workers) Size() int { return w.size }

// Run calls f on shards contiguous parts of 0..n-1 at the same time and returns when all are done.
// The calling thread does the first part, and those for which no worker is free. A panic of f is raised
// again on the calling thread, as a *safe.PanicError, after the other parts are done. After Close everything
// runs on the caller.
func (w *Workers) Run(n, shards int, f func(lo, hi int)) {
	shards = max(1, min(shards, n))
	r := w.runs.Get().(*run)
	defer w.runs.Put(r)
	if cap(r.shards) < shards {
		r.shards = make([]shard, shards)
	}
	r.shards = r.shards[:shards]
	r.wait.Add(shards)
	for i := shards - 1; i >= 0; i-- {
		s := &r.shards[i]
		*s = shard{run: r, f: f, lo: i * n / shards, hi: (i + 1) * n / shards}
		if i == 0 || w.pool.Invoke(s) != nil {
			s.do()
		}
	}
	r.wait.Wait()
	if err := r.err.Take(); err != nil {
		panic(err)
	}
}

// start calls f on a worker and doesn't wait for it; f must not panic. After Close, and when no worker is free
// where work is then turned down, it does nothing and returns false.
func (w *Workers) start(f func()) bool {
	return w.pool.Invoke(&shard{f: func(int, int) { f() }}) == nil
}

func (s *shard) do() {
	if s.run == nil {
		s.f(0, 0)
		return
	}
	defer s.run.wait.Done()
	defer s.run.err.Recover()
	s.f(s.lo, s.hi)
	s.f = nil
}

// Close ends the workers, after what they are doing.
func (w *Workers) Close() { w.pool.Release() }
