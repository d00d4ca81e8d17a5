package statestore

import (
	"errors"
	"fmt"
	"slices"
)

// ErrBudget is returned when a call needs more states or bytes than the store may hold.
var ErrBudget = errors.New("statestore: budget exceeded")

// slots hands out slots and counts references. Guarded by the store's lock.
type slots struct {
	refs  []int32 // [slots ever used]; 0 is free
	queue []int32 // ring of free slots, oldest first: a freed slot rests as long as possible
	head  int     // of the ring
	free  int     // entries in the ring
	limit int     // most slots, the budget
	held  int     // slots of blocks: they count against the budget
	peak  int     // most slots in use at any time
}

// live returns the number of slots in use, without blocks.
func (s *slots) live() int { return len(s.refs) - s.free }

// room is an error unless n more slots fit the budget.
func (s *slots) room(n int) error {
	if used := s.live() + s.held; used+n > s.limit {
		return fmt.Errorf("%w: %d states wanted, %d of %d in use: release some or raise max_states",
			ErrBudget, n, used, s.limit)
	}
	return nil
}

// take fills out with slots of one reference each. room must have been asked before.
func (s *slots) take(out []int32) {
	for i := range out {
		if s.free == 0 {
			s.refs = slices.Grow(s.refs, len(out)-i)
			out[i] = int32(len(s.refs))
			s.refs = append(s.refs, 1)
			continue
		}
		out[i] = s.queue[s.head]
		if s.head++; s.head == len(s.queue) {
			s.head = 0
		}
		s.free--
		s.refs[out[i]] = 1
	}
	s.note()
}

func (s *slots) note() { s.peak = max(s.peak, s.live()+s.held) }

// drop takes a reference away; the slot is free after the last.
func (s *slots) drop(slot int32) {
	s.refs[slot]--
	if s.refs[slot] > 0 {
		return
	}
	if s.free == len(s.queue) {
		s.growQueue()
	}
	end := s.head + s.free
	if end >= len(s.queue) {
		end -= len(s.queue)
	}
	s.queue[end] = slot
	s.free++
}

// growQueue makes the ring as large as the number of slots, so that it grows seldom.
func (s *slots) growQueue() {
	q := make([]int32, max(2*len(s.queue), cap(s.refs), 64))
	for i := range s.free {
		q[i] = s.queue[(s.head+i)%len(s.queue)]
	}
	s.queue, s.head = q, 0
}
