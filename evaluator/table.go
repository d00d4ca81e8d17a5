package evaluator

import (
	"context"
	"errors"
	"fmt"

	"github.com/azserve/azserve/envs"
)

// ErrEnv is returned for an evaluator that doesn't fit the environment.
var ErrEnv = errors.New("evaluator: doesn't fit the environment")

// Table answers from the tables prior_logits and value of a Table-v0.
type Table struct{ rules *envs.Table }

// NewTable returns the evaluator of a Table-v0; another environment is ErrEnv.
func NewTable(env *envs.Env) (*Table, error) {
	rules, ok := env.Rules().(*envs.Table)
	if !ok {
		return nil, fmt.Errorf("%w: \"table\" is for Table-v0, not %s", ErrEnv, env.Spec().ID)
	}
	return &Table{rules}, nil
}

// Needs is the observation: the state's index.
func (*Table) Needs() Needs { return Needs{Obs: true, Instant: true} }

// Evaluate looks the states up.
func (e *Table) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	a := in.Spec.NumActions
	for i, s := range in.Obs[0].I32[:in.N] {
		logits, value := e.rules.Prior(s)
		row := out.Logits[i*a : (i+1)*a]
		clear(row[copy(row, logits):])
		out.Value[i] = value
	}
	return ctx.Err()
}
