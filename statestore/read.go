package statestore

import "github.com/azserve/azserve/envs"

// View is what to read of a batch of states, into the caller's memory. A nil field isn't read.
type View struct {
	Obs    []envs.Array // one an observation array, [B, ...]
	Mask   []bool       // [B, A], true where legal
	ToPlay []int32      // [B]
	Info   []envs.Array // one an array of Spec.Info
}

func (v *View) fill(a envs.Arena, slots []int32, row0 int) {
	if v.Obs != nil {
		a.Observe(slots, v.Obs, row0)
	}
	if v.Info != nil {
		a.Info(slots, v.Info, row0)
	}
	if v.Mask != nil {
		n := a.Spec().NumActions
		a.Mask(slots, v.Mask[row0*n:(row0+len(slots))*n])
	}
	if v.ToPlay != nil {
		a.ToPlay(slots, v.ToPlay[row0:row0+len(slots)])
	}
}

// Read fills a view of the states.
func (s *Store) Read(handles []int32, v View) error {
	return s.read(handles, func(slots []int32) error {
		v.fill(s.arena, slots, 0)
		return nil
	})
}

// ConditionalMask writes which values of the next action component some legal action completes, after a
// prefix a row: width entries a row, false beyond the component's size.
func (s *Store) ConditionalMask(handles []int32, prefixes *envs.Prefixes, mask []bool, width int) error {
	if err := s.env.Spec().Factorization.Check(prefixes, len(handles)); err != nil {
		return err
	}
	return s.read(handles, func(slots []int32) error {
		s.arena.ConditionalMask(slots, prefixes, mask, width)
		return nil
	})
}

// Hash writes a key of each state: equal states have equal keys (see envs.Hasher).
func (s *Store) Hash(handles []int32, keys []uint64) error {
	return s.read(handles, func(slots []int32) error {
		s.arena.Hash(slots, keys)
		return nil
	})
}

// Paint draws the states, one picture a row (see envs.Arena.Paint).
func (s *Store) Paint(handles []int32, frames []uint8) error {
	return s.read(handles, func(slots []int32) error {
		s.arena.Paint(slots, frames)
		return nil
	})
}

// FrameSize returns the size of a picture in pixels.
func (s *Store) FrameSize() (width, height int) { return s.arena.FrameSize() }

// Dump returns each state's portable bytes (see envs.Arena.AppendState).
func (s *Store) Dump(handles []int32) ([][]byte, error) {
	out := make([][]byte, len(handles))
	err := s.read(handles, func(slots []int32) error {
		for i, slot := range slots {
			out[i] = s.arena.AppendState(nil, slot)
		}
		return nil
	})
	return out, err
}

// Load makes a state of each blob and writes the handles to out. A blob that is damaged or of
// another environment is an error that wraps envs.ErrBadState and names its row.
func (s *Store) Load(blobs [][]byte, out []int32) error {
	return s.create(out, func(slots []int32) error {
		for i, slot := range slots {
			if err := s.arena.DecodeState(slot, blobs[i]); err != nil {
				return rowError(i, err)
			}
		}
		return nil
	})
}

// Text draws a state for a person.
func (s *Store) Text(handle int32) (text string, err error) {
	err = s.read([]int32{handle}, func(slots []int32) error {
		text = s.arena.Text(slots[0])
		return nil
	})
	return text, err
}

// ActionName returns how people write an action in a state. The action must be in range.
func (s *Store) ActionName(handle, action int32) (name string, err error) {
	err = s.read([]int32{handle}, func(slots []int32) error {
		name = s.arena.ActionName(slots[0], action)
		return nil
	})
	return name, err
}

// BestActions asks the environment's solver; only where Capabilities.Solves says so.
func (s *Store) BestActions(handle int32, best []bool) error {
	return s.read([]int32{handle}, func(slots []int32) error {
		s.arena.BestActions(slots[0], best)
		return nil
	})
}
