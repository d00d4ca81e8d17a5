package search

import (
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/search/tree"
)

// ErrAction is returned for an action that isn't legal at a row's root.
var ErrAction = fmt.Errorf("%w: bad action", ErrConfig)

// Advance plays an action in every row and keeps what the search knows of the position after it: the
// subtree with its statistics, while the rest is freed. Select then goes on as in a new search, with
// noise mixed anew; the budget counts the visits that were kept, so that a root ends with
// NumSimulations visits either way. Gumbel's sequential halving counts only new visits. Where there is
// chance, nature draws from the root state's own stream, so that the environment goes the same way.
//
// Masks and noise that were given for the first roots don't hold for later ones. A row whose root has
// ended stays as it is. A bad action is an error, and then nothing is changed.
func (s *Search) Advance(actions []int32) (err error) {
	defer safe.Recover(&err)
	switch {
	case s.closed:
		return ErrClosed
	case s.waiting:
		return fmt.Errorf("%w: Advance before Expand", ErrOrder)
	case len(actions) != s.Rows():
		return fmt.Errorf("%w: %d actions; want %d, one a row", ErrAction, len(actions), s.Rows())
	}
	if err := s.checkActions(actions); err != nil {
		return err
	}
	s.round++
	s.roots = &Roots{States: s.roots.States, Seeds: s.roots.Seeds}
	s.active = s.active[:0]
	for row, action := range actions {
		s.advanceRow(int32(row), action)
	}
	s.dropDone()
	return nil
}

// checkActions reports the first action that isn't legal at its root.
func (s *Search) checkActions(actions []int32) error {
	slots := make([]int32, len(actions))
	for row, a := range actions {
		slots[row] = int32(row * s.stride)
		if a < 0 || int(a) >= s.actions {
			return fmt.Errorf("%w: %w: action %d; want 0 to %d", ErrAction, fault.RowError(row), a, s.actions-1)
		}
	}
	if bad := s.block.Arena.Check(slots, actions); bad >= 0 {
		return fmt.Errorf("%w: %w: action %d is illegal there", ErrAction, fault.RowError(bad), actions[bad])
	}
	return nil
}

// advanceRow moves one row on.
func (s *Search) advanceRow(row, action int32) {
	a, base := s.block.Arena, row*int32(s.stride)
	root := []int32{base}
	t := s.trees[row]
	if s.fresh[row] || s.errs[row] != nil || !t.Started() {
		s.fresh[row], s.errs[row] = false, nil
		t.Reset(s.params, s.actions)
		s.stepRoot(row, root, action)
		return
	}
	// Where the child isn't kept, the root's state is stepped; its slot is overwritten otherwise.
	path := []int32{action}
	if s.cfg.Outcomes > 0 {
		path = append(path, s.realOutcome(row, action))
	}
	kept := t.Advance(path, func(from, to int32) {
		_ = a.Copy([]int32{base + to}, a, []int32{base + from}) // the same arena: can't fail
		s.turns[base+to] = s.turns[base+from]
	})
	if !kept {
		s.stepRoot(row, root, action)
		return
	}
	if s.cfg.Outcomes > 0 {
		_ = a.Copy(root, a, s.spareSlot()) // with the random stream that nature drew from
	}
	mask := make([]bool, s.actions)
	a.Mask(root, mask)
	t.Reroot(s.rootInput(row, mask))
	s.active = append(s.active, row)
}

// stepRoot steps a row's root state in place; its tree is empty.
func (s *Search) stepRoot(row int32, root []int32, action int32) {
	var out [1]envs.Outcome
	s.block.Arena.Step(root, root, []int32{action}, out[:])
	s.openRoots([]int32{row}, root)
}

// spareSlot is the one slot beside those of the trees.
func (s *Search) spareSlot() []int32 { return []int32{int32(len(s.all) * s.stride)} }

// realOutcome draws what nature draws after an action at a row's root, from the root's own stream, as the
// environment itself does. It leaves the state after it in the spare slot, and returns which outcome's
// child in the tree has the same key; Unvisited if none has.
func (s *Search) realOutcome(row, action int32) int32 {
	a, base, real := s.block.Arena, row*int32(s.stride), s.spareSlot()
	var out [1]envs.Outcome
	a.Step([]int32{base}, real, []int32{action}, out[:])
	var want, got [1]uint64
	a.Hash(real, want[:])
	t := s.trees[row]
	chance := t.Child(tree.Root, action)
	if chance < 0 {
		return tree.Unvisited
	}
	for o := range int32(s.cfg.Outcomes) {
		if child := t.Child(chance, o); child >= 0 {
			if a.Hash([]int32{base + child}, got[:]); got == want {
				return o
			}
		}
	}
	return tree.Unvisited
}
