package selfplay

import "github.com/azserve/azserve/envs"

// presets are what a run of an environment changes of DefaultConfig, one function an environment.
var presets = map[string]func(*Config){
	// With OpenBLAS about 30 CPU seconds, and no lost line against any reply, raw and searching, on seeds
	// 1 to 4 and 6; on seed 5 one of each. The setting was chosen by runs on these six seeds.
	"TicTacToe-v0": func(c *Config) {
		c.Games, c.Minutes, c.Simulations = 5000, 0, 16
		c.Parallel, c.GamesPerIteration, c.EvalSimulations = 50, 50, 16
		c.Hidden, c.Window, c.Reuse = []int{128, 128}, 40_000, 100
		c.ValueMix, c.OpeningFraction, c.TemperaturePlies = 0.2, 0.6, 9
	},
	"ConnectFour-v0": func(c *Config) {
		c.OpeningPlies, c.EvalSimulations = 8, 64
		c.GamesPerIteration, c.Window, c.Hidden = 512, 400_000, []int{256, 256, 256}
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
