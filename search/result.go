package search

import "github.com/azserve/azserve/search/tree"

// Result is where the answers go, in the caller's memory. A nil slice isn't written.
type Result struct {
	Action  []int32   // [B]
	Weights []float32 // [B, A] the improved policy
	Visits  []int32   // [B, A]
	QValues []float32 // [B, A] from the root mover's view; 0 if unvisited
	Value   []float32 // [B] mean value of the root, from its mover's view
	Raw     []float32 // [B] the evaluator's value of the root
	Proven  []bool    // [B] the value is certain (Solve)
	Errors  []error   // [B] why a row was given up; nil where it wasn't
	Stats   Stats     // summed over all rows
	Version uint64    // of the weights that evaluated (evaluator.Pinner); 0 where the evaluator has none
}

// NewResult returns memory for n rows.
func NewResult(n, actions int) *Result {
	return &Result{
		Action: make([]int32, n), Weights: make([]float32, n*actions), Visits: make([]int32, n*actions),
		QValues: make([]float32, n*actions), Value: make([]float32, n), Raw: make([]float32, n),
	}
}

// Result writes the answers as they stand: of finished rows, or of what was simulated so far. Rows
// without an evaluation of their root get zeros.
func (s *Search) Result(out *Result) error {
	if s.closed {
		return ErrClosed
	}
	s.result(out, 0)
	out.Stats, out.Version = s.Stats(), s.model
	return nil
}

// result writes the answers to rows row0 and up.
func (s *Search) result(out *Result, row0 int) {
	for row := range s.trees {
		s.rowResult(row, out, row0+row)
	}
}

// rowResult writes the answer of a row to row at.
func (s *Search) rowResult(row int, out *Result, at int) {
	t := s.trees[row]
	o := tree.Output{
		Visits: rowPart(out.Visits, at, s.actions), QValues: rowPart(out.QValues, at, s.actions),
		Weights: rowPart(out.Weights, at, s.actions),
	}
	if t.Started() {
		t.Output(&o, &tree.Draw{
			Temperature: s.cfg.Temperature, Gumbel: s.actionGumbel(int32(row)),
			VisitOffset: s.cfg.VisitOffset, ValueCutoff: s.cfg.ValueCutoff,
		})
	}
	put(out.Action, at, o.Action)
	put(out.Value, at, o.Value)
	put(out.Raw, at, t.RawValue())
	put(out.Proven, at, t.Proven())
	put(out.Errors, at, s.errs[row])
}

// actionGumbel returns the noise that draws a row's action, nil where none is drawn. MuZero and
// Stochastic draw among the most visited at temperature 0, as mctx does; the others take the first.
func (s *Search) actionGumbel(row int32) []float32 {
	if s.cfg.Policy == tree.Gumbel || (s.cfg.Temperature == 0 && !s.cfg.Policy.LikeMCTX()) {
		return nil
	}
	return s.gumbel(s.roots.Noise.ActionGumbel, row, s.seed(row), streamActionGumbel)
}

func rowPart[T any](x []T, row, n int) []T {
	if x == nil {
		return nil
	}
	return x[row*n : (row+1)*n]
}

func put[T any](x []T, i int, v T) {
	if x != nil {
		x[i] = v
	}
}
