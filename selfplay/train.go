package selfplay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/replay"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/statestore"
)

// Progress is what a run says of itself while it goes on. Counters may be read at any time.
type Progress struct {
	Iteration int
	Games     int // finished, over all resumed parts
	Positions int
	Steps     int           // of learning
	Loss      gorgonia.Loss // means over the last iteration's steps
	Rate      float64       // of learning
	Elapsed   time.Duration // over all resumed parts
	Score     *Score        // of the last evaluation match; nil before the first
	Opponent  string
	Fraction  float64 // of the run that is done, 0 to 1
}

// Run is a training run in its folder.
type Run struct {
	cfg     Config
	dir     string
	env     *envs.Env
	workers *pool.Workers
	store   *statestore.Store
	games   *Games
	learner *gorgonia.Net    // what training changes
	cache   *evaluator.Cache // what the actor said; nil for none
	actor   *actor           // what plays: the learner, or the mean of its weights, as it was after the last iteration
	trainer *gorgonia.Trainer
	ring    *replay.Ring
	state   state
	curve   curve     // what was reached after each iteration, as a file
	started time.Time // of this part
	saved   time.Time // last checkpoint
	report  func(Progress)
	last    Progress
}

// state is the numbers of a run that checkpoints hold.
type state struct {
	Iteration int     `json:"iteration"`
	Games     int     `json:"games"`
	Positions int     `json:"positions"`
	Debt      float64 `json:"debt"` // learning steps still owed to the games played
	Seconds   float64 `json:"seconds"`
}

// NewRun makes a run in a folder of its own, which must not hold one already. report is called from
// the goroutine of Train; it may be nil.
func NewRun(dir string, env *envs.Env, cfg Config, report func(Progress)) (*Run, error) {
	if has, err := hasCheckpoint(dir); err != nil || has {
		if err == nil {
			err = fmt.Errorf("%w: %s holds a run already: resume it, or choose another folder", ErrConfig, dir)
		}
		return nil, err
	}
	r, err := newRun(dir, env, cfg, report)
	if err != nil {
		return nil, err
	}
	if err := r.curve.cut(0); err != nil { // of a run that ended before its first checkpoint
		r.Close()
		return nil, err
	}
	return r, r.actor.set(r.learner.Params(), 0)
}

// newRun builds everything but the contents of a checkpoint.
func newRun(dir string, env *envs.Env, cfg Config, report func(Progress)) (r *Run, err error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if report == nil {
		report = func(Progress) {}
	}
	r = &Run{cfg: cfg, dir: dir, env: env, report: report, curve: curve{dir: dir}}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	threads, err := pool.Threads(cfg.Threads, 0)
	if err != nil {
		return r, err
	}
	if r.workers, err = pool.NewWorkers(threads); err != nil {
		return r, err
	}
	if r.store, err = statestore.New(env, statestore.Config{}, r.workers); err != nil {
		return r, err
	}
	if cfg.Cache > 0 {
		if r.cache, err = evaluator.NewCache(cfg.Cache, env.Spec().NumActions); err != nil {
			return r, err
		}
	}
	if r.games, err = NewGames(r.store, r.workers, r.gamesConfig()); err != nil {
		return r, err
	}
	if r.ring, err = replay.NewRing(env.Spec(), cfg.Window); err != nil {
		return r, err
	}
	return r, r.newNets()
}

func (r *Run) newNets() (err error) {
	shape, err := r.cfg.shape(r.env)
	if err != nil {
		return err
	}
	if r.learner, err = gorgonia.NewNet(shape, r.cfg.Seed); err != nil {
		return err
	}
	if r.actor, err = newActor(r.env, shape, r.cfg.Seed, r.cfg.Evaluator); err != nil {
		return err
	}
	r.trainer, err = gorgonia.NewTrainer(r.learner, gorgonia.TrainConfig{
		BatchSize: r.cfg.BatchSize, LearningRate: r.cfg.LearningRate, L2: r.cfg.L2, Clip: r.cfg.Clip,
		Average: r.cfg.Average, Threads: r.workers.Size(),
	})
	return err
}

func (r *Run) gamesConfig() GamesConfig {
	c := &r.cfg
	s := search.Default(c.Policy, r.env.Spec())
	s.NumSimulations, s.Solve, s.Cache = c.Simulations, c.Solve, r.cache
	return GamesConfig{
		Search: s, Parallel: c.Parallel, OpeningFraction: c.OpeningFraction, OpeningPlies: c.OpeningPlies,
		TemperaturePlies: c.TemperaturePlies, Lambda: c.Lambda, ValueMix: c.ValueMix, MaxPlies: c.MaxPlies, Seed: c.Seed,
		FastSimulations: c.FastSimulations, FullShare: c.FullShare,
	}
}

// Config returns the settings in force.
func (r *Run) Config() Config { return r.cfg }

// Dir returns the folder.
func (r *Run) Dir() string { return r.dir }

// Counters returns what the games did in this part of the run.
func (r *Run) Counters() *Counters { return &r.games.Counters }

// Fill returns how full the evaluator's batches were in self-play, 0 to 1: a thread's games have a state each in a full
// one.
func (r *Run) Fill() float64 {
	c := r.Counters()
	room := float64(c.Batches.Load()) * float64(r.cfg.Parallel) / float64(r.workers.Size())
	return float64(c.Evaluations.Load()) / max(1, room)
}

// Model returns the network that plays.
func (r *Run) Model() *gorgonia.Net { return r.actor.net }

// Evaluator says what runs the network in self-play: EvaluatorGorgonia or EvaluatorONNX.
func (r *Run) Evaluator() string { return r.actor.kind() }

// Close ends the run's threads and frees its memory.
func (r *Run) Close() {
	if r.trainer != nil {
		r.trainer.Close()
	}
	if r.learner != nil {
		r.learner.Close()
	}
	if r.actor != nil {
		r.actor.close()
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.workers != nil {
		r.workers.Close()
	}
}

// Train goes on until the run is done or ctx ends, and saves a checkpoint at the end either way; the
// games of an unfinished iteration are then forgotten. It returns ctx's error if that ended it.
func (r *Run) Train(ctx context.Context) error {
	r.started = time.Now()
	r.saved = r.started
	for r.fraction() < 1 {
		if err := r.iterate(ctx); err != nil {
			if ctx.Err() == nil {
				return err
			}
			return errors.Join(ctx.Err(), r.Save())
		}
		if c := r.cfg.EvalEvery; c > 0 && r.state.Iteration%c == 0 && r.fraction() < 1 {
			if err := r.evaluate(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if time.Since(r.saved).Seconds() >= r.cfg.CheckpointInterval {
			if err := r.Save(); err != nil {
				return err
			}
		}
	}
	return errors.Join(ctx.Err(), r.Save())
}

// elapsed returns the wall time of all parts of the run.
func (r *Run) elapsed() time.Duration {
	return time.Duration(r.state.Seconds*1e9)*time.Nanosecond + time.Since(r.started)
}

// fraction returns how much of the run is done, 0 to 1.
func (r *Run) fraction() float64 {
	f := 0.0
	if r.cfg.Games > 0 {
		f = float64(r.state.Games) / float64(r.cfg.Games)
	}
	if r.cfg.Minutes > 0 {
		f = max(f, r.elapsed().Minutes()/r.cfg.Minutes)
	}
	return min(f, 1)
}

// iterate plays games with the actor while the learner learns from the earlier ones.
func (r *Run) iterate(ctx context.Context) error {
	count := r.cfg.GamesPerIteration
	if r.cfg.Games > 0 {
		count = min(count, r.cfg.Games-r.state.Games)
	}
	learned := make(chan error, 1)
	go func() { learned <- r.learn(ctx) }()
	episodes, err := r.games.Play(ctx, r.actor, r.state.Games, count)
	if err = errors.Join(err, <-learned); err != nil {
		return err
	}
	for _, e := range episodes {
		e.AddTo(r.ring)
		r.state.Positions += e.Len()
		r.state.Debt += r.cfg.Reuse * float64(e.Len()) / float64(r.cfg.BatchSize)
	}
	r.state.Games += count
	r.state.Iteration++
	if err := r.actor.set(r.trainer.Average(), r.state.Iteration); err != nil {
		return err
	}
	p := r.progress()
	r.report(p)
	return r.curve.add(&p)
}

// progress describes the run as it stands.
func (r *Run) progress() Progress {
	p := &r.last
	p.Iteration, p.Games, p.Positions = r.state.Iteration, r.state.Games, r.state.Positions
	p.Steps, p.Elapsed, p.Fraction = r.trainer.Steps(), r.elapsed(), r.fraction()
	p.Rate = r.learningRate()
	return *p
}

// evaluate plays a match of the model against the reference.
func (r *Run) evaluate(ctx context.Context) error {
	score, opponent, err := r.Evaluate(ctx, r.cfg.EvalGames)
	if err != nil {
		return err
	}
	r.last.Score, r.last.Opponent = score, opponent
	r.report(r.progress())
	return nil
}

// Evaluate plays a match of the model, searching, against the reference player.
func (r *Run) Evaluate(ctx context.Context, games int) (*Score, string, error) {
	name := r.cfg.EvalOpponent
	switch {
	case r.env.Spec().NumPlayers != 2:
		return nil, "", nil
	case name == "" && r.env.Capabilities().Solves:
		name = "perfect"
	case name == "":
		name = "uct:100"
	}
	opponent, free, err := ParsePlayer(name, PlayerOptions{
		Env: r.env, Workers: r.workers, Simulations: r.cfg.EvalSimulations,
	})
	if err != nil {
		return nil, name, err
	}
	defer free()
	model, err := r.player("model", r.cfg.EvalSimulations)
	if err != nil {
		return nil, name, err
	}
	score, err := Arena(ctx, r.store, model, opponent, MatchConfig{
		Games: games, OpeningPlies: min(r.cfg.OpeningPlies, evalOpeningPlies),
		Seed: rng.Derive(r.cfg.Seed, uint64(r.state.Iteration)),
	})
	return score, name, err
}

// evalOpeningPlies is how many random moves a match of a run begins with at most, as azserve arena has it: after more
// of them most games are decided already, whoever plays.
const evalOpeningPlies = 4

// player is the model as a player that searches.
func (r *Run) player(name string, simulations int) (Player, error) {
	var ev evaluator.Evaluator = r.actor
	if r.cfg.EvalSymmetry != "" {
		var err error
		if ev, err = evaluator.NewSymmetry(ev, r.env, evaluator.SymmetryMode(r.cfg.EvalSymmetry)); err != nil {
			return nil, fmt.Errorf("%w: eval_symmetry: %w", ErrConfig, err)
		}
	}
	return NewGumbel(name, r.env, ev, simulations, r.workers), nil
}

// MistakeSimulations is how many simulations the model has in [Run.Mistakes].
const MistakeSimulations = 256

// Mistakes counts the model's mistakes in the labelled positions of the environment; nil if there are none.
func (r *Run) Mistakes(ctx context.Context) ([]Mistakes, error) {
	positions, err := Positions(r.env)
	if err != nil || len(positions) == 0 {
		return nil, err
	}
	model, err := r.player("model", MistakeSimulations)
	if err != nil {
		return nil, err
	}
	return CountMistakes(ctx, r.store, model, positions, r.cfg.Seed)
}
