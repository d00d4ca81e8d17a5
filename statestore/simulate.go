package statestore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/internal/safe"
)

// ErrAction is returned for an action that is out of range or illegal in its state; the error names
// the row, the action and what is legal.
var ErrAction = errors.New("statestore: bad action")

func rowError(row int, err error) error { return fmt.Errorf("%w: %w", fault.RowError(row), err) }

// Steps is where Simulate writes, all in the caller's memory. A nil field isn't written, but
// Children must be there.
type Steps struct {
	Children   []int32   // [B] handles of the new states
	Reward     []float32 // [B] to the player who moved
	Rewards    []float32 // [B, P] to each player
	Movers     []int32   // [B] who moved
	Terminated []bool    // [B]
	Truncated  []bool    // [B]
	Over       []bool    // [B] either of both
	View                 // of the new states
}

// job is the memory of one call, reused.
type job struct {
	store           *Store
	slots, parents  []int32 // slots of the call's handles; of parents
	movers          []int32
	actions         []int32
	out             []envs.Outcome
	steps           *Steps
	run, check      func(lo, hi int) // bound once, so that a call allocates nothing
	mu              sync.Mutex       // guards what follows
	err             error
	errRow, illegal int
}

func newJob(s *Store) *job {
	j := &job{store: s}
	j.run, j.check = j.stepShard, j.checkShard
	return j
}

// getJob returns a job with room for n slots.
func (s *Store) getJob(n int) *job {
	j := s.jobs.Get().(*job)
	j.slots = fit(j.slots, n)
	return j
}

// fit returns a slice of length n, reusing memory.
func fit[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n, n+n/2)
	}
	return x[:n]
}

// Simulate clones each parent, applies an action to the clone and writes what came of it. A parent
// may occur any number of times and stays as it was. In a state that has ended every action is
// taken and nothing changes. The children start with one reference.
func (s *Store) Simulate(parents, actions []int32, out *Steps) error {
	if len(actions) != len(parents) || len(out.Children) != len(parents) {
		return fmt.Errorf("statestore: %d parents, %d actions, %d children; want equally many",
			len(parents), len(actions), len(out.Children))
	}
	if err := s.actionRange(actions); err != nil {
		return err
	}
	j := s.getJob(len(parents))
	defer s.jobs.Put(j)
	j.parents, j.out = fit(j.parents, len(parents)), fit(j.out, len(parents))
	j.actions, j.steps, j.err, j.illegal = actions, out, nil, len(parents)
	if out.Rewards != nil || out.Movers != nil {
		j.movers = fit(j.movers, len(parents))
	}
	if err := s.begin(parents, j); err != nil {
		return err
	}
	s.dispatch.Run(len(parents), j.check)
	if j.err == nil && j.illegal == len(parents) {
		s.dispatch.Run(len(parents), j.run)
	}
	return s.finish(parents, j)
}

func (s *Store) actionRange(actions []int32) error {
	n := int32(s.env.Spec().NumActions)
	for i, a := range actions {
		if a < 0 || a >= n {
			return fmt.Errorf("%w: %w: action %d; want 0 to %d", ErrAction, fault.RowError(i), a, n-1)
		}
	}
	return nil
}

// begin pins the parents and takes slots for the children.
func (s *Store) begin(parents []int32, j *job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.resolve(parents, j.parents); err != nil {
		return err
	}
	if err := s.alloc(j.slots); err != nil {
		return err
	}
	for _, slot := range j.parents {
		s.slots.refs[slot]++
	}
	return nil
}

// finish publishes the children, or takes everything back.
func (s *Store) finish(parents []int32, j *job) error {
	err := j.err
	if err == nil && j.illegal < len(parents) {
		err = s.illegal(j)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unref(j.parents)
	if err != nil {
		s.unref(j.slots)
		return err
	}
	s.give(j.slots, j.steps.Children)
	return nil
}

// illegal names the first illegal action.
func (s *Store) illegal(j *job) error {
	row := j.illegal
	legal := make([]bool, s.env.Spec().NumActions)
	s.arena.Mask(j.parents[row:row+1], legal)
	return fmt.Errorf("%w: %w: action %d is illegal; legal: %v", ErrAction, fault.RowError(row), j.actions[row],
		list(legal))
}

// list returns the indices of true entries, at most 32 of them.
func list(legal []bool) []int {
	var out []int
	for a, ok := range legal {
		if ok && len(out) < 32 {
			out = append(out, a)
		}
	}
	return out
}

func (j *job) checkShard(lo, hi int) {
	defer j.recover(lo)
	bad := j.store.arena.Check(j.parents[lo:hi], j.actions[lo:hi])
	if bad < 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.illegal = min(j.illegal, lo+bad)
}

func (j *job) stepShard(lo, hi int) {
	defer j.recover(lo)
	start := time.Now()
	out, a := j.out[lo:hi], j.store.arena
	if j.steps.Rewards != nil || j.steps.Movers != nil {
		a.ToPlay(j.parents[lo:hi], j.movers[lo:hi])
	}
	if j.steps.Movers != nil {
		copy(j.steps.Movers[lo:hi], j.movers[lo:hi])
	}
	a.Step(j.parents[lo:hi], j.slots[lo:hi], j.actions[lo:hi], out)
	if n := a.Spec().NumPlayers; j.steps.Rewards != nil {
		a.Rewards(j.slots[lo:hi], j.movers[lo:hi], out, j.steps.Rewards[lo*n:hi*n])
	}
	j.steps.outcomes(out, lo)
	j.steps.fill(j.store.arena, j.slots[lo:hi], lo)
	j.store.dispatch.Learn(hi-lo, time.Since(start))
}

// outcomes writes the outcomes of rows row0 and up.
func (o *Steps) outcomes(out []envs.Outcome, row0 int) {
	if o.Reward != nil {
		for i, r := range out {
			o.Reward[row0+i] = r.Reward
		}
	}
	if o.Terminated != nil {
		for i, r := range out {
			o.Terminated[row0+i] = r.Terminated
		}
	}
	if o.Truncated != nil {
		for i, r := range out {
			o.Truncated[row0+i] = r.Truncated
		}
	}
	if o.Over != nil {
		for i, r := range out {
			o.Over[row0+i] = r.Terminated || r.Truncated
		}
	}
}

// recover keeps the first panic of a job's shards as the job's error. Use it deferred.
func (j *job) recover(lo int) {
	v := recover()
	if v == nil {
		return
	}
	row, err := lo, error(safe.NewPanic(v))
	if p, ok := v.(*envs.RowPanicError); ok {
		row, err = lo+p.Row, &safe.PanicError{Value: p.Value, Stack: p.Stack}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil || row < j.errRow {
		j.errRow = row
		j.err = fmt.Errorf("statestore: %s: %w: %w", j.store.env.Spec().ID, fault.RowError(row), err)
	}
}
