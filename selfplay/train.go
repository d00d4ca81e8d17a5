package selfplay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/replay"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// ErrConfig is returned for a training setting that can't be.
var ErrConfig = errors.New("selfplay: bad setting")

// Config is the settings of a training run. It is saved in every checkpoint. Start from
// [DefaultConfig].
type Config struct {
	Env      string        `json:"env"`
	Keywords envs.Keywords `json:"keywords,omitempty"`
	Seed     uint64        `json:"seed"`
	Threads  int           `json:"threads"` // 0: all CPUs

	// The run ends when one of these is reached; 0 means no limit, but not both.
	Games   int     `json:"games"`
	Minutes float64 `json:"minutes"` // of wall time, over all resumed parts

	Policy             tree.Policy `json:"policy"`
	Simulations        int         `json:"simulations"`         // a move
	Solve              bool        `json:"solve"`               // prove values in the search; for two players
	Parallel           int         `json:"parallel"`            // games side by side
	GamesPerIteration  int         `json:"games_per_iteration"` // between two updates of the weights that play
	OpeningFraction    float64     `json:"opening_fraction"`    // share of games with random openings
	OpeningPlies       int         `json:"opening_plies"`       // up to so many
	TemperaturePlies   int         `json:"temperature_plies"`   // AlphaZero, MuZero: moves drawn by visits
	ValueMix           float32     `json:"value_mix"`           // share of the search's value in the value to learn
	MaxPlies           int         `json:"max_plies"`           // a game is cut off there; 0: never
	FastSimulations    int         `json:"fast_simulations"`    // of moves that aren't learnt from; 0: there are none
	FullShare          float64     `json:"full_share"`          // of moves that are, if there are others
	Cache              int         `json:"cache"`               // positions whose evaluation is remembered; 0: none
	Network            string      `json:"network"`             // "mlp" or "resnet"
	Hidden             []int       `json:"hidden"`              // mlp: widths of its layers
	Blocks             int         `json:"blocks"`              // resnet: blocks of two convolutions
	Channels           int         `json:"channels"`            // resnet: planes of each
	Window             int         `json:"window"`              // positions that the replay buffer has room for
	WindowStart        int         `json:"window_start"`        // it grows from so many on, see Config.window; 0: it is whole at once
	Reuse              float64     `json:"reuse"`               // how often a position is learned from, on average
	BatchSize          int         `json:"batch_size"`          // positions of a learning step
	LearningRate       float64     `json:"learning_rate"`       // at the start; it falls to a tenth along a cosine
	L2                 float64     `json:"l2"`
	Clip               float64     `json:"clip"`                // longest gradient; negative: any
	Average            float64     `json:"average"`             // decay a step of the mean of the weights that plays; 0: the newest play
	Symmetries         bool        `json:"symmetries"`          // learn from random symmetries of positions
	EvalEvery          int         `json:"eval_every"`          // iterations between two evaluation matches; 0: only at the end
	EvalGames          int         `json:"eval_games"`          // of an evaluation match
	EvalOpponent       string      `json:"eval_opponent"`       // see ParsePlayer; "": the solver, else uct:100
	EvalSimulations    int         `json:"eval_simulations"`    // of the model there
	CheckpointInterval float64     `json:"checkpoint_interval"` // seconds between checkpoints
}

// DefaultConfig returns settings that suit a small board game on a few cores.
func DefaultConfig(env *envs.Env) Config {
	return Config{
		Env: env.Spec().ID, Seed: 1, Minutes: 5, Policy: tree.Gumbel, Simulations: 32, Parallel: 128,
		Solve:             solvable(env.Spec()),
		GamesPerIteration: 128, OpeningFraction: 0.5, OpeningPlies: 4, TemperaturePlies: 8, ValueMix: 0.5,
		Network: gorgonia.MLP, Hidden: []int{256, 256}, Blocks: 3, Channels: 32, Clip: 5, Window: 100_000, Reuse: 8, BatchSize: 256, LearningRate: 1e-3, L2: 1e-5,
		FullShare: 0.25, Cache: 1 << 17,
		Symmetries: true, EvalEvery: 10, EvalGames: 40, EvalSimulations: 32, CheckpointInterval: 30,
	}
}

// solvable says that search.Config.Solve fits an environment: two players, results in -1..1, no chance.
func solvable(spec *envs.Spec) bool {
	return spec.NumPlayers == 2 && spec.RewardLow >= -1 && spec.RewardHigh <= 1 && spec.NumOutcomes == 0
}

func (c *Config) validate() error {
	bad := func(name string, got any, want string) error {
		return fmt.Errorf("%w: %s=%v; want %s", ErrConfig, name, got, want)
	}
	switch {
	case c.Games < 0 || c.Minutes < 0 || (c.Games == 0 && c.Minutes == 0):
		return bad("games, minutes", fmt.Sprint(c.Games, ", ", c.Minutes), "one of them above 0, none below")
	case c.Policy == tree.UCT:
		return bad("policy", c.Policy, "one that uses a network")
	case c.GamesPerIteration < 1:
		return bad("games_per_iteration", c.GamesPerIteration, "at least 1")
	case c.Cache < 0:
		return bad("cache", c.Cache, "0 or more")
	case c.Network != gorgonia.MLP && c.Network != gorgonia.ResNet:
		return bad("network", c.Network, "mlp or resnet")
	case c.Window < 1 || c.WindowStart < 0:
		return bad("window, window_start", fmt.Sprint(c.Window, ", ", c.WindowStart), "at least 1, 0 or more")
	case !(c.Reuse > 0):
		return bad("reuse", c.Reuse, "above 0")
	case c.EvalEvery < 0 || c.EvalGames < 1 || c.EvalSimulations < 1:
		return bad("eval_every, eval_games, eval_simulations",
			fmt.Sprint(c.EvalEvery, ", ", c.EvalGames, ", ", c.EvalSimulations), "0 or more, 1 or more, 1 or more")
	case !(c.CheckpointInterval > 0):
		return bad("checkpoint_interval", c.CheckpointInterval, "above 0 seconds")
	}
	return nil
}

// Progress is what a run says of itself while it goes on. Counters may be read at any time.
type Progress struct {
	Iteration int
	Games     int // finished, over all resumed parts
	Positions int
	Steps     int // of learning
	Loss      gorgonia.Loss
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
	cache   *evaluator.Cache // what the actor said since it has its weights; nil for none
	actor   *gorgonia.Net    // what plays: the learner, or the mean of its weights, as it was after the last iteration
	trainer *gorgonia.Trainer
	ring    *replay.Ring
	state   state
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
	return r, r.actor.SetParams(r.learner.Params())
}

// newRun builds everything but the contents of a checkpoint.
func newRun(dir string, env *envs.Env, cfg Config, report func(Progress)) (r *Run, err error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if report == nil {
		report = func(Progress) {}
	}
	r = &Run{cfg: cfg, dir: dir, env: env, report: report}
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
	if r.actor, err = gorgonia.NewNet(shape, r.cfg.Seed); err != nil {
		return err
	}
	r.trainer, err = gorgonia.NewTrainer(r.learner, gorgonia.TrainConfig{
		BatchSize: r.cfg.BatchSize, LearningRate: r.cfg.LearningRate, L2: r.cfg.L2, Clip: r.cfg.Clip,
		Average: r.cfg.Average,
	})
	return err
}

// shape returns the network's shape for an environment.
func (c *Config) shape(env *envs.Env) (gorgonia.Config, error) {
	if c.Network == gorgonia.ResNet {
		return gorgonia.ResNetConfig(env, c.Blocks, c.Channels)
	}
	shape := gorgonia.DefaultConfig(env)
	shape.Hidden = c.Hidden
	return shape, nil
}

func (r *Run) gamesConfig() GamesConfig {
	c := &r.cfg
	s := search.Default(c.Policy, r.env.Spec())
	s.NumSimulations, s.Solve, s.Cache = c.Simulations, c.Solve, r.cache
	return GamesConfig{
		Search: s, Parallel: c.Parallel, OpeningFraction: c.OpeningFraction, OpeningPlies: c.OpeningPlies,
		TemperaturePlies: c.TemperaturePlies, ValueMix: c.ValueMix, MaxPlies: c.MaxPlies, Seed: c.Seed,
		FastSimulations: c.FastSimulations, FullShare: c.FullShare,
	}
}

// Config returns the settings in force.
func (r *Run) Config() Config { return r.cfg }

// Dir returns the folder.
func (r *Run) Dir() string { return r.dir }

// Counters returns what the games did in this part of the run.
func (r *Run) Counters() *Counters { return &r.games.Counters }

// Model returns the network that plays.
func (r *Run) Model() *gorgonia.Net { return r.actor }

// Close ends the run's threads and frees its memory.
func (r *Run) Close() {
	if r.trainer != nil {
		r.trainer.Close()
	}
	for _, n := range []*gorgonia.Net{r.learner, r.actor} {
		if n != nil {
			n.Close()
		}
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
	ev, err := r.actor.Evaluator(r.env)
	if err != nil {
		return err
	}
	learned := make(chan error, 1)
	go func() { learned <- r.learn(ctx) }()
	episodes, err := r.games.Play(ctx, ev, r.state.Games, count)
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
	if err := r.actor.SetParams(r.trainer.Average()); err != nil {
		return err
	}
	if r.cache != nil {
		r.cache.Forget()
	}
	r.report(r.progress())
	return nil
}

// learn does the steps that are owed.
func (r *Run) learn(ctx context.Context) error {
	if r.ring.Len() == 0 {
		return nil
	}
	r.trainer.SetLearningRate(r.cfg.LearningRate * (0.1 + 0.9*0.5*(1+math.Cos(math.Pi*r.fraction()))))
	rnd := rng.New(r.cfg.Seed, uint64(r.state.Iteration), 1<<40)
	var total gorgonia.Loss
	steps := int(r.state.Debt)
	for range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.fillSamples(&rnd)
		l, err := r.trainer.Step()
		if err != nil {
			return err
		}
		total.Policy += l.Policy / float32(steps)
		total.Value += l.Value / float32(steps)
	}
	r.state.Debt -= float64(steps)
	if steps > 0 {
		r.last.Loss = total
	}
	return nil
}

// fillSamples draws a batch of positions, each under a random symmetry.
func (r *Run) fillSamples(rnd *rng.Stream) {
	t, a := r.trainer, r.env.Spec().NumActions
	inputs := len(t.X) / r.cfg.BatchSize
	syms := r.env.Symmetries()
	if !r.cfg.Symmetries {
		syms = nil
	}
	window := min(r.ring.Len(), r.cfg.window(r.ring.Total()))
	for i := range r.cfg.BatchSize {
		p := r.ring.At(rnd.IntN(window))
		var sym *envs.Symmetry
		if k := rnd.IntN(len(syms) + 1); k > 0 {
			sym = &syms[k-1]
		}
		writeSample(&p, sym, t.X[i*inputs:(i+1)*inputs], t.Policy[i*a:(i+1)*a], t.Legal[i*a:(i+1)*a])
		t.Value[i], t.Weight[i] = p.Value, 1
	}
}

// writeSample writes a position as the network learns it, under a symmetry (nil for none).
func writeSample(p *replay.Position, sym *envs.Symmetry, x, policy, legal []float32) {
	if sym == nil {
		gorgonia.Features(p.Obs, p.Row, p.Row+1, x)
		copy(policy, p.Policy)
		for a, ok := range p.Legal {
			legal[a] = indicator(ok)
		}
		return
	}
	plain := make([]float32, len(x))
	gorgonia.Features(p.Obs, p.Row, p.Row+1, plain)
	at := 0
	for k := range p.Obs {
		n := p.Obs[k].Size()
		envs.Apply(sym.Obs[k], plain[at:at+n], x[at:at+n])
		at += n
	}
	for a, from := range sym.Actions {
		policy[a], legal[a] = p.Policy[from], indicator(p.Legal[from])
	}
}

// window returns how many of the newest positions are learned from when there have been total: all up to
// WindowStart, then a power of their number, as KataGo has it (Wu 2019, appendix C), so that the share of old
// positions falls; at most Window.
func (c *Config) window(total int) int {
	const exponent, expand = 0.65, 0.4
	if c.WindowStart == 0 || total <= c.WindowStart {
		return c.Window
	}
	s := float64(c.WindowStart)
	n := s + expand*(math.Pow(float64(total), exponent)-math.Pow(s, exponent))/(exponent*math.Pow(s, exponent-1))
	return min(c.Window, int(n))
}

func indicator(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// progress describes the run as it stands.
func (r *Run) progress() Progress {
	p := &r.last
	p.Iteration, p.Games, p.Positions = r.state.Iteration, r.state.Games, r.state.Positions
	p.Steps, p.Elapsed, p.Fraction = r.trainer.Steps(), r.elapsed(), r.fraction()
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
	opponent, err := ParsePlayer(name, PlayerOptions{
		Env: r.env, Workers: r.workers, Simulations: r.cfg.EvalSimulations,
	})
	if err != nil {
		return nil, name, err
	}
	ev, err := r.actor.Evaluator(r.env)
	if err != nil {
		return nil, name, err
	}
	model := NewGumbel("model", r.env, ev, r.cfg.EvalSimulations, r.workers)
	score, err := Arena(ctx, r.store, model, opponent, MatchConfig{
		Games: games, OpeningPlies: r.cfg.OpeningPlies, Seed: rng.Derive(r.cfg.Seed, uint64(r.state.Iteration)),
	})
	return score, name, err
}
