package search

import (
	"context"
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/statestore"
)

// Evaluate asks an evaluator about states, without a search: logits and values go to out, those of states that
// have ended are whatever it says. It returns the version of the weights. A bad row is ErrEvaluator, which names
// the first.
func Evaluate(
	ctx context.Context, store *statestore.Store, states []int32, seeds []uint64, ev evaluator.Evaluator,
	out *evaluator.Output,
) (version uint64, err error) {
	n, spec := len(states), store.Env().Spec()
	if n == 0 {
		return 0, ctx.Err()
	}
	block, err := store.Block(n)
	if err != nil {
		return 0, err
	}
	defer block.Release()
	in := evaluator.Batch{N: n, Spec: spec, Slots: make([]int32, n), Seeds: seeds, Arena: block.Arena}
	for i := range in.Slots {
		in.Slots[i] = int32(i)
	}
	if err := block.Fill(in.Slots, states); err != nil {
		return 0, err
	}
	if ev.Needs().Obs {
		in.Obs = envs.NewArrays(spec.Obs, n)
		block.Arena.Observe(in.Slots, in.Obs, 0)
	}
	if store.Env().Capabilities().Masks {
		in.Legal = make([]bool, n*spec.NumActions)
		block.Arena.Mask(in.Slots, in.Legal)
	}
	ev, version, release := evaluator.Pin(ev)
	defer release()
	if err := evaluate(ctx, ev, &in, out); err != nil {
		return version, err
	}
	if out.Uniform {
		clear(out.Logits)
	}
	for i := range n {
		row := out.Logits[i*spec.NumActions : (i+1)*spec.NumActions]
		err := checkAnswer(row, out.Value[i])
		if out.Errors != nil && out.Errors[i] != nil {
			err = out.Errors[i]
		}
		if err != nil {
			return version, fmt.Errorf("%w: %w: %w", ErrEvaluator, fault.RowError(i), err)
		}
	}
	return version, nil
}
