package selfplay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/internal/safe"
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
	TemperaturePlies int     // moves drawn by visits, or with Gumbel noise; later ones are what the search thinks best
	Lambda           float32 // of the returns to learn, above 0 to 1: see Returns; 1 is what came of the game
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
	case !(c.Lambda > 0 && c.Lambda <= 1):
		return fmt.Errorf("selfplay: lambda %g; want above 0, to 1", c.Lambda)
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

	index int // the game's number
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
	index uint64
	state int32
	ply   uint64
	past  []ply
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

// Play plays games first to first+count-1 and returns their episodes in the order of their numbers. A game's
// course depends on the seed, its number and the evaluator alone. Each thread has its share of the games that are
// played side by side, and a game whose search is done goes on without the others (see table).
func (g *Games) Play(ctx context.Context, ev evaluator.Evaluator, first, count int) ([]*Episode, error) {
	ev, version, release := evaluator.Pin(ev)
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &queue{next: first, end: first + count}
	var mu sync.Mutex // guards done and errs
	var done []*Episode
	var errs error
	part := func(lo, hi int) {
		defer evaluator.Enter(ev)()
		t := &table{g: g, ev: ev, version: version, queue: q}
		err := safe.Call(func() error { return t.play(ctx, hi-lo) })
		t.close()
		mu.Lock()
		defer mu.Unlock()
		done = append(done, t.done...)
		if err != nil {
			errs = errors.Join(errs, err)
			cancel()
		}
	}
	n, parts := min(g.cfg.Parallel, count), 1
	if g.workers != nil {
		parts = max(1, min(g.workers.Size(), n))
	}
	var wg sync.WaitGroup // goroutines of our own: the store has work for the workers meanwhile
	for i := range parts {
		wg.Go(func() { part(i*n/parts, (i+1)*n/parts) })
	}
	wg.Wait()
	slices.SortFunc(done, func(a, b *Episode) int { return a.index - b.index })
	return done, errs
}

// over marks a game that has ended: handles are positive.
const over = int32(-1)

// start begins a game, and plays its random opening: as many moves as it drew, fewer if the game would end.
func (g *Games) start(index uint64) (*live, error) {
	l := &live{index: index}
	rnd := rng.New(g.cfg.Seed, index)
	opening := 0
	if rnd.Float64() < g.cfg.OpeningFraction && g.cfg.OpeningPlies > 0 {
		opening = 1 + rnd.IntN(g.cfg.OpeningPlies)
	}
	var h [1]int32
	if err := g.store.Reset([]int32{int32(index)}, []uint64{rnd.Uint64()}, h[:]); err != nil {
		return nil, err
	}
	l.state = h[0]
	for range opening {
		next, _, err := randomMove(g.store, l.state, rng.Derive(g.cfg.Seed, l.index, l.ply, 1))
		if err != nil {
			g.drop(l)
			return nil, err
		}
		if next == l.state {
			break
		}
		l.state = next
		l.ply++
	}
	return l, nil
}

func (g *Games) drop(l *live) {
	if l.state != over {
		_ = g.store.Release([]int32{l.state})
	}
	for _, p := range l.past {
		_ = g.store.Release([]int32{p.state})
	}
}

// capPlayouts draws which moves get a full search, and returns which do not. Those, and Gumbel's after
// TemperaturePlies, are searched without noise.
func (g *Games) capPlayouts(roots *search.Roots, games []*live) (fast []bool) {
	fast, roots.Fast = make([]bool, len(games)), make([]bool, len(games))
	if g.cfg.FastSimulations > 0 {
		roots.Simulations = make([]int32, len(games))
	}
	for i, l := range games {
		if g.cfg.FastSimulations > 0 {
			rnd := rng.New(g.cfg.Seed, l.index, l.ply, 2)
			roots.Simulations[i] = int32(g.cfg.Search.NumSimulations)
			if fast[i] = rnd.Float64() >= g.cfg.FullShare; fast[i] {
				roots.Simulations[i] = int32(g.cfg.FastSimulations)
			}
		}
		late := g.cfg.Search.Policy == tree.Gumbel && l.ply >= uint64(g.cfg.TemperaturePlies)
		roots.Fast[i] = fast[i] || late
	}
	return fast
}

// roots describes the positions of games for a search.
func (g *Games) roots(games []*live) (roots *search.Roots, fast []bool) {
	roots = &search.Roots{States: make([]int32, len(games)), Seeds: make([]uint64, len(games))}
	for i, l := range games {
		roots.States[i], roots.Seeds[i] = l.state, rng.Derive(g.cfg.Seed, l.index, l.ply)
	}
	return roots, g.capPlayouts(roots, games)
}

// apply plays an action in each game; one that ended is turned into an episode.
func (g *Games) apply(games []*live, actions []int32, finished func(*Episode)) error {
	n := len(games)
	states := make([]int32, n)
	for i, l := range games {
		states[i] = l.state
	}
	out := statestore.Steps{
		Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n),
		Truncated: make([]bool, n),
	}
	if err := g.store.Simulate(states, actions, &out); err != nil {
		return err
	}
	for i, l := range games {
		l.past[len(l.past)-1].reward = out.Reward[i]
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
	states, turns := make([]int32, n, n+1), make([]int32, n)
	rewards, searched, values := make([]float32, n), make([]float32, n), make([]float32, n)
	for i, p := range l.past {
		states[i], rewards[i], searched[i] = p.state, p.reward, p.value
	}
	if err := g.store.Read(states, statestore.View{ToPlay: turns}); err != nil {
		return nil, err
	}
	Returns(rewards, searched, turns, g.cfg.Search.Discount, g.cfg.Lambda, values)
	e := &Episode{index: int(l.index)}
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

// Returns writes the value to learn of each step of an episode, from the view of its mover: TD(lambda) with the
// searches' values (Sutton and Barto 2018, section 12.1). It is the reward, which belongs to the player who moved,
// and from there on lambda of the next step's value to learn and 1 - lambda of what the search thought of the next
// position, with the sign turned wherever another player moves. discount is per step. Lambda 1 is what really
// came of the game; less of it is less of the luck and the mistakes of later moves.
func Returns(rewards, values []float32, turns []int32, discount, lambda float32, out []float32) {
	next := float32(0)
	for t := len(rewards) - 1; t >= 0; t-- {
		if t+1 < len(rewards) {
			next += (1 - lambda) * (values[t+1] - next)
			if turns[t+1] != turns[t] {
				next = -next
			}
		}
		next = rewards[t] + discount*next
		out[t] = next
	}
}
