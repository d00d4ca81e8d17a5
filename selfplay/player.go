package selfplay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// ErrPlayer is returned for a player that can't be made; the error says why, and what is known.
var ErrPlayer = errors.New("selfplay: bad player")

// Player chooses actions.
type Player interface {
	Name() string
	// Choose writes a legal action for each state, none of which has ended. seed is a number a
	// state that random choices are to come from.
	Choose(ctx context.Context, store *statestore.Store, states []int32, seeds []uint64, out []int32) error
}

// PlayerOptions is what ParsePlayer needs beside the name.
type PlayerOptions struct {
	Env         *envs.Env
	Workers     dispatch.Runner // may be nil
	Simulations int             // of a model without a number of its own
}

// ParsePlayer makes the player that a text names:
//
//	random          any legal action
//	perfect         an action that keeps the value, for environments with a solver
//	uct:N           UCT with N simulations, one random playout each
//	MODEL           a model by Gumbel search; see package named for the forms of its name
//	MODEL@N         the same with N simulations
//	policy:MODEL    the model's most likely action, without search
//
// free frees the model.
func ParsePlayer(text string, o PlayerOptions) (p Player, free func(), err error) {
	nothing := func() {}
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "random":
		return Random{}, nothing, nil
	case "perfect":
		if !o.Env.Capabilities().Solves {
			return nil, nil, fmt.Errorf("%w: \"perfect\": %s has no solver", ErrPlayer, o.Env.Spec().ID)
		}
		return Perfect{}, nothing, nil
	case "uct":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 {
			return nil, nil, fmt.Errorf("%w: %q; want uct:N with N at least 1", ErrPlayer, text)
		}
		p, err := NewUCT(o.Env, n, o.Workers)
		return p, nothing, err
	case "policy":
		ev, free, err := openModel(rest, o.Env)
		if err != nil {
			return nil, nil, err
		}
		return NewRaw(text, ev), free, nil
	}
	model, n := text, o.Simulations
	if at := strings.LastIndex(text, "@"); at >= 0 {
		if n, err = strconv.Atoi(text[at+1:]); err != nil || n < 1 {
			return nil, nil, fmt.Errorf("%w: %q; want MODEL@N with N at least 1", ErrPlayer, text)
		}
		model = text[:at]
	}
	ev, free, err := openModel(model, o.Env)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (known: random, perfect, uct:N, policy:MODEL, MODEL, MODEL@N)", err)
	}
	return NewGumbel(text, o.Env, ev, n, o.Workers), free, nil
}

func openModel(name string, env *envs.Env) (evaluator.Evaluator, func(), error) {
	ev, free, err := named.Open(name, env)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrPlayer, err)
	}
	return ev, free, nil
}

// Random plays any legal action.
type Random struct{}

// Name is "random".
func (Random) Name() string { return "random" }

// Choose draws.
func (Random) Choose(
	_ context.Context, store *statestore.Store, states []int32, seeds []uint64, out []int32,
) error {
	a := store.Env().Spec().NumActions
	mask := make([]bool, len(states)*a)
	if err := store.Read(states, statestore.View{Mask: mask}); err != nil {
		return err
	}
	for i := range states {
		out[i] = pick(mask[i*a:(i+1)*a], seeds[i])
	}
	return nil
}

// pick draws a true entry.
func pick(mask []bool, seed uint64) int32 {
	var legal []int32
	for a, ok := range mask {
		if ok {
			legal = append(legal, int32(a))
		}
	}
	rnd := rng.New(seed)
	return legal[rnd.IntN(len(legal))]
}

// Perfect plays any of the actions that keep the value, by the environment's solver.
type Perfect struct{}

// Name is "perfect".
func (Perfect) Name() string { return "perfect" }

// Choose asks the solver.
func (Perfect) Choose(
	ctx context.Context, store *statestore.Store, states []int32, seeds []uint64, out []int32,
) error {
	best := make([]bool, store.Env().Spec().NumActions)
	for i, s := range states {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := store.BestActions(s, best); err != nil {
			return err
		}
		out[i] = pick(best, seeds[i])
	}
	return nil
}

// Searcher plays what a search answers.
type Searcher struct {
	name    string
	ev      evaluator.Evaluator
	cfg     search.Config
	workers dispatch.Runner
}

// NewSearcher returns a player that searches with these settings.
func NewSearcher(name string, ev evaluator.Evaluator, cfg search.Config, workers dispatch.Runner) *Searcher {
	return &Searcher{name, ev, cfg, workers}
}

// NewGumbel returns a player that plays a model by Gumbel search without noise, with proofs where the
// environment allows.
func NewGumbel(
	name string, env *envs.Env, ev evaluator.Evaluator, simulations int, workers dispatch.Runner,
) *Searcher {
	cfg := search.Default(tree.Gumbel, env.Spec())
	cfg.NumSimulations, cfg.GumbelScale, cfg.Solve = simulations, 0, solvable(env.Spec())
	return NewSearcher(name, ev, cfg, workers)
}

// NewUCT returns the reference player: UCT with one random playout a simulation.
func NewUCT(env *envs.Env, simulations int, workers dispatch.Runner) (*Searcher, error) {
	ev, err := evaluator.NewRollout(1, 10_000)
	if err != nil {
		return nil, err
	}
	cfg := search.Default(tree.UCT, env.Spec())
	cfg.NumSimulations = simulations
	return NewSearcher(fmt.Sprintf("uct:%d", simulations), ev, cfg, workers), nil
}

// Name is what it was made with.
func (p *Searcher) Name() string { return p.name }

// Choose searches.
func (p *Searcher) Choose(
	ctx context.Context, store *statestore.Store, states []int32, seeds []uint64, out []int32,
) error {
	roots := &search.Roots{States: states, Seeds: seeds}
	return search.Run(ctx, store, p.workers, roots, p.ev, p.cfg, &search.Result{Action: out})
}

// Raw plays the most likely action of an evaluator, without search.
type Raw struct {
	name string
	ev   evaluator.Evaluator
}

// NewRaw returns a player of an evaluator's policy.
func NewRaw(name string, ev evaluator.Evaluator) *Raw { return &Raw{name, ev} }

// Name is what it was made with.
func (p *Raw) Name() string { return p.name }

// Choose evaluates.
func (p *Raw) Choose(
	ctx context.Context, store *statestore.Store, states []int32, seeds []uint64, out []int32,
) error {
	n, spec := len(states), store.Env().Spec()
	legal := make([]bool, n*spec.NumActions)
	if err := store.Read(states, statestore.View{Mask: legal}); err != nil {
		return err
	}
	o := evaluator.Output{Logits: make([]float32, n*spec.NumActions), Value: make([]float32, n)}
	if _, err := search.Evaluate(ctx, store, states, seeds, p.ev, &o); err != nil {
		return err
	}
	for i := range states {
		best := int32(-1)
		for a := i * spec.NumActions; a < (i+1)*spec.NumActions; a++ {
			if legal[a] && (best < 0 || o.Logits[a] > o.Logits[best]) {
				best = int32(a)
			}
		}
		out[i] = best - int32(i*spec.NumActions)
	}
	return nil
}
