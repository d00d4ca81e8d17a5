package pool

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/internal/safe"
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

type jobKind uint8

const (
	jobStep    jobKind = iota
	jobReset           // first episode or explicit reset, from the seed
	jobRestart         // next episode (NextStep)
)

// Pool steps many environments. Safe for concurrent use.
type Pool struct {
	env      *envs.Env
	cfg      Config
	workers  *Workers // take shards of whole batches
	steppers *Workers // take jobs from the queue; a slow environment keeps no shard waiting
	store    *statestore.Store
	live     *statestore.Live
	cost     *dispatch.Dispatcher
	threads  int

	mu      sync.Mutex // guards what follows, but not the rows of environments in flight
	wake    sync.Cond  // on mu: something got ready, or the pool closed
	status  []status
	seeds   []uint64
	episode []uint64 // started so far, of each environment
	elapsed []int32  // steps of the current episode
	queue   jobs     // sent, not begun, oldest first
	inline  bool     // the queue waits for Recv's thread, not for workers
	coming  int      // workers that were started and haven't come to the queue yet
	busy    int      // workers that do jobs
	guests  int      // callers' threads that use the states outside of the lock
	sent    []int32  // in flight on workers, in the order they were sent
	out     int      // environments in flight
	done    []int32  // in flight and ready, first ready first
	closed  bool
	ended   chan struct{} // closed when Close is done

	rows   rows         // results of workers, one row an environment
	logs   []episodeLog // with Config.Record
	timing timing
	tmp    sync.Pool
}

// An environment in flight belongs to the thread that does its job: its entries of episode, elapsed,
// rows, logs and timing are then that thread's, without the lock.

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
	p := &Pool{env: env, cfg: cfg, threads: threads, ended: make(chan struct{})}
	if p.workers, err = NewPinned(threads, cfg.CPUs); err != nil {
		return nil, err
	}
	if p.steppers, err = newWorkers(threads, cfg.CPUs, false); err != nil {
		p.workers.Close()
		return nil, err
	}
	if err := p.open(); err != nil {
		p.workers.Close()
		p.steppers.Close()
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
	own := n // states of the pool itself, beside the user's budget
	if p.cfg.Record {
		own = 2 * n
	}
	bytes := p.cfg.MaxBytes
	if bytes > 0 {
		bytes += int64(own) * int64(p.env.StateSize())
	}
	if budget > statestore.MaxStatesLimit {
		return fmt.Errorf("%w: max_states=%d; want at most %d", ErrConfig, budget, statestore.MaxStatesLimit)
	}
	var err error
	p.store, err = statestore.New(p.env, statestore.Config{
		MaxStates: min(budget+own, statestore.MaxStatesLimit), MaxBytes: bytes, Dispatch: p.cfg.Dispatch,
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
	p.timing = newTiming(n)
	if p.cfg.Record {
		p.logs = make([]episodeLog, n)
	}
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

// Pending returns how many environments are in flight: sent, and not received yet.
func (p *Pool) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}

// Workers returns the pool's threads.
func (p *Pool) Workers() *Workers { return p.workers }

// AsyncReset starts a new episode in the environments ids (nil: all); the results come with Recv. Row i
// starts from seeds[i] where seeded[i] is true, or everywhere if seeded is nil; otherwise, and with nil
// seeds, the episode is the next one of the environment's own stream. A bad row makes the whole call fail.
func (p *Pool) AsyncReset(ids []int32, seeds []uint64, seeded []bool) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	if ids == nil {
		ids = sc.upTo(len(p.seeds))
	}
	if (seeds != nil && len(seeds) != len(ids)) || (seeded != nil && len(seeded) != len(seeds)) {
		return fmt.Errorf("%w: %d seeds for %d environments; want one each", ErrConfig, len(seeds), len(ids))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := p.checkIdle(ids, sc, true); err != nil {
		return err
	}
	first := p.queue.len()
	if err := p.enqueue(ids); err != nil {
		return err
	}
	for i, e := range ids {
		if seeds != nil && (seeded == nil || seeded[i]) {
			p.seeds[e], p.episode[e] = seeds[i], 0
		}
		kind := jobRestart
		if p.status[e] == fresh || p.episode[e] == 0 {
			kind = jobReset
		}
		p.queue.kind[first+i], p.queue.action[first+i] = kind, 0
	}
	p.launch(ids)
	return nil
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
	first := p.queue.len()
	if err := p.enqueue(ids); err != nil {
		return err
	}
	copy(p.queue.action[first:], actions)
	kinds := p.queue.kind[first:]
	for i, e := range ids {
		kinds[i] = jobStep
		if p.status[e] == ended {
			kinds[i] = jobRestart
		}
	}
	p.launch(ids)
	return nil
}

// asks says that an action may be illegal in a state, so that the rules must be asked.
func (p *Pool) asks() bool {
	spec := p.env.Spec()
	return !spec.AllLegal && !spec.AnyAction && p.env.Capabilities().Masks
}

// checkSend reports the first bad row. Call with the lock held.
func (p *Pool) checkSend(actions, ids []int32, sc *scratch) error {
	if p.closed {
		return ErrClosed
	}
	if p.allWell(actions, ids) {
		return nil
	}
	if err := p.checkIdle(ids, sc, true); err != nil {
		return err
	}
	n := int32(p.env.Spec().NumActions)
	for i, e := range ids {
		switch {
		case p.status[e] == fresh:
			return fmt.Errorf("%w: %w: env_id %d", ErrNotStarted, fault.RowError(i), e)
		case p.status[e] == ended && p.cfg.Autoreset == Disabled:
			return fmt.Errorf("%w: %w: env_id %d", ErrEnded, fault.RowError(i), e)
		case actions[i] < 0 || actions[i] >= n:
			return fmt.Errorf("%w: %w: env_id %d: action %d; want 0 to %d", statestore.ErrAction, fault.RowError(i),
				e, actions[i], n-1)
		}
	}
	if !p.asks() {
		return nil
	}
	return p.checkLegal(actions, ids, sc)
}

// checkLegal asks the rules, without the lock; meanwhile the environments are in flight to everybody else.
// Call with the lock held.
func (p *Pool) checkLegal(actions, ids []int32, sc *scratch) error {
	sc.slots, sc.was = grow(sc.slots, len(ids)), grow(sc.was, len(ids))
	p.live.Slots(ids, sc.slots)
	for i, e := range ids {
		sc.was[i], p.status[e] = p.status[e], inFlight
	}
	p.guests++
	p.mu.Unlock()
	bad := -1
	err := safe.Call(func() error {
		bad = p.live.Arena().Check(sc.slots, actions)
		return nil
	})
	p.mu.Lock()
	p.guests--
	p.wake.Broadcast()
	for i, e := range ids {
		p.status[e] = sc.was[i]
	}
	switch {
	case p.closed:
		return ErrClosed
	case err != nil:
		return fmt.Errorf("pool: legal actions: %w", err)
	case bad >= 0:
		return fmt.Errorf("%w: %w: env_id %d: action %d is illegal there", statestore.ErrAction, fault.RowError(bad),
			ids[bad],
			actions[bad])
	}
	return nil
}

// allWell says that every environment is sent an action that can't be wrong, in order. It is the common case
// of checkSend, and quick.
func (p *Pool) allWell(actions, ids []int32) bool {
	if len(ids) != len(p.status) || p.asks() {
		return false
	}
	n := uint32(p.env.Spec().NumActions)
	for i, e := range ids {
		if int(e) != i || p.status[i] != ready || uint32(actions[i]) >= n {
			return false
		}
	}
	return true
}

// checkIdle reports the first id that is out of range or in flight, or occurs twice where once says that it
// may not. Call with the lock held.
func (p *Pool) checkIdle(ids []int32, sc *scratch, once bool) error {
	seen := sc.marks(len(p.status))
	defer sc.unmark(ids)
	for i, e := range ids {
		switch {
		case e < 0 || int(e) >= len(p.status):
			return fmt.Errorf("%w: %w: env_id %d; want 0 to %d", ErrEnvID, fault.RowError(i), e, len(p.status)-1)
		case seen[e] && once:
			return fmt.Errorf("%w: %w: env_id %d occurs twice", ErrEnvID, fault.RowError(i), e)
		case p.status[e] == inFlight:
			return fmt.Errorf("%w: %w: env_id %d: receive its result first", ErrBusy, fault.RowError(i), e)
		}
		seen[e] = true
	}
	return nil
}

// enqueue puts jobs of environments at the end of the queue; the caller writes their kinds and actions and
// launches them. Call with the lock held and everything checked but the budget.
func (p *Pool) enqueue(ids []int32) error {
	first := p.queue.len()
	p.queue.extend(len(ids))
	q := &p.queue
	if err := p.live.Own(ids, q.parent[first:], q.child[first:]); err != nil {
		q.extend(-len(ids))
		return err
	}
	copy(q.env[first:], ids)
	return nil
}

// launch puts environments in flight, whose jobs are at the end of the queue. Call with the lock held.
func (p *Pool) launch(ids []int32) {
	for _, e := range ids {
		p.status[e] = inFlight
	}
	if p.out == 0 {
		p.inline = p.prefersInline()
	}
	p.out += len(ids)
	switch {
	case !p.inline:
		p.sent = append(p.sent, ids...)
		p.hire()
	case !p.prefersInline():
		p.handOver()
	}
}

// quick is the most work that waits for Recv: more begins at once, on the workers.
const quick = time.Millisecond

// prefersInline says whether the work in hand is better begun within Recv: it is then done in place
// in the caller's memory, and handed over only as far as sharding pays. Where Recv takes the first that are
// ready it never is: one environment that is slow for once would hold up the others.
func (p *Pool) prefersInline() bool {
	switch p.cfg.Dispatch {
	case dispatch.Inline:
		return true
	case dispatch.Threads:
		return false
	default:
		if p.cfg.BatchSize < p.cfg.NumEnvs {
			return false
		}
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
	p.sent = append(p.sent, p.queue.env...)
	p.hire()
}

// Snapshot writes a handle of each environment's state. An environment in flight is ErrBusy.
func (p *Pool) Snapshot(ids, out []int32) error {
	return p.idle(ids, false, func() error { return p.live.Snapshot(ids, out) })
}

// Restore makes states of the store the states of environments. They go on from there, and count their steps
// from 0. An environment whose new state has ended, as far as its mask tells, waits for a Reset if autoreset
// is Disabled; else its next action is ignored and begins an episode.
func (p *Pool) Restore(ids, handles []int32) error {
	a := p.env.Spec().NumActions
	var mask []bool
	if p.env.Capabilities().Masks {
		mask = make([]bool, len(handles)*a)
		if err := p.store.Read(handles, statestore.View{Mask: mask}); err != nil {
			return err
		}
	}
	return p.idle(ids, true, func() error {
		if err := p.live.Restore(ids, handles); err != nil {
			return err
		}
		for i, e := range ids {
			p.status[e], p.elapsed[e] = ready, 0
			if mask != nil && !slices.Contains(mask[i*a:(i+1)*a], true) {
				p.status[e] = ended
			}
			p.startLog(e)
		}
		return nil
	})
}

// Read calls f with handles of states: those given, or else the present ones of environments ids, which are
// held meanwhile. f must only read.
func (p *Pool) Read(ids, handles []int32, f func(handles []int32) error) error {
	if ids == nil {
		return f(handles)
	}
	handles = make([]int32, len(ids))
	if err := p.Snapshot(ids, handles); err != nil {
		return err
	}
	return errors.Join(f(handles), p.store.Release(handles))
}

// idle calls f with the lock held if all environments ids were reset and none is in flight, nor occurs twice
// where once says that it may not.
func (p *Pool) idle(ids []int32, once bool, f func() error) error {
	sc := p.tmp.Get().(*scratch)
	defer p.tmp.Put(sc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := p.checkIdle(ids, sc, once); err != nil {
		return err
	}
	for i, e := range ids {
		if p.status[e] == fresh {
			return fmt.Errorf("%w: %w: env_id %d", ErrNotStarted, fault.RowError(i), e)
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
	p.live.Disown(p.queue.parent, p.queue.child)
	p.queue = jobs{}
	p.wake.Broadcast()
	for p.coming+p.busy+p.guests > 0 {
		p.wake.Wait()
	}
	p.mu.Unlock()
	p.dropLogs()
	p.live.Close()
	p.store.Close()
	p.steppers.Close()
	p.workers.Close()
	close(p.ended)
}

// nextSeed counts an episode of an environment and returns its seed; 0 where nobody looks at it, since the
// state goes on with its own stream. It is called by the thread that owns the environment.
func (p *Pool) nextSeed(e int32, kind jobKind) []uint64 {
	n := p.episode[e]
	p.episode[e]++
	switch {
	case n == 0:
		return p.seeds[e : e+1]
	case kind == jobRestart && p.env.Capabilities().Restarts:
		return []uint64{0}
	}
	return []uint64{rng.Derive(p.seeds[e], n)}
}
