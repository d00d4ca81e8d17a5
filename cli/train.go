package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/selfplay"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// trainFlags are the settings of a run. Those that aren't given keep the environment's preset.
type trainFlags struct {
	envFlags
	out, resume, policy string
	cfg                 selfplay.Config
	valueMix, lambda    float64
}

func newTrain() *cobra.Command {
	f := &trainFlags{}
	cmd := &cobra.Command{
		Use: "train ENV", Short: "Train a model by self-play",
		Long: `Train a model by self-play. Settings that aren't given come from the preset of the environment.

Ctrl-C saves and says how to go on; so does a kill, from the last checkpoint.`,
		Example: "  azserve train TicTacToe-v0\n" +
			"  azserve train ConnectFour-v0 --minutes 5 --out runs/c4\n" +
			"  azserve train --resume runs/c4 --minutes 10",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	fl, c := cmd.Flags(), &f.cfg
	fl.StringVar(&f.out, "out", "", "folder of the run (default: the next free runs/ENV-N)")
	fl.StringVar(&f.resume, "resume", "", "folder of a run to go on with; settings come from there but for flags given")
	fl.IntVar(&c.Games, "games", 0, "games after which the run ends; 0: no limit")
	fl.Float64Var(&c.Minutes, "minutes", 0, "minutes of wall time after which the run ends; 0: no limit")
	fl.Uint64Var(&c.Seed, "seed", 1, "seed of all random numbers")
	fl.StringVar(&f.policy, "policy", "gumbel", "search of self-play: gumbel, alphazero or muzero")
	fl.IntVar(&c.Simulations, "simulations", 0, "simulations a move")
	fl.BoolVar(&c.Solve, "solve", true, "prove values in the search (two players)")
	fl.IntVar(&c.Parallel, "parallel", 0, "games side by side")
	fl.IntVar(&c.GamesPerIteration, "games-per-iteration", 0, "games between two updates of the weights that play")
	fl.Float64Var(&c.OpeningFraction, "opening-fraction", 0, "share of games that begin with random moves, 0 to 1")
	fl.IntVar(&c.OpeningPlies, "opening-plies", 0, "random moves at the start: up to this many")
	fl.IntVar(&c.TemperaturePlies, "temperature-plies", 0,
		"moves drawn by visits, or with Gumbel noise; later ones are the best")
	fl.Float64Var(&f.lambda, "lambda", 0,
		"of the returns to learn: 1 is what came of the game, less trusts the searches on the way more")
	fl.Float64Var(&f.valueMix, "value-mix", 0, "share of the search's value in the value to learn, 0 to 1")
	fl.IntVar(&c.MaxPlies, "max-plies", 0, "moves after which a game is cut off; 0: never")
	fl.IntVar(&c.FastSimulations, "fast-simulations", 0,
		"simulations of moves that only go on with the game and aren't learnt from; 0: there are none")
	fl.Float64Var(&c.FullShare, "full-share", 0, "share of the moves that are searched whole, if there are others")
	fl.IntVar(&c.Cache, "cache", 0, "positions whose evaluation is remembered, until the weights change; 0: none")
	fl.StringVar(&c.Evaluator, "evaluator", "auto",
		"what runs the network in self-play: gorgonia, onnx, or auto: onnx if ONNX Runtime is there")
	fl.StringVar(&c.Network, "network", "mlp", "kind of network: mlp, or resnet where the observation is a board")
	fl.IntSliceVar(&c.Hidden, "hidden", nil, "widths of an mlp's layers")
	fl.IntVar(&c.Blocks, "blocks", 0, "blocks of a resnet, of two convolutions each")
	fl.IntVar(&c.Channels, "channels", 0, "planes of a resnet's convolutions")
	fl.IntVar(&c.Window, "window", 0, "positions that the replay buffer has room for")
	fl.IntVar(&c.WindowStart, "window-start", 0,
		"positions from which on the part that is learned from grows as a power of their number; 0: it is all")
	fl.Float64Var(&c.Reuse, "reuse", 0, "how often a position is learned from, on average")
	fl.IntVar(&c.BatchSize, "batch-size", 0, "positions of a learning step")
	fl.Float64Var(&c.LearningRate, "learning-rate", 0, "at the start; it falls to a twentieth along a cosine")
	fl.Float64Var(&c.L2, "l2", 0, "L2 regularisation of the weights")
	fl.Float64Var(&c.Clip, "clip", 0, "longest gradient; a longer one is scaled down; negative: any")
	fl.Float64Var(&c.Average, "average", 0,
		"decay a learning step of the mean of the weights that plays, 0 to 1; 0: the newest weights play")
	fl.BoolVar(&c.Symmetries, "symmetries", true, "learn from random symmetries of positions")
	fl.IntVar(&c.EvalEvery, "eval-every", 0, "iterations between two evaluation matches; 0: only at the end")
	fl.IntVar(&c.EvalGames, "eval-games", 0, "games of an evaluation match")
	fl.StringVar(&c.EvalOpponent, "eval-opponent", "",
		"random, perfect, uct:N or a model (default: perfect if there is a solver, else uct:100)")
	fl.IntVar(&c.EvalSimulations, "eval-simulations", 0, "simulations a move of the model there")
	fl.StringVar(&c.EvalSymmetry, "eval-symmetry", "",
		"how the model uses the board's symmetries there: random or average; empty: not at all")
	fl.Float64Var(&c.CheckpointInterval, "checkpoint-interval", 0, "seconds between two checkpoints")
	return cmd
}

// override copies the settings that were given as flags onto a configuration.
func (f *trainFlags) override(flags *pflag.FlagSet, to *selfplay.Config) error {
	f.cfg.Policy, f.cfg.ValueMix, f.cfg.Threads = tree.Policy(f.policy), float32(f.valueMix), f.threads
	f.cfg.Lambda = float32(f.lambda)
	given, err := json.Marshal(f.cfg)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(given, &fields); err != nil {
		return err
	}
	changed := map[string]json.RawMessage{}
	flags.Visit(func(fl *pflag.Flag) {
		name := configKey(fl.Name)
		if raw, ok := fields[name]; ok {
			changed[name] = raw
		}
	})
	// A limit that was given replaces the other one, which was the preset's.
	_, games := changed["games"]
	_, minutes := changed["minutes"]
	if games != minutes {
		to.Games, to.Minutes = 0, 0
	}
	patch, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	return json.Unmarshal(patch, to)
}

// configKey is a flag's name in the saved configuration.
func configKey(flag string) string {
	b := []byte(flag)
	for i := range b {
		if b[i] == '-' {
			b[i] = '_'
		}
	}
	return string(b)
}

func (f *trainFlags) run(cmd *cobra.Command, args []string) error {
	show := newDisplay(cmd.ErrOrStderr())
	run, err := f.open(cmd, args, show.report)
	if err != nil {
		return err
	}
	defer run.Close()
	fmt.Fprintf(cmd.ErrOrStderr(), "training %s in %s, evaluated by %s\n", run.Config().Env, run.Dir(), run.Evaluator())
	stop := show.start(run)
	err = run.Train(cmd.Context())
	stop()
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(cmd.ErrOrStderr(), "stopped and saved; go on with: azserve train --resume %s\n", run.Dir())
	}
	if err != nil {
		return err
	}
	return reached(cmd.Context(), cmd.OutOrStdout(), run, show.last)
}

// open makes the run, or resumes it.
func (f *trainFlags) open(cmd *cobra.Command, args []string, report func(selfplay.Progress)) (*selfplay.Run, error) {
	if f.resume != "" {
		if len(args) > 0 || f.out != "" || len(f.args) > 0 {
			return nil, fmt.Errorf("%w: --resume knows the environment and the folder; don't give them", errUsage)
		}
		var failed error
		run, err := selfplay.Resume(f.resume, func(c *selfplay.Config) { failed = f.override(cmd.Flags(), c) }, report)
		return run, errors.Join(failed, err)
	}
	if len(args) != 1 {
		return nil, fmt.Errorf("%w: want: azserve train ENV, or azserve train --resume FOLDER", errUsage)
	}
	env, err := f.make(args[0])
	if err != nil {
		return nil, err
	}
	cfg := selfplay.Preset(env)
	if cfg.Keywords, err = keywords("env-arg", f.args); err != nil {
		return nil, err
	}
	if err := f.override(cmd.Flags(), &cfg); err != nil {
		return nil, err
	}
	dir := f.out
	if dir == "" {
		if dir, err = freeDir(env); err != nil {
			return nil, err
		}
	}
	return selfplay.NewRun(dir, env, cfg, report)
}

// freeDir returns the first of runs/ENV-1, runs/ENV-2, ... that doesn't exist.
func freeDir(env *envs.Env) (string, error) {
	for n := 1; ; n++ {
		dir := filepath.Join("runs", fmt.Sprintf("%s-%d", env.Spec().ID, n))
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return dir, nil
		} else if err != nil {
			return "", err
		}
	}
}

// reached prints what the run came to.
func reached(ctx context.Context, w io.Writer, run *selfplay.Run, p selfplay.Progress) error {
	fmt.Fprintf(w, "%d games, %d positions, %d learning steps, %.1f CPU seconds, evaluator's batches %.0f %% full\n",
		p.Games, p.Positions, p.Steps, cpuSeconds(), 100*run.Fill())
	score, opponent, err := run.Evaluate(ctx, max(100, run.Config().EvalGames))
	if err != nil {
		return err
	}
	if score != nil {
		fmt.Fprintf(w, "model with %d simulations against %s, %d games: %s\n", run.Config().EvalSimulations,
			opponent, score.Games(), score)
	}
	mistakes, err := run.Mistakes(ctx)
	if err != nil {
		return err
	}
	for _, m := range mistakes {
		fmt.Fprintf(w, "model with %d simulations: mistakes in %s\n", selfplay.MistakeSimulations, m)
	}
	lines, err := run.Lines(ctx)
	if err != nil {
		return err
	}
	for _, l := range lines {
		fmt.Fprintf(w, "%s against every reply, both sides: %d lines won, %d drawn, %d lost\n", l.Player,
			l.Won, l.Drawn, l.Lost)
	}
	fmt.Fprintf(w, "model: %s\n", filepath.Join(run.Dir(), selfplay.ModelDir))
	return nil
}

// cpuSeconds returns the CPU time this process used so far.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
