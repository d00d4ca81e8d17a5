package search

import (
	"context"
	"sync"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// Run searches all roots with an evaluator and writes the answers. The rows are split over the
// threads of workers (nil means the calling thread), each part with batches of its own.
//
// A row whose evaluation is no number is given up, and Run returns an error that names it; the other
// rows' answers are there. When ctx ends, Run returns its error, and the answers are of what was
// simulated so far.
func Run(
	ctx context.Context, store *statestore.Store, workers dispatch.Runner, roots *Roots,
	ev evaluator.Evaluator, cfg Config, out *Result,
) error {
	params, err := check(store, roots, &cfg)
	if err != nil {
		return err
	}
	n := len(roots.States)
	out.Stats = Stats{}
	parts := runParts{ctx: ctx, ev: ev, out: out}
	one := func(lo, hi int) {
		size := hi - lo
		if ev.Needs().Instant && roots.Deadlines == nil { // rows with deadlines must share the time
			size = 1
		}
		a := store.Env().Spec().NumActions
		s, err := begin(store, roots.slice(lo, lo+size, a), &cfg, params, ev.Needs())
		if err == nil {
			defer s.Close()
		}
		for parts.add(s, lo, err); err == nil && lo+size < hi; {
			lo += size
			err = s.start(roots.slice(lo, lo+size, a))
			parts.add(s, lo, err)
		}
	}
	if n == 0 {
		return nil
	}
	if workers == nil || n == 1 {
		one(0, n)
	} else {
		workers.Run(n, min(workers.Size(), n), one)
	}
	return parts.err
}

// runParts gathers what the parts of a Run bring.
type runParts struct {
	ctx context.Context
	ev  evaluator.Evaluator
	out *Result

	mu  sync.Mutex // guards err, row and out.Stats
	err error
	row int
}

// add runs a part to its end; it starts at row lo.
func (p *runParts) add(s *Search, lo int, err error) {
	var stats Stats
	if err == nil {
		err = s.run(p.ctx, p.ev)
		if err == nil {
			err = s.errFrom(lo)
		}
		s.result(p.out, lo)
		stats = s.Stats()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && (p.err == nil || lo < p.row) {
		p.err, p.row = err, lo
	}
	t := &p.out.Stats
	t.Simulations += stats.Simulations
	t.Evaluations += stats.Evaluations
	t.Batches += stats.Batches
	t.Proven += stats.Proven
	t.Pruned += stats.Pruned
	t.MaxDepth = max(t.MaxDepth, stats.MaxDepth)
}

// run is the loop: select, evaluate, expand.
func (s *Search) run(ctx context.Context, ev evaluator.Evaluator) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := s.Select()
		if err != nil || batch.N == 0 {
			return err
		}
		out := &s.leaves.out
		if err := evaluate(ctx, ev, batch, out); err != nil {
			return err
		}
		logits := out.Logits
		if out.Uniform {
			logits = nil
		}
		if err := s.Expand(logits, out.Value); err != nil {
			return err
		}
	}
}

// evaluate turns a panic of the evaluator into an error.
func evaluate(
	ctx context.Context, ev evaluator.Evaluator, in *evaluator.Batch, out *evaluator.Output,
) (err error) {
	defer safe.Recover(&err)
	return ev.Evaluate(ctx, in, out)
}

// Prior returns the prior of a state's actions, as a search sees it: the evaluator's logits over the
// legal actions.
func Prior(
	ctx context.Context, store *statestore.Store, state int32, ev evaluator.Evaluator, cfg Config,
) ([]float32, error) {
	cfg.NumSimulations = 0
	x, err := KeepTree(ctx, store, &Roots{States: []int32{state}, Seeds: []uint64{0}}, ev, cfg)
	if err != nil {
		return nil, err
	}
	prior := make([]float32, store.Env().Spec().NumActions)
	if !x.Terminal[tree.Root] {
		vecmath.Softmax(x.ChildrenPriorLogits[:len(prior)], prior)
	}
	return prior, nil
}

// KeepTree searches the first of the roots and returns its tree, with logits.
func KeepTree(
	ctx context.Context, store *statestore.Store, roots *Roots, ev evaluator.Evaluator, cfg Config,
) (*tree.Export, error) {
	cfg.KeepLogits = true
	s, err := New(store, roots.slice(0, 1, store.Env().Spec().NumActions), cfg, ev.Needs())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.run(ctx, ev); err != nil {
		return nil, err
	}
	return s.Tree(0).Export(), s.Err()
}
