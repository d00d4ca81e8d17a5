package statestore

import (
	"fmt"

	"github.com/azserve/azserve/envs"
)

// Live is a row of states that change in place: the environments of a pool. A snapshot of one is a
// reference to its state, so a state with more than one reference is cloned before its next change.
//
// The owner serialises calls about one environment; calls about different ones may run at the same
// time.
type Live struct {
	store *Store
	slots []int32 // [n] the state of each environment
}

// NewLive reserves n environments; Start them before anything else.
func (s *Store) NewLive(n int) (*Live, error) {
	l := &Live{store: s, slots: make([]int32, n)}
	s.mu.Lock()
	defer s.mu.Unlock()
	return l, s.alloc(l.slots)
}

// Own makes the states of the environments changeable: what a snapshot shares is replaced by a
// fresh slot, which the next Step fills. It writes where each state is now to parents, and where it
// will be to children.
func (l *Live) Own(envs, parents, children []int32) error {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	shared := 0
	for i, e := range envs {
		slot := l.slots[e]
		parents[i], children[i] = slot, slot
		if s.slots.refs[slot] > 1 {
			shared++
		}
	}
	if shared == 0 {
		return nil
	}
	if err := s.slots.room(shared); err != nil {
		return err
	}
	for i, slot := range parents {
		if s.slots.refs[slot] > 1 {
			if err := s.alloc(children[i : i+1]); err != nil {
				return err // can't be: there is room
			}
		}
	}
	return nil
}

// Moved takes over the children of Own: each environment's state is there from now on.
func (l *Live) Moved(envs, parents, children []int32) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range envs {
		if parents[i] != children[i] {
			l.slots[e] = children[i]
			s.unref(parents[i : i+1])
		}
	}
}

// Disown takes back what Own gave for steps that will not be taken.
func (l *Live) Disown(parents, children []int32) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, child := range children {
		if child != parents[i] {
			s.unref(children[i : i+1])
		}
	}
}

// Arena returns the store's arena: for Step, Reset and Observe on slots that Own gave.
func (l *Live) Arena() envs.Arena { return l.store.arena }

// Slots writes where the states of the environments are.
func (l *Live) Slots(envs, out []int32) {
	for i, e := range envs {
		out[i] = l.slots[e]
	}
}

// Snapshot writes a handle of each environment's state; each counts as one reference.
func (l *Live) Snapshot(envs, out []int32) error {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	for i, e := range envs {
		slot := l.slots[e]
		s.slots.refs[slot]++
		out[i] = s.handles.give(slot)
	}
	s.given += len(envs)
	return nil
}

// Restore makes a state of the store the state of an environment. The handle stays valid.
func (l *Live) Restore(envs, handles []int32) error {
	s := l.store
	if len(envs) != len(handles) {
		return fmt.Errorf("statestore: %d environments, %d states; want equally many", len(envs),
			len(handles))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.getJob(len(handles))
	defer s.jobs.Put(j)
	if err := s.resolve(handles, j.slots); err != nil {
		return err
	}
	for i, e := range envs {
		old := l.slots[e]
		s.slots.refs[j.slots[i]]++
		l.slots[e] = j.slots[i]
		s.unref([]int32{old})
	}
	return nil
}

// Close gives the states back.
func (l *Live) Close() {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unref(l.slots)
	l.slots = nil
}

// Hold keeps the present state of an environment alive, without a handle, until Drop.
func (l *Live) Hold(env int32) int32 { return l.HoldSlot(l.slots[env]) }

// HoldSlot is Hold of a slot that is held already.
func (l *Live) HoldSlot(slot int32) int32 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.slots.refs[slot]++
	return slot
}

// Drop ends a Hold.
func (l *Live) Drop(slot int32) { l.store.unpin([]int32{slot}) }

// Replay makes states by stepping copies of held states again, with one row of actions each, writes their
// handles to out and drops what was held.
func (l *Live) Replay(starts []int32, actions [][]int32, out []int32) error {
	s := l.store
	defer s.unpin(starts)
	return s.create(out, func(slots []int32) error {
		if err := s.arena.Copy(slots, s.arena, starts); err != nil {
			return err
		}
		var o [1]envs.Outcome
		for i, row := range actions {
			slot := slots[i : i+1]
			for k := range row {
				s.arena.Step(slot, slot, row[k:k+1], o[:])
			}
		}
		return nil
	})
}
