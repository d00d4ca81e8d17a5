package statestore

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/azserve/azserve/internal/fault"
)

// Errors about handles; each error names the row and the handle.
var (
	ErrStale   = errors.New("statestore: released state")
	ErrForeign = errors.New("statestore: not a state of this store")
)

// A handle is a positive int32 (JAX has no int64 by default):
//
//	bit  31  30..27      26..k        k-1..0
//	     0   store mark  generation   slot
//
// k depends on Config.MaxStates: 20 bits of slot and 7 of generation by default. The generation rises when
// users have given back all they held of a state, although a pool's environment may still be in it. A freed
// slot waits at the end of a queue before it is used again. So a stale handle is caught unless its slot
// was meanwhile given out again an exact multiple of 2^(27-k) times; a handle of another store is caught
// unless 15 stores were opened in between.
const (
	markBits  = 4
	markShift = 31 - markBits
)

// nextMark numbers the stores of this process.
var nextMark atomic.Uint32

// handles translates between slots and handles. Its generation table is guarded by the store's lock.
type handles struct {
	mark    int32
	bits    uint   // of the slot
	genMask uint16 // generations wrap here
	gens    []uint16
	given   []int32 // references that users hold, of each slot
}

func newHandles(maxStates int) handles {
	k := uint(bits.Len(uint(maxStates - 1)))
	return handles{
		mark:    int32((nextMark.Add(1)-1)%(1<<markBits-1)) + 1,
		bits:    k,
		genMask: 1<<min(markShift-k, 16) - 1,
	}
}

// of returns the handle of a slot that is in use.
func (h *handles) of(slot int32) int32 {
	return h.mark<<markShift | int32(h.gens[slot])<<h.bits | slot
}

// slot returns the slot of a handle, after checking its mark, range and generation. row is named in
// the error.
func (h *handles) slot(row int, handle int32) (int32, error) {
	slot := handle & (1<<h.bits - 1)
	if int(slot) < len(h.gens) && h.of(slot) == handle && h.given[slot] > 0 {
		return slot, nil
	}
	if handle < 0 || handle>>markShift != h.mark || int(slot) >= len(h.gens) {
		return 0, fmt.Errorf("%w: %w: %d", ErrForeign, fault.RowError(row), handle)
	}
	return 0, fmt.Errorf("%w: %w: %d", ErrStale, fault.RowError(row), handle)
}

// grow makes room for n slots.
func (h *handles) grow(n int) {
	h.gens = append(h.gens, make([]uint16, n-len(h.gens))...)
	h.given = append(h.given, make([]int32, n-len(h.given))...)
}

// give returns the handle of a slot, of which a user holds one reference more now.
func (h *handles) give(slot int32) int32 {
	h.given[slot]++
	return h.of(slot)
}

// take takes a user's reference back. With the last one the handle is stale.
func (h *handles) take(slot int32) {
	if h.given[slot]--; h.given[slot] == 0 {
		h.gens[slot] = (h.gens[slot] + 1) & h.genMask
	}
}

// undo reverses the takes of slots.
func (h *handles) undo(slots []int32) {
	for _, slot := range slots {
		if h.given[slot] == 0 {
			h.gens[slot] = (h.gens[slot] - 1) & h.genMask
		}
		h.given[slot]++
	}
}
