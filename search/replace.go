package search

import (
	"context"
	"fmt"
	"slices"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/safe"
)

// A search whose rows are replaced one by one is for callers with more positions than rows: a row that is done gets
// the next one while the others go on, so that the evaluator's batches stay full. The caller goes round by Round,
// takes what is Finished by RowResult, and puts something in its place by Replace.

// Pinned says whose answers the search gets: the version that evaluator.Pin returned.
func (s *Search) Pinned(version uint64) { s.model = version }

// Round goes on to the next batch and has it evaluated. more is false when every row is done. After an error of the
// evaluator the next Round asks about the same batch again.
func (s *Search) Round(ctx context.Context, ev evaluator.Evaluator) (more bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	batch := &s.leaves.batch
	if !s.waiting || s.closed {
		if batch, err = s.Select(); err != nil || batch.N == 0 {
			return false, err
		}
	}
	s.leaves.out.Uniform, s.leaves.out.Errors = false, nil
	if err := evaluate(ctx, ev, batch, &s.leaves.out); err != nil {
		return false, err
	}
	return true, s.expandOutput()
}

// Finished appends the rows that have nothing left to do.
func (s *Search) Finished(rows []int32) []int32 {
	s.dropDone()
	s.busy = fit(s.busy, s.Rows())
	clear(s.busy)
	for _, row := range s.active {
		s.busy[row] = true
	}
	for row, busy := range s.busy {
		if !busy {
			rows = append(rows, int32(row))
		}
	}
	return rows
}

// RowResult writes the answer of one row to row at of out, whose other rows and Stats stay. It returns why the row
// was given up, nil if it wasn't.
func (s *Search) RowResult(row int, out *Result, at int) error {
	s.rowResult(row, out, at)
	out.Version = s.model
	return s.errs[row]
}

// Replace begins the search of new roots in some rows, one entry a row; what those rows knew is forgotten. The new
// roots may have budgets (Simulations, Fast) if the first ones had; Invalid, Deadlines and Noise neither may have.
func (s *Search) Replace(rows []int32, roots *Roots) (err error) {
	defer safe.Recover(&err)
	n := len(rows)
	switch {
	case s.closed:
		return ErrClosed
	case s.waiting:
		return fmt.Errorf("%w: Replace before Expand", ErrOrder)
	case len(roots.States) != n || len(roots.Seeds) != n:
		return fmt.Errorf("%w: %d states and %d seeds; want %d, one a row", ErrConfig, len(roots.States),
			len(roots.Seeds), n)
	case (roots.Simulations == nil) != (s.roots.Simulations == nil) || (roots.Fast == nil) != (s.roots.Fast == nil):
		return fmt.Errorf("%w: budgets of rows; want the same kinds as the first roots had", ErrConfig)
	case roots.perPosition() || s.roots.perPosition():
		return fmt.Errorf("%w: masks, deadlines or noise of rows, which hold for one position; want none", ErrConfig)
	}
	if err := roots.validate(s.actions, s.cfg.NumSimulations); err != nil {
		return err
	}
	slots := make([]int32, n)
	for i, row := range rows {
		slots[i] = row * int32(s.stride)
	}
	if err := s.block.Fill(slots, roots.States); err != nil {
		return err
	}
	s.own()
	for i, row := range rows {
		s.count(row)
		s.trees[row].Reset(s.params, s.actions)
		s.errs[row], s.fresh[row] = nil, false
		s.roots.States[row], s.roots.Seeds[row] = roots.States[i], roots.Seeds[i]
		if roots.Simulations != nil {
			s.roots.Simulations[row] = roots.Simulations[i]
		}
		if roots.Fast != nil {
			s.roots.Fast[row] = roots.Fast[i]
		}
	}
	s.active = slices.DeleteFunc(s.active, func(row int32) bool { return slices.Contains(rows, row) })
	s.openRoots(rows, slots)
	return nil
}

// own makes the roots a copy of the search's own, once.
func (s *Search) own() {
	if s.ownRoots {
		return
	}
	r := *s.roots
	r.States, r.Seeds = slices.Clone(r.States), slices.Clone(r.Seeds)
	r.Simulations, r.Fast = slices.Clone(r.Simulations), slices.Clone(r.Fast)
	s.roots, s.ownRoots = &r, true
}

// count takes what a row did into the statistics, before it is forgotten.
func (s *Search) count(row int32) {
	t := s.trees[row]
	s.stats.Simulations += t.Simulations()
	s.stats.MaxDepth = max(s.stats.MaxDepth, t.Depth())
	s.stats.Pruned += t.Pruned()
	if t.Proven() {
		s.stats.Proven++
	}
}
