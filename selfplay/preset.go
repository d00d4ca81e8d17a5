package selfplay

import (
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/gorgonia"
)

// presets are what a run of an environment changes of DefaultConfig, one function an environment.
var presets = map[string]func(*Config){
	// With ONNX Runtime about 20 CPU seconds, and no lost line against any reply, raw and searching, on seed 1.
	// The setting was chosen by runs on six seeds.
	"TicTacToe-v0": func(c *Config) {
		c.Games, c.Minutes, c.Simulations = 5000, 0, 16
		c.Parallel, c.GamesPerIteration, c.EvalSimulations = 50, 50, 16
		c.Hidden, c.Window, c.Reuse = []int{128, 128}, 40_000, 100
		c.ValueMix, c.OpeningFraction, c.TemperaturePlies = 0.2, 0.6, 9
	},
	// Chosen by runs of four minutes and
	// 4,000 other labelled positions: random openings and little noise help, a fast part of the moves, other
	// learning rates and TD(lambda) don't.
	"ConnectFour-v0": func(c *Config) {
		c.Minutes = 10
		c.Network, c.Blocks, c.Channels, c.Average = gorgonia.ResNet, 3, 32, 0.997
		c.GamesPerIteration, c.Window, c.WindowStart, c.Reuse = 512, 400_000, 30_000, 3
		c.OpeningFraction, c.OpeningPlies, c.TemperaturePlies, c.LearningRate = 0.7, 12, 8, 2e-3
		c.EvalEvery, c.EvalOpponent, c.EvalSimulations, c.EvalSymmetry = 0, "uct:1000", 1000, "average"
	},
}

// Preset returns the settings that `azserve train` starts from: DefaultConfig with what suits the
// environment.
func Preset(env *envs.Env) Config {
	c := DefaultConfig(env)
	if change, ok := presets[env.Spec().ID]; ok {
		change(&c)
	}
	return c
}
