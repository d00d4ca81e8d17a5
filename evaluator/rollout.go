package evaluator

import (
	"context"
	"fmt"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
)

// Rollout values a state by playing random legal actions from it to the end, and has equal logits.
// All playouts of a batch run side by side.
type Rollout struct {
	env      *envs.Env
	count    int
	maxSteps int
	memory   sync.Pool // *playouts
}

// NewRollout averages count playouts of at most maxSteps steps each; a playout cut off there is
// worth what it collected so far.
func NewRollout(env *envs.Env, count, maxSteps int) (*Rollout, error) {
	if count < 1 || maxSteps < 1 {
		return nil, fmt.Errorf("evaluator: rollout of %d playouts, %d steps; want at least 1 of each",
			count, maxSteps)
	}
	r := &Rollout{env: env, count: count, maxSteps: maxSteps}
	r.memory.New = func() any { return &playouts{arena: env.NewArena(0)} }
	return r, nil
}

// Needs is the states.
func (*Rollout) Needs() Needs { return Needs{States: true, Instant: true} }

// Evaluate plays.
func (r *Rollout) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	out.Uniform = true
	clear(out.Value[:in.N])
	p := r.memory.Get().(*playouts)
	defer r.memory.Put(p)
	for k := range r.count {
		if err := p.begin(in, k); err != nil {
			return err
		}
		for step := 0; step < r.maxSteps && len(p.open) > 0; step++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			p.step(in, out.Value)
		}
	}
	for i := range in.N {
		out.Value[i] /= float32(r.count)
	}
	return nil
}

// playouts is the memory of one Evaluate. Row i of the batch plays in slot i.
type playouts struct {
	arena   envs.Arena
	open    []int32 // slots of playouts that go on
	rnd     []rng.Stream
	first   []int32 // the player that row i's value is for
	turn    []int32 // parallel to open
	mask    []bool
	actions []int32
	out     []envs.Outcome
}

func (p *playouts) begin(in *Batch, k int) error {
	n := in.N
	p.arena.Grow(n)
	p.open, p.rnd = fit(p.open, n), fit(p.rnd, n)
	p.first, p.turn, p.actions = fit(p.first, n), fit(p.turn, n), fit(p.actions, n)
	p.out, p.mask = fit(p.out, n), fit(p.mask, n*in.Spec.NumActions)
	for i := range p.open {
		p.open[i] = int32(i)
		p.rnd[i] = rng.New(in.Seeds[i], uint64(k))
	}
	if err := p.arena.Copy(p.open, in.Arena, in.Slots); err != nil {
		return err
	}
	p.arena.ToPlay(p.open, p.first)
	return nil
}

func fit[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// step plays one action in every open playout, adds the rewards up, and drops those that ended.
func (p *playouts) step(in *Batch, value []float32) {
	n, a := len(p.open), in.Spec.NumActions
	p.arena.Mask(p.open, p.mask)
	p.arena.ToPlay(p.open, p.turn)
	for i, slot := range p.open {
		p.actions[i] = pick(p.mask[i*a:(i+1)*a], &p.rnd[slot])
	}
	p.arena.Step(p.open, p.open, p.actions[:n], p.out)
	kept := p.open[:0]
	for i, slot := range p.open {
		reward := p.out[i].Reward
		if p.turn[i] != p.first[slot] {
			reward = -reward
		}
		value[slot] += reward
		if !p.out[i].Terminated && !p.out[i].Truncated {
			kept = append(kept, slot)
		}
	}
	p.open = kept
}

// pick draws a legal action, 0 if there is none.
func pick(legal []bool, rnd *rng.Stream) int32 {
	count := 0
	for _, ok := range legal {
		if ok {
			count++
		}
	}
	if count == 0 {
		return 0
	}
	k := rnd.IntN(count)
	for a, ok := range legal {
		if ok {
			if k == 0 {
				return int32(a)
			}
			k--
		}
	}
	return 0
}
