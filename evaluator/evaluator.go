// Package evaluator says what a search asks for at its leaves, and has the kinds that need no
// network: uniform, rollout, table and func. Networks are in sub-folders.
package evaluator

import (
	"context"

	"github.com/azserve/azserve/envs"
)

// Batch is the states to evaluate. All memory belongs to the caller and is valid during the call
// only.
type Batch struct {
	N     int          // rows
	Spec  *envs.Spec   // of the environment
	Obs   []envs.Array // [N, ...] each; nil unless Needs.Obs
	Legal []bool       // [N, A]; nil if every action is always legal

	// Chance marks afterstates, where nature is about to draw (envs.Chancer; policy Stochastic). Their value
	// is from the view of the player whose action it was; what is said of their logits is not read, and
	// Legal is true everywhere. Nil where there is no chance.
	Chance []bool // [N]

	// The states themselves, in slots of an arena; only if Needs.States. Read-only.
	Arena envs.Arena
	Slots []int32 // [N]

	// Seeds has one number a row for evaluators that draw random numbers. It depends on the row's
	// search, seed and place in the tree only. Only if Needs.States.
	Seeds []uint64 // [N]
}

// Output is where an evaluator writes, in the caller's memory.
type Output struct {
	Logits []float32 // [N, A] prior logits; those of illegal actions don't matter
	Value  []float32 // [N] from the view of the player to move
	// Uniform may be set in place of writing Logits: all equal.
	Uniform bool
	// Errors says why rows have no answer: [N], nil where they have one; nil if all have one. The searches
	// that asked for these rows are given up, and no others. Its memory is the evaluator's.
	Errors []error
}

// Fail notes that row i of n has no answer.
func (o *Output) Fail(i, n int, err error) {
	if o.Errors == nil {
		o.Errors = make([]error, n)
	}
	o.Errors[i] = err
}

// Needs says what a Batch must hold. What isn't needed isn't computed.
type Needs struct {
	Obs    bool
	States bool
	// Instant says that a batch costs what its rows cost, so that large ones gain nothing. Rows are
	// then searched one after the other: a tree that fits into the processor's cache is several
	// times as fast as many that don't.
	Instant bool
}

// Evaluator gives prior logits and values of states. Evaluate may be called from several goroutines
// at once, must answer every row independently of the others, and must stop when ctx ends. The
// search checks what it says: a NaN fails the row it belongs to.
type Evaluator interface {
	Needs() Needs
	Evaluate(ctx context.Context, in *Batch, out *Output) error
}

// Uniform gives equal logits and value 0.
type Uniform struct{}

// Needs is nothing.
func (Uniform) Needs() Needs { return Needs{Instant: true} }

// Evaluate writes zeros.
func (Uniform) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	out.Uniform = true
	clear(out.Value[:in.N])
	return ctx.Err()
}

// Func is an evaluator made of a Go function.
type Func func(ctx context.Context, in *Batch, out *Output) error

// Needs is the observations.
func (Func) Needs() Needs { return Needs{Obs: true} }

// Evaluate calls the function.
func (f Func) Evaluate(ctx context.Context, in *Batch, out *Output) error { return f(ctx, in, out) }
