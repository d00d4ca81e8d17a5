package selfplay

import (
	"errors"
	"fmt"
	"math"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/search/tree"
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
	TemperaturePlies   int         `json:"temperature_plies"`   // moves drawn by visits, or with Gumbel noise; later ones are the best
	Lambda             float32     `json:"lambda"`              // of the returns to learn, see Returns; 1: what came of the game
	ValueMix           float32     `json:"value_mix"`           // share of the search's value in the value to learn
	MaxPlies           int         `json:"max_plies"`           // a game is cut off there; 0: never
	FastSimulations    int         `json:"fast_simulations"`    // of moves that aren't learnt from; 0: there are none
	FullShare          float64     `json:"full_share"`          // of moves that are, if there are others
	Cache              int         `json:"cache"`               // positions whose evaluation is remembered; 0: none
	Evaluator          string      `json:"evaluator"`           // what runs the network in self-play: "auto", "gorgonia" or "onnx"
	Network            string      `json:"network"`             // "mlp" or "resnet"
	Hidden             []int       `json:"hidden"`              // mlp: widths of its layers
	Blocks             int         `json:"blocks"`              // resnet: blocks of two convolutions
	Channels           int         `json:"channels"`            // resnet: planes of each
	Window             int         `json:"window"`              // positions that the replay buffer has room for
	WindowStart        int         `json:"window_start"`        // it grows from so many on, see Config.window; 0: it is whole at once
	Reuse              float64     `json:"reuse"`               // how often a position is learned from, on average
	BatchSize          int         `json:"batch_size"`          // positions of a learning step
	LearningRate       float64     `json:"learning_rate"`       // at the start; it falls to a twentieth along a cosine
	L2                 float64     `json:"l2"`
	Clip               float64     `json:"clip"`                // longest gradient; negative: any
	Average            float64     `json:"average"`             // decay a step of the mean of the weights that plays; 0: the newest play
	Symmetries         bool        `json:"symmetries"`          // learn from random symmetries of positions
	EvalEvery          int         `json:"eval_every"`          // iterations between two evaluation matches; 0: only at the end
	EvalGames          int         `json:"eval_games"`          // of an evaluation match
	EvalOpponent       string      `json:"eval_opponent"`       // see ParsePlayer; "": the solver, else uct:100
	EvalSimulations    int         `json:"eval_simulations"`    // of the model there
	EvalSymmetry       string      `json:"eval_symmetry"`       // of the model there: "", "random" or "average" (evaluator.Symmetry)
	CheckpointInterval float64     `json:"checkpoint_interval"` // seconds between checkpoints
}

// DefaultConfig returns settings that suit a small board game on a few cores.
func DefaultConfig(env *envs.Env) Config {
	return Config{
		Env: env.Spec().ID, Seed: 1, Minutes: 5, Policy: tree.Gumbel, Simulations: 32, Parallel: 128,
		Solve:             solvable(env.Spec()),
		GamesPerIteration: 128, OpeningFraction: 0.5, OpeningPlies: 4, TemperaturePlies: 8, Lambda: 1, ValueMix: 0.5,
		Evaluator: EvaluatorAuto, Network: gorgonia.MLP, Hidden: []int{256, 256}, Blocks: 3, Channels: 32,
		Window: 100_000, Reuse: 8, BatchSize: 256, LearningRate: 1e-3, L2: 1e-5, Clip: 5,
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
	case c.Evaluator != EvaluatorAuto && c.Evaluator != EvaluatorGorgonia && c.Evaluator != EvaluatorONNX:
		return bad("evaluator", c.Evaluator, "auto, gorgonia or onnx")
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

// shape returns the network's shape for an environment.
func (c *Config) shape(env *envs.Env) (gorgonia.Config, error) {
	if c.Network == gorgonia.ResNet {
		return gorgonia.ResNetConfig(env, c.Blocks, c.Channels)
	}
	shape := gorgonia.DefaultConfig(env)
	shape.Hidden = c.Hidden
	return shape, nil
}
