package evaluator

import (
	"context"
	"fmt"
	"math"

	"github.com/azserve/azserve/envs"
)

// AnswerError is a row that an evaluator should not have answered so.
type AnswerError struct {
	Evaluator string // its name
	Row       int    // of the batch
	Problem   string // what is wrong, and what would be right
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("evaluator %s: row %d: %s", e.Evaluator, e.Row, e.Problem)
}

// Checked looks at every answer of an evaluator by its name: a value that is no finite number or out of range, a
// logit that is NaN or +Inf, legal actions whose logits are all -Inf. Such a row fails (Output.Errors, with an
// [*AnswerError]); the others stand.
type Checked struct {
	name      string
	ev        Evaluator
	low, high float32
}

// rangeSlack is how far a value may be out of range: what rounding makes of a tanh.
const rangeSlack = 1e-4

// NewChecked checks an evaluator of an environment. In a game of several players values must be within the range
// of its rewards, in both directions; with one player any finite number will do.
func NewChecked(name string, ev Evaluator, spec *envs.Spec) *Checked {
	c := &Checked{name: name, ev: ev, low: -math.MaxFloat32, high: math.MaxFloat32}
	if top := max(spec.RewardHigh, -spec.RewardLow); spec.NumPlayers > 1 && top > 0 {
		c.low, c.high = -top-rangeSlack, top+rangeSlack
	}
	return c
}

// Needs is what the evaluator needs.
func (c *Checked) Needs() Needs { return c.ev.Needs() }

// Pin pins the evaluator.
func (c *Checked) Pin() (Evaluator, uint64, func()) {
	ev, version, release := Pin(c.ev)
	pinned := *c
	pinned.ev = ev
	return &pinned, version, release
}

// Evaluate evaluates and checks.
func (c *Checked) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	if err := c.ev.Evaluate(ctx, in, out); err != nil {
		return fmt.Errorf("evaluator %s: %w", c.name, err)
	}
	a := in.Spec.NumActions
	for i := range in.N {
		problem := c.value(out.Value[i])
		if problem == "" && !out.Uniform && (in.Chance == nil || !in.Chance[i]) {
			problem = checkLogits(out.Logits[i*a:(i+1)*a], in.legal(i))
		}
		if problem != "" && (out.Errors == nil || out.Errors[i] == nil) {
			out.Fail(i, in.N, &AnswerError{c.name, i, problem})
		}
	}
	return nil
}

// legal returns row i of the legal actions, nil if all are.
func (b *Batch) legal(i int) []bool {
	if b.Legal == nil {
		return nil
	}
	a := b.Spec.NumActions
	return b.Legal[i*a : (i+1)*a]
}

func (c *Checked) value(v float32) string {
	switch {
	case v-v != 0:
		return fmt.Sprintf("value is %v; want a finite number", v)
	case v < c.low || v > c.high:
		return fmt.Sprintf("value is %v; want %g to %g", v, c.low+rangeSlack, c.high-rangeSlack)
	}
	return ""
}

// checkLogits says what is wrong with the logits of the legal actions; "" if nothing is.
func checkLogits(logits []float32, legal []bool) string {
	any, finite := false, false
	for a, l := range logits {
		if legal != nil && !legal[a] {
			continue
		}
		any = true
		if l != l || l > math.MaxFloat32 {
			return fmt.Sprintf("logit of action %d is %v; want a finite number or -Inf", a, l)
		}
		finite = finite || l >= -math.MaxFloat32
	}
	if any && !finite {
		return "the logits of all legal actions are -Inf; want a finite one"
	}
	return ""
}
