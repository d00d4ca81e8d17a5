package statestore

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
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
// k depends on Config.MaxStates: 20 bits of slot and 7 of generation by default. A freed slot waits
// at the end of a queue before it is used again, with the next generation. So a stale handle is
// caught unless its slot was meanwhile used again an exact multiple of 2^(27-k) times; a handle of
// another store is caught unless 15 stores were opened in between.
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
	switch {
	case handle < 0 || handle>>markShift != h.mark || int(slot) >= len(h.gens):
		return 0, fmt.Errorf("%w: row %d: %d", ErrForeign, row, handle)
	case h.of(slot) != handle:
		return 0, fmt.Errorf("%w: row %d: %d", ErrStale, row, handle)
	}
	return slot, nil
}

// retire makes the handle of a freed slot stale.
func (h *handles) retire(slot int32) { h.gens[slot] = (h.gens[slot] + 1) & h.genMask }
