package gorgonia

import (
	"context"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// Evaluator returns the network as an evaluator of an environment; ErrConfig if it doesn't fit.
func (n *Net) Evaluator(env *envs.Env) (evaluator.Evaluator, error) {
	if err := n.cfg.fits(env); err != nil {
		return nil, err
	}
	return netEvaluator{n}, nil
}

type netEvaluator struct{ net *Net }

// Pin tells the version of the weights. They change when their owner trains or replaces them, which he should
// do between searches.
func (e netEvaluator) Pin() (evaluator.Evaluator, uint64, func()) {
	return e, e.net.Version(), func() {}
}

// Needs is the observations.
func (netEvaluator) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

// Evaluate runs the network.
func (e netEvaluator) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	return e.net.Evaluate(ctx, in.Obs, in.N, out.Logits, out.Value)
}

// Evaluate runs the network on rows 0 to rows-1 of observations and writes logits [rows, A] and
// values [rows].
func (n *Net) Evaluate(
	ctx context.Context, obs []envs.Array, rows int, logits, values []float32,
) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for lo := 0; lo < rows; {
		if err := ctx.Err(); err != nil {
			return err
		}
		g, err := n.borrow(rows - lo)
		if err != nil {
			return err
		}
		hi := min(rows, lo+g.size)
		Features(obs, lo, hi, g.x)
		clear(g.x[(hi-lo)*n.cfg.Inputs:]) // padding must be numbers
		err = g.run()
		if err == nil {
			n.split(g.y, hi-lo, logits[lo*n.cfg.Actions:], values[lo:])
		}
		n.giveBack(g)
		if err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// split writes the rows of the network's output to logits and values.
func (n *Net) split(y []float32, rows int, logits, values []float32) {
	a := n.cfg.Actions
	for i := range rows {
		r := y[i*(a+1) : (i+1)*(a+1)]
		copy(logits[i*a:(i+1)*a], r)
		values[i] = valueOf(r[a], n.cfg.Bounded)
	}
}

// Features writes rows lo to hi-1 of observations as the network's input: all arrays of a state
// flattened and joined, as float32.
func Features(obs []envs.Array, lo, hi int, out []float32) {
	at := 0
	for i := lo; i < hi; i++ {
		for k := range obs {
			n := obs[k].Size()
			obs[k].Floats(i, out[at:at+n])
			at += n
		}
	}
}
