package selfplay

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/replay"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// GamesConfig is how games are played. All fields are explicit: 0 is 0.
type GamesConfig struct {
	Search           search.Config
	Parallel         int     // games side by side, at least 1
	OpeningFraction  float64 // share of games that begin with random moves, 0 to 1
	OpeningPlies     int     // up to so many random moves
	TemperaturePlies int     // moves drawn by visits; later ones are the most visited (not Gumbel)
	ValueMix         float32 // share of the search's value in the value to learn; a proven one counts whole
	MaxPlies         int     // a game is cut off there; 0 means no limit
	Seed             uint64

	// Playout cap randomisation (Wu 2019, section 3.1): with FastSimulations above 0, FullShare of the moves
	// are searched whole and learnt from; the others get so many simulations, without noise, and only move
	// the game on.
	FastSimulations int
	FullShare       float64 // 0 to 1; above 0 with FastSimulations
}

func (c *GamesConfig) validate() error {
	switch {
	case c.Parallel < 1:
		return fmt.Errorf("selfplay: parallel %d; want at least 1", c.Parallel)
	case !(c.OpeningFraction >= 0 && c.OpeningFraction <= 1):
		return fmt.Errorf("selfplay: opening_fraction %g; want 0 to 1", c.OpeningFraction)
	case !(c.ValueMix >= 0 && c.ValueMix <= 1):
		return fmt.Errorf("selfplay: value_mix %g; want 0 to 1", c.ValueMix)
	case c.FastSimulations < 0 || c.FastSimulations > c.Search.NumSimulations:
		return fmt.Errorf("selfplay: fast_simulations %d; want 0 to simulations=%d", c.FastSimulations,
			c.Search.NumSimulations)
	case c.FastSimulations > 0 && !(c.FullShare > 0 && c.FullShare <= 1):
		return fmt.Errorf("selfplay: full_share %g; want above 0, to 1, with fast_simulations", c.FullShare)
	case c.OpeningPlies < 0 || c.TemperaturePlies < 0 || c.MaxPlies < 0:
		return fmt.Errorf("selfplay: opening_plies %d, temperature_plies %d, max_plies %d; want 0 or more",
			c.OpeningPlies, c.TemperaturePlies, c.MaxPlies)
	}
	return nil
}

// Counters are what games did so far. Read them at any time.
type Counters struct {
	Games, Positions, Simulations, Evaluations, Batches atomic.Int64
}

// Episode is what a finished game teaches, one row a searched position.
type Episode struct {
	Obs    []envs.Array // [T, ...]
	Policy []float32    // [T, A] the search's improved policy
	Legal  []bool       // [T, A]
	Value  []float32    // [T] from the view of the player to move

	// Version is of the weights that searched each position (search.Result.Version).
	Version []uint64 // [T]
}

// Len returns the number of positions.
func (e *Episode) Len() int { return len(e.Value) }

// AddTo puts the positions into a ring.
func (e *Episode) AddTo(r *replay.Ring) {
	a := len(e.Policy) / max(1, e.Len())
	for i, v := range e.Value {
		r.Add(&replay.Position{
			Obs: e.Obs, Row: i, Policy: e.Policy[i*a : (i+1)*a], Legal: e.Legal[i*a : (i+1)*a], Value: v,
			Version: e.Version[i],
		})
	}
}

// Games plays games of an evaluator against itself.
type Games struct {
	cfg      GamesConfig
	store    *statestore.Store
	workers  dispatch.Runner
	Counters Counters
}

// NewGames checks the configuration.
func NewGames(store *statestore.Store, workers dispatch.Runner, cfg GamesConfig) (*Games, error) {
	return &Games{cfg: cfg, store: store, workers: workers}, cfg.validate()
}

// live is a game in progress.
type live struct {
	index   uint64
	state   int32
	ply     uint64
	opening int // random moves still to make
	past    []ply
}

// ply is a searched position of a game and what followed.
type ply struct {
	state   int32
	policy  []float32
	value   float32 // the search's
	proven  bool    // and certain
	fast    bool    // searched only to move the game on: not learnt from
	reward  float32 // of the action played, to its mover
	version uint64  // of the weights that searched
}

// Play plays games first to first+count-1 and returns their episodes in the order they ended. A
// game's course depends on the seed, its index and the evaluator alone.
func (g *Games) Play(ctx context.Context, ev evaluator.Evaluator, first, count int) ([]*Episode, error) {
	var running []*live
	defer func() {
		for _, l := range running {
			g.drop(l)
		}
	}()
	var done []*Episode
	for next := first; next < first+count || len(running) > 0; {
		for ; len(running) < g.cfg.Parallel && next < first+count; next++ {
			l, err := g.start(uint64(next))
			if err != nil {
				return nil, err
			}
			running = append(running, l)
		}
		if err := g.step(ctx, ev, running, func(e *Episode) { done = append(done, e) }); err != nil {
			return nil, err
		}
		kept := running[:0]
		for _, l := range running {
			if l.state != over {
				kept = append(kept, l)
			}
		}
		running = kept
	}
	return done, nil
}

// over marks a game that has ended: handles are positive.
const over = int32(-1)

func (g *Games) start(index uint64) (*live, error) {
	l := &live{index: index}
	rnd := rng.New(g.cfg.Seed, index)
	if rnd.Float64() < g.cfg.OpeningFraction && g.cfg.OpeningPlies > 0 {
		l.opening = 1 + rnd.IntN(g.cfg.OpeningPlies)
	}
	var h [1]int32
	err := g.store.Reset([]int32{int32(index)}, []uint64{rnd.Uint64()}, h[:])
	l.state = h[0]
	return l, err
}

func (g *Games) drop(l *live) {
	if l.state != over {
		_ = g.store.Release([]int32{l.state})
	}
	for _, p := range l.past {
		_ = g.store.Release([]int32{p.state})
	}
}

// step makes one move in every running game.
func (g *Games) step(
	ctx context.Context, ev evaluator.Evaluator, running []*live, finished func(*Episode),
) error {
	n, a := len(running), g.store.Env().Spec().NumActions
	actions, states := make([]int32, n), make([]int32, n)
	var searched []*live
	for i, l := range running {
		states[i] = l.state
		if l.opening > 0 {
			l.opening--
			mask := make([]bool, a)
			if err := g.store.Read(states[i:i+1], statestore.View{Mask: mask}); err != nil {
				return err
			}
			actions[i] = pick(mask, rng.Derive(g.cfg.Seed, l.index, l.ply, 1))
			continue
		}
		searched = append(searched, l)
	}
	chosen, err := g.search(ctx, ev, searched)
	if err != nil {
		return err
	}
	k := 0
	for i, l := range running {
		if k < len(searched) && searched[k] == l {
			actions[i] = chosen[k]
			k++
		}
	}
	return g.apply(running, states, actions, finished)
}

// search searches the games' positions, notes the policies, and returns the actions.
func (g *Games) search(ctx context.Context, ev evaluator.Evaluator, games []*live) ([]int32, error) {
	n, a := len(games), g.store.Env().Spec().NumActions
	roots := &search.Roots{States: make([]int32, n), Seeds: make([]uint64, n)}
	for i, l := range games {
		roots.States[i], roots.Seeds[i] = l.state, rng.Derive(g.cfg.Seed, l.index, l.ply)
	}
	g.capPlayouts(roots, games)
	out := search.NewResult(n, a)
	out.Proven = make([]bool, n)
	cfg := g.cfg.Search
	if err := search.Run(ctx, g.store, g.workers, roots, ev, cfg, out); err != nil {
		return nil, err
	}
	for i, l := range games {
		l.past = append(l.past, ply{
			state: l.state, policy: out.Weights[i*a : (i+1)*a], value: out.Value[i], proven: out.Proven[i],
			fast: roots.Fast != nil && roots.Fast[i], version: out.Version,
		})
		if cfg.Policy != tree.Gumbel && cfg.LCB == 0 && l.ply >= uint64(g.cfg.TemperaturePlies) {
			out.Action[i] = int32(vecmath.ArgMax(out.Weights[i*a : (i+1)*a]))
		}
	}
	c := &g.Counters
	c.Positions.Add(int64(n))
	c.Simulations.Add(int64(out.Stats.Simulations))
	c.Evaluations.Add(int64(out.Stats.Evaluations))
	c.Batches.Add(int64(out.Stats.Batches))
	return out.Action, nil
}

// capPlayouts draws which moves get a full search.
func (g *Games) capPlayouts(roots *search.Roots, games []*live) {
	if g.cfg.FastSimulations == 0 {
		return
	}
	roots.Simulations, roots.Fast = make([]int32, len(games)), make([]bool, len(games))
	for i, l := range games {
		rnd := rng.New(g.cfg.Seed, l.index, l.ply, 2)
		roots.Simulations[i] = int32(g.cfg.Search.NumSimulations)
		if rnd.Float64() >= g.cfg.FullShare {
			roots.Simulations[i], roots.Fast[i] = int32(g.cfg.FastSimulations), true
		}
	}
}

// apply plays the actions; a game that ended is turned into an episode.
func (g *Games) apply(running []*live, states, actions []int32, finished func(*Episode)) error {
	n := len(running)
	out := statestore.Steps{
		Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n),
		Truncated: make([]bool, n),
	}
	if err := g.store.Simulate(states, actions, &out); err != nil {
		return err
	}
	for i, l := range running {
		recorded := len(l.past) > 0 && l.past[len(l.past)-1].state == l.state
		if recorded {
			l.past[len(l.past)-1].reward = out.Reward[i]
		} else if err := g.store.Release(states[i : i+1]); err != nil {
			return err
		}
		l.state = out.Children[i]
		l.ply++
		cut := g.cfg.MaxPlies > 0 && l.ply >= uint64(g.cfg.MaxPlies)
		if !out.Terminated[i] && !out.Truncated[i] && !cut {
			continue
		}
		e, err := g.finish(l)
		if err != nil {
			return err
		}
		g.Counters.Games.Add(1)
		finished(e)
	}
	return nil
}

// finish turns a game into an episode and frees its states.
func (g *Games) finish(l *live) (*Episode, error) {
	n := len(l.past)
	states, turns, rewards, values := make([]int32, n, n+1), make([]int32, n), make([]float32, n), make([]float32, n)
	for i, p := range l.past {
		states[i], rewards[i] = p.state, p.reward
	}
	if err := g.store.Read(states, statestore.View{ToPlay: turns}); err != nil {
		return nil, err
	}
	Returns(rewards, turns, g.cfg.Search.Discount, values)
	e := &Episode{}
	var learnt []int32
	for i, p := range l.past {
		if p.fast {
			continue
		}
		mix := g.cfg.ValueMix
		if p.proven {
			mix = 1
		}
		learnt = append(learnt, p.state)
		e.Policy, e.Version = append(e.Policy, p.policy...), append(e.Version, p.version)
		e.Value = append(e.Value, values[i]+mix*(p.value-values[i]))
	}
	spec := g.store.Env().Spec()
	e.Obs, e.Legal = envs.NewArrays(spec.Obs, len(learnt)), make([]bool, len(learnt)*spec.NumActions)
	if err := g.store.Read(learnt, statestore.View{Obs: e.Obs, Mask: e.Legal}); err != nil {
		return nil, err
	}
	err := g.store.Release(append(states, l.state))
	l.state, l.past = over, nil
	return e, err
}

// Returns writes the return of each step of an episode, from the view of its mover: the rewards from
// there on, each belonging to the player who moved, with the sign turned wherever another player
// moves. discount is per step.
func Returns(rewards []float32, turns []int32, discount float32, out []float32) {
	next := float32(0)
	for t := len(rewards) - 1; t >= 0; t-- {
		if t+1 < len(rewards) && turns[t+1] != turns[t] {
			next = -next
		}
		next = rewards[t] + discount*next
		out[t] = next
	}
}
