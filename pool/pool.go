package pool

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/statestore"
)

// Errors of a pool. Each error says which row or environment it is about.
var (
	ErrClosed     = errors.New("pool: closed")
	ErrNothing    = errors.New("pool: nothing outstanding: send actions or reset first")
	ErrTimeout    = errors.New("pool: timeout")
	ErrBusy       = errors.New("pool: environment is in flight")
	ErrEnvID      = errors.New("pool: bad env_id")
	ErrEnded      = errors.New("pool: episode has ended, reset it first")
	ErrNotStarted = errors.New("pool: environment was never reset")
)

// status is where an environment is between two calls.
type status uint8

const (
	fresh    status = iota // never reset
	ready                  // waits for an action
	ended                  // its episode ended: NextStep or Disabled
	inFlight               // between send and recv
)

// job is what an environment in flight is to do.
type job struct {
	env    int32
	action int32
	kind   jobKind
	parent int32 // slot of its state
	child  int32 // slot of its next state
}

type jobKind uint8

const (
	jobReset jobKind = iota // first episode or explicit reset, from the seed
	jobStep
	jobRestart // next episode (NextStep)
)

// Pool steps many environments. Safe for concurrent use.
type Pool struct {
	env     *envs.Env
	cfg     Config
	workers *Workers
	store   *statestore.Store
	live    *statestore.Live
	cost    *dispatch.Dispatcher
	threads int

	mu      sync.Mutex // guards what follows, but not the rows of environments in flight
	wake    sync.Cond  // on mu: something got ready, or the pool closed
	status  []status
	seeds   []uint64
	episode []uint64 // started so far, of each environment
	elapsed []int32  // steps of the current episode
	queue   []job    // sent, not begun, oldest first
	inline  bool     // the queue waits for Recv's thread, not for workers
	running int      // threads that do jobs
	sent    []int32  // in flight on workers, in the order they were sent
	out     int      // environments in flight
	done    []int32  // in flight and ready, first ready first
	closed  bool
	ended   chan struct{} // closed when Close is done

	rows rows // results of workers, one row an environment
	tmp  sync.Pool
}

// An environment in flight belongs to the thread that does its job: its entries of episode, elapsed
// and rows are then that thread's, without the lock.

// New makes a pool. Nothing runs before AsyncReset.
func New(env *envs.Env, cfg Config) (*Pool, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	threads, err := Threads(cfg.NumThreads, cfg.NumEnvs)
	if err != nil {
		return nil, err
	}
	workers, err := NewWorkers(threads)
	if err != nil {
		return nil, err
	}
	p := &Pool{env: env, cfg: cfg, workers: workers, threads: threads, ended: make(chan struct{})}
	if err := p.open(); err != nil {
		workers.Close()
		return nil, err
	}
	return p, nil
}

func (p *Pool) open() error {
	n := p.cfg.NumEnvs
	budget := p.cfg.MaxStates
	if budget == 0 {
		budget = statestore.DefaultMaxStates
	}
	var err error
	p.store, err = statestore.New(p.env, statestore.Config{
		MaxStates: min(budget+n, statestore.MaxStatesLimit), MaxBytes: p.cfg.MaxBytes, Dispatch: p.cfg.Dispatch,
	}, p.workers)
	if err != nil {
		return err
	}
	if p.live, err = p.store.NewLive(n); err != nil {
		return err
	}
	if p.cost, err = dispatch.New(p.cfg.Dispatch, p.workers); err != nil {
		return err
	}
	p.wake.L = &p.mu
	p.status = make([]status, n)
	p.seeds = append([]uint64(nil), p.cfg.Seeds...)
	p.episode = make([]uint64, n)
	p.elapsed = make([]int32, n)
	p.rows = newRows(p.env.Spec(), n)
	p.tmp.New = func() any { return &scratch{} }
	return nil
}

// Env returns the environment.
func (p *Pool) Env() *envs.Env { return p.env }

// Config returns the settings in force.
func (p *Pool) Config() Config { return p.cfg }

// NumThreads returns the number of worker threads.
func (p *Pool) NumThreads() int { return p.threads }

// Store returns the pool's states: Simulate, Release and the rest work on snapshots.
func (p *Pool) Store() *statestore.Store { return p.store }

// Workers returns the pool's threads.
func (p *Pool) Workers() *Workers { return p.workers }

// AsyncReset starts a new episode from its seed in every environment; the results come with Recv.
// seeds replaces the pool's seeds; nil keeps them, and the episodes are then the next ones of each
// environment's own stream.
func (p *Pool) AsyncReset(seeds []uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case seeds != nil && len(seeds) != len(p.seeds):
		return fmt.Errorf("%w: %d seeds; want num_envs=%d", ErrConfig, len(seeds), len(p.seeds))
	case p.out > 0:
		return fmt.Errorf("%w: %d of them: receive their results first", ErrBusy, p.out)
	}
	ids := make([]int32, len(p.seeds))
	for i := range ids {
		ids[i] = int32(i)
	}
	return p.enqueue(ids, func(i int) job {
		if seeds != nil {
			p.seeds[i], p.episode[i] = seeds[i], 0
		}
		kind := jobRestart
		if p.status[i] == fresh || p.episode[i] == 0 {
			kind = jobReset
		}
		return job{kind: kind}
	})
}

// Send gives an action to each of the environments ids (nil means 0, 1, 2, ...); their results come
// with Recv. A bad row makes the whole call fail, and then no environment was sent anything.
func (p *Pool) Send(actions, ids []int32) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	if ids == nil {
		ids = sc.upTo(len(actions))
	}
	if len(ids) != len(actions) {
		return fmt.Errorf("pool: %d actions, %d env_id; want equally many", len(actions), len(ids))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkSend(actions, ids, sc); err != nil {
		return err
	}
	return p.enqueue(ids, func(i int) job {
		if p.status[ids[i]] == ended {
			return job{kind: jobRestart}
		}
		return job{kind: jobStep, action: actions[i]}
	})
}

// checkSend reports the first bad row. Call with the lock held.
func (p *Pool) checkSend(actions, ids []int32, sc *scratch) error {
	if p.closed {
		return ErrClosed
	}
	if err := p.checkIdle(ids, sc); err != nil {
		return err
	}
	n := int32(p.env.Spec().NumActions)
	for i, e := range ids {
		switch {
		case p.status[e] == fresh:
			return fmt.Errorf("%w: row %d: env_id %d", ErrNotStarted, i, e)
		case p.status[e] == ended && p.cfg.Autoreset == Disabled:
			return fmt.Errorf("%w: row %d: env_id %d", ErrEnded, i, e)
		case actions[i] < 0 || actions[i] >= n:
			return fmt.Errorf("%w: row %d: env_id %d: action %d; want 0 to %d", statestore.ErrAction, i,
				e, actions[i], n-1)
		}
	}
	sc.fit(len(ids))
	p.live.Slots(ids, sc.parents)
	if bad := p.live.Arena().Check(sc.parents, actions); bad >= 0 {
		return fmt.Errorf("%w: row %d: env_id %d: action %d is illegal there", statestore.ErrAction,
			bad, ids[bad], actions[bad])
	}
	return nil
}

// checkIdle reports the first id that is out of range, in flight, or occurs twice. Call with the
// lock held.
func (p *Pool) checkIdle(ids []int32, sc *scratch) error {
	seen := sc.marks(len(p.status))
	defer sc.unmark(ids)
	for i, e := range ids {
		switch {
		case e < 0 || int(e) >= len(p.status):
			return fmt.Errorf("%w: row %d: env_id %d; want 0 to %d", ErrEnvID, i, e, len(p.status)-1)
		case seen[e]:
			return fmt.Errorf("%w: row %d: env_id %d occurs twice", ErrEnvID, i, e)
		case p.status[e] == inFlight:
			return fmt.Errorf("%w: row %d: env_id %d: receive its result first", ErrBusy, i, e)
		}
		seen[e] = true
	}
	return nil
}

// enqueue puts environments in flight, each with the job that what returns for its row. Call with
// the lock held and everything checked but the budget.
func (p *Pool) enqueue(ids []int32, what func(i int) job) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	sc.fit(len(ids))
	if err := p.live.Own(ids, sc.parents, sc.children); err != nil {
		return err
	}
	for i, e := range ids {
		j := what(i)
		j.env, j.parent, j.child = e, sc.parents[i], sc.children[i]
		p.queue = append(p.queue, j)
		p.status[e] = inFlight
	}
	if p.out == 0 {
		p.inline = p.prefersInline()
	}
	p.out += len(ids)
	if !p.inline {
		p.sent = append(p.sent, ids...)
		p.hire()
	}
	return nil
}

// quick is the most work that waits for Recv: more begins at once, on the workers.
const quick = time.Millisecond

// prefersInline says whether the work in hand is better begun within Recv: it is then done in place
// in the caller's memory, and handed over only as far as sharding pays.
func (p *Pool) prefersInline() bool {
	switch p.cfg.Dispatch {
	case dispatch.Inline:
		return true
	case dispatch.Threads:
		return false
	default:
		cost := p.cost.Cost()
		return cost > 0 && cost*float64(p.cfg.BatchSize) < float64(quick)
	}
}

// Quick says that Recv will not wait: it does the outstanding work itself, in about a millisecond
// at most unless an environment is slower than it was so far.
func (p *Pool) Quick() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inline
}

// handOver gives work that was left to Recv to the workers. Call with the lock held.
func (p *Pool) handOver() {
	p.inline = false
	for i := range p.queue {
		p.sent = append(p.sent, p.queue[i].env)
	}
	p.hire()
}

// Snapshot writes a handle of each environment's state. An environment in flight is ErrBusy.
func (p *Pool) Snapshot(ids, out []int32) error {
	return p.idle(ids, func() error { return p.live.Snapshot(ids, out) })
}

// Restore makes states of the store the states of environments, which then wait for an action.
func (p *Pool) Restore(ids, handles []int32) error {
	return p.idle(ids, func() error {
		if err := p.live.Restore(ids, handles); err != nil {
			return err
		}
		for _, e := range ids {
			p.status[e] = ready
		}
		return nil
	})
}

// idle calls f with the lock held if all environments ids were reset and none is in flight.
func (p *Pool) idle(ids []int32, f func() error) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := p.checkIdle(ids, sc); err != nil {
		return err
	}
	for i, e := range ids {
		if p.status[e] == fresh {
			return fmt.Errorf("%w: row %d: env_id %d", ErrNotStarted, i, e)
		}
	}
	return f()
}

// Close ends the pool: steps in progress end first, results not received are dropped, and every
// blocked Recv returns ErrClosed. When it returns nothing runs any more; a second call only waits for
// that.
func (p *Pool) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-p.ended
		return
	}
	p.closed = true
	p.queue = nil
	p.wake.Broadcast()
	for p.running > 0 {
		p.wake.Wait()
	}
	p.mu.Unlock()
	p.live.Close()
	p.store.Close()
	p.workers.Close()
	close(p.ended)
}

// seedOf returns the seed of an environment's current episode. Call with the lock held.
func (p *Pool) seedOf(e int32) uint64 {
	if p.episode[e] == 0 {
		return p.seeds[e]
	}
	return rng.Derive(p.seeds[e], p.episode[e])
}
