package statestore

import (
	"errors"
	"fmt"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/safe"
)

// ErrClosed is returned by every call after Close.
var ErrClosed = errors.New("statestore: closed")

// DefaultMaxStates is the budget of a store whose Config doesn't say.
const DefaultMaxStates = 1 << 20

// MaxStatesLimit is the largest budget: it keeps at least 3 bits of generation in a handle.
const MaxStatesLimit = 1 << 24

// Config is a store's settings. The zero value is the default.
type Config struct {
	MaxStates int   // most states at any time, blocks included; 1 to 2^24; 0 means 2^20
	MaxBytes  int64 // most bytes of states; 0 means no limit but MaxStates
	Dispatch  dispatch.Mode
}

// Store holds states of one environment. Safe for concurrent use.
type Store struct {
	env      *envs.Env
	arena    envs.Arena
	dispatch *dispatch.Dispatcher
	jobs     sync.Pool // *job

	mu      sync.Mutex // guards what follows; never held while an environment runs
	handles handles
	slots   slots
	given   int          // references handed out by handles and not released
	blocks  int          // blocks in use
	spare   []envs.Arena // memory of released blocks
	closed  bool
}

// New returns an empty store. runner spreads big batches over threads; nil means that every call
// runs on its caller's thread.
func New(env *envs.Env, cfg Config, runner dispatch.Runner) (*Store, error) {
	if cfg.MaxStates == 0 {
		cfg.MaxStates = DefaultMaxStates
	}
	if cfg.MaxStates < 1 || cfg.MaxStates > MaxStatesLimit {
		return nil, fmt.Errorf("statestore: Config.MaxStates is %d; want 1 to %d", cfg.MaxStates,
			MaxStatesLimit)
	}
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("statestore: Config.MaxBytes is %d; want 0 or more", cfg.MaxBytes)
	}
	limit := cfg.MaxStates
	if cfg.MaxBytes > 0 {
		limit = min(limit, int(cfg.MaxBytes/int64(max(env.StateSize(), 1))))
	}
	d, err := dispatch.New(cfg.Dispatch, runner)
	if err != nil {
		return nil, err
	}
	s := &Store{env: env, arena: env.NewArena(0), dispatch: d}
	s.handles = newHandles(cfg.MaxStates)
	s.slots.limit = limit
	s.jobs.New = func() any { return newJob(s) }
	return s, nil
}

// Env returns the environment.
func (s *Store) Env() *envs.Env { return s.env }

// Close frees everything. Calls in progress end first; later calls return ErrClosed.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.spare = nil
}

// Stats is a store's accounting.
type Stats struct {
	Live     int   // references handed out (snapshots, children) and not yet released
	States   int   // states in memory, a pool's environments included, blocks not
	Reserved int   // states of blocks: searches in progress
	Blocks   int   // blocks in use
	Peak     int   // most states at any time
	Limit    int   // the budget in states
	Bytes    int64 // of the states in use
}

// Stats returns the accounting.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := s.slots.live()
	return Stats{
		Live: s.given, States: states, Reserved: s.slots.held, Blocks: s.blocks, Peak: s.slots.peak, Limit: s.slots.limit,
		Bytes: int64(states+s.slots.held) * int64(s.env.StateSize()),
	}
}

// resolve translates handles to slots. Call with the lock held.
func (s *Store) resolve(handles, slots []int32) error {
	if s.closed {
		return ErrClosed
	}
	for i, h := range handles {
		slot, err := s.handles.slot(i, h)
		if err != nil {
			return err
		}
		slots[i] = slot
	}
	return nil
}

// alloc takes fresh slots. Call with the lock held.
func (s *Store) alloc(out []int32) error {
	if s.closed {
		return ErrClosed
	}
	if err := s.slots.room(len(out)); err != nil {
		return err
	}
	s.slots.take(out)
	if n := len(s.slots.refs); n > len(s.handles.gens) {
		s.handles.grow(n)
		s.arena.Grow(n)
	}
	return nil
}

// unref drops one reference of each slot. Call with the lock held.
func (s *Store) unref(slots []int32) {
	for _, slot := range slots {
		s.slots.drop(slot)
	}
}

// Retain adds a reference to each state: a snapshot. Release as often as you retained.
func (s *Store) Retain(handles []int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.getJob(len(handles))
	defer s.jobs.Put(j)
	if err := s.resolve(handles, j.slots); err != nil {
		return err
	}
	for _, slot := range j.slots {
		s.slots.refs[slot]++
		s.handles.give(slot)
	}
	s.given += len(handles)
	return nil
}

// Release drops a reference of each state. A handle may occur as often as it has references; once
// more is ErrStale, and then nothing is released.
func (s *Store) Release(handles []int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	j := s.getJob(len(handles))
	defer s.jobs.Put(j)
	for i, h := range handles {
		slot, err := s.handles.slot(i, h)
		if err != nil {
			s.handles.undo(j.slots[:i])
			return err
		}
		s.handles.take(slot)
		j.slots[i] = slot
	}
	s.unref(j.slots)
	s.given -= len(handles)
	return nil
}

// Reset makes a first state for each seed and writes its handle to out. envs, each environment's
// index in its pool, may be nil: 0, 1, 2, ...
func (s *Store) Reset(envs []int32, seeds []uint64, out []int32) error {
	return s.create(out, func(slots []int32) error {
		s.arena.Reset(slots, envs, seeds)
		return nil
	})
}

// create makes fresh states with fill and writes their handles to out.
func (s *Store) create(out []int32, fill func(slots []int32) error) (err error) {
	j := s.getJob(len(out))
	defer s.jobs.Put(j)
	s.mu.Lock()
	err = s.alloc(j.slots)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = safe.Call(func() error { return fill(j.slots) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.unref(j.slots)
		return err
	}
	s.give(j.slots, out)
	return nil
}

// give writes the handles of slots whose reference now belongs to the user. Call with the lock held.
func (s *Store) give(slots, out []int32) {
	for i, slot := range slots {
		out[i] = s.handles.give(slot)
	}
	s.given += len(slots)
}

// read calls use with the slots of the handles, which stay alive meanwhile.
func (s *Store) read(handles []int32, use func(slots []int32) error) error {
	j := s.getJob(len(handles))
	defer s.jobs.Put(j)
	if err := s.pin(handles, j.slots); err != nil {
		return err
	}
	defer s.unpin(j.slots)
	return safe.Call(func() error { return use(j.slots) })
}

func (s *Store) pin(handles, slots []int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.resolve(handles, slots); err != nil {
		return err
	}
	for _, slot := range slots {
		s.slots.refs[slot]++
	}
	return nil
}

func (s *Store) unpin(slots []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unref(slots)
}
