package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// model is a hub as an evaluator of an environment.
type model struct {
	hub *Hub
	env *envs.Env
}

// Needs is the observations.
func (*model) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

// Evaluate evaluates with the newest weights.
func (m *model) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	p, _, release := m.Pin()
	defer release()
	return p.Evaluate(ctx, in, out)
}

// Pin keeps to the weights that are the newest now, as long as an evaluator has them.
func (m *model) Pin() (evaluator.Evaluator, uint64, func()) {
	v := m.hub.Stats().Version
	return &pinned{m, v}, v, func() {}
}

// pinned is a model with weights of one version.
type pinned struct {
	*model
	version uint64
}

// Pin is itself.
func (p *pinned) Pin() (evaluator.Evaluator, uint64, func()) { return p, p.version, func() {} }

// Evaluate splits a batch into what an evaluator takes.
func (p *pinned) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	out.Uniform, out.Errors = false, nil
	for lo := 0; lo < in.N; {
		n, err := p.evaluate(ctx, in, lo, out)
		if err != nil {
			return err
		}
		lo += n
	}
	return nil
}

// evaluate has rows from lo on evaluated, as many as an evaluator takes, and returns how many these were. A batch
// whose evaluator is lost goes to another one.
func (p *pinned) evaluate(ctx context.Context, in *evaluator.Batch, lo int, out *evaluator.Output) (n int,
	err error) {
	for {
		w, err := p.hub.acquire(ctx, p.version)
		if err != nil {
			return 0, err
		}
		n = min(in.N-lo, w.hello.MaxBatch)
		err = p.checked(ctx, w, in, lo, n, out)
		p.hub.release(w)
		if !errors.Is(err, errLost) {
			return n, err
		}
		p.hub.mu.Lock()
		p.hub.stats.Retried++
		p.hub.mu.Unlock()
	}
}

// checked asks an evaluator and looks at its answer.
func (p *pinned) checked(
	ctx context.Context, w *Worker, in *evaluator.Batch, lo, n int, out *evaluator.Output,
) error {
	a := p.env.Spec().NumActions
	part := rows(in, lo, n)
	answer := evaluator.Output{Logits: out.Logits[lo*a : (lo+n)*a], Value: out.Value[lo : lo+n]}
	ask := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		return w.ask(ctx, p.env, p.version, in, out)
	})
	name := fmt.Sprintf("%s of model %s", w.hello.Name, p.hub.name)
	err := evaluator.NewChecked(name, ask, p.env.Spec()).Evaluate(ctx, part, &answer)
	problem := ""
	switch {
	case errors.Is(err, ErrFailed):
		problem = err.Error()
	case err != nil:
		return err
	}
	for i, e := range answer.Errors {
		if e != nil {
			problem = e.Error()
			out.Fail(lo+i, in.N, e)
		}
	}
	w.judge(n, problem)
	return err
}

// rows returns a part of a batch, sharing memory.
func rows(in *evaluator.Batch, lo, n int) *evaluator.Batch {
	if lo == 0 && n == in.N {
		return in
	}
	out := *in
	out.N = n
	out.Obs = envs.Slice(in.Obs, lo, lo+n, make([]envs.Array, 0, len(in.Obs)))
	a := in.Spec.NumActions
	if in.Legal != nil {
		out.Legal = in.Legal[lo*a : (lo+n)*a]
	}
	if in.Chance != nil {
		out.Chance = in.Chance[lo : lo+n]
	}
	return &out
}
