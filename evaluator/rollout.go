package evaluator

import (
	"context"
	"fmt"
	"sync"

	"github.com/azserve/azserve/internal/rng"
)

// Rollout values a state by playing random legal actions from it to the end, and has equal logits.
type Rollout struct {
	count    int
	maxSteps int
	memory   sync.Pool // *playouts
}

// playouts is the memory of one Evaluate.
type playouts struct {
	seeds []uint64
	value []float32
}

// NewRollout averages count playouts of at most maxSteps steps each; a playout cut off there is
// worth what it collected so far.
func NewRollout(count, maxSteps int) (*Rollout, error) {
	if count < 1 || maxSteps < 1 {
		return nil, fmt.Errorf("evaluator: rollout of %d playouts, %d steps; want at least 1 of each",
			count, maxSteps)
	}
	r := &Rollout{count: count, maxSteps: maxSteps}
	r.memory.New = func() any { return &playouts{} }
	return r, nil
}

// Needs is the states.
func (*Rollout) Needs() Needs { return Needs{States: true, Instant: true} }

// Evaluate plays.
func (r *Rollout) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	out.Uniform = true
	p := r.memory.Get().(*playouts)
	defer r.memory.Put(p)
	p.seeds, p.value = fit(p.seeds, in.N), fit(p.value, in.N)
	clear(out.Value[:in.N])
	for k := range r.count {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range p.seeds {
			p.seeds[i] = rng.Derive(in.Seeds[i], uint64(k))
		}
		in.Arena.Playout(in.Slots[:in.N], p.seeds, r.maxSteps, p.value)
		for i, v := range p.value {
			out.Value[i] += v / float32(r.count)
		}
	}
	return nil
}

func fit[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}
