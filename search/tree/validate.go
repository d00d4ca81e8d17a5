package tree

import (
	"fmt"
	"math"
	"slices"
)

// Validate reports the first setting that can't be.
func (c *Config) Validate() error {
	bad := func(name string, got any, want string) error {
		return fmt.Errorf("tree: %s=%v; want %s", name, got, want)
	}
	lowest := 0
	if c.Policy == Gumbel {
		lowest = 1
	}
	switch {
	case !slices.Contains(Policies, c.Policy):
		return bad("policy", c.Policy, fmt.Sprint("one of ", Policies))
	case c.NumSimulations < lowest || c.NumSimulations > MaxSimulations:
		return bad("num_simulations", c.NumSimulations, fmt.Sprintf("%d to %d", lowest, MaxSimulations))
	case c.MaxDepth < 0:
		return bad("max_depth", c.MaxDepth, "0 (no limit) or more")
	case c.LeavesPerStep < 1 || c.LeavesPerStep > 1<<16:
		return bad("leaves_per_step", c.LeavesPerStep, "1 to 65536")
	case !(c.PbCInit >= 0) || math.IsInf(float64(c.PbCInit), 0):
		return bad("pb_c_init", c.PbCInit, "0 or more")
	case !(c.PbCBase > 0) || math.IsInf(float64(c.PbCBase), 0):
		return bad("pb_c_base", c.PbCBase, "more than 0")
	case !(c.Epsilon > 0):
		return bad("epsilon", c.Epsilon, "more than 0")
	case !(c.MinValue < c.MaxValue):
		return bad("min_value", c.MinValue, fmt.Sprintf("less than max_value=%v", c.MaxValue))
	case !(c.ValueScale >= 0):
		return bad("value_scale", c.ValueScale, "0 or more")
	case !(c.MaxvisitInit >= 0):
		return bad("maxvisit_init", c.MaxvisitInit, "0 or more")
	case c.Outcomes < 0 || (c.Policy == Stochastic && c.Outcomes == 0):
		return bad("outcomes", c.Outcomes, "1 or more")
	case c.Outcomes > 0 && c.Solve:
		return bad("solve", c.Solve, "false where there is chance")
	case c.Policy == Gumbel && c.MaxNumConsidered < 1:
		return bad("max_num_considered_actions", c.MaxNumConsidered, "1 or more")
	}
	return c.validateChoice(bad)
}

// validateChoice is validate for how Q enters the choices.
func (c *Config) validateChoice(bad func(name string, got any, want string) error) error {
	transforms := []QTransform{ByParentAndSiblings, ByMinMax, CompletedByMixValue, ByRange, ByTree}
	kinds := []FPU{FPUParent, FPUReduced, FPUAbsolute}
	switch {
	case !slices.Contains(transforms, c.QTransform):
		return bad("qtransform", c.QTransform, fmt.Sprint("one of ", transforms))
	case !slices.Contains(kinds, c.FPU):
		return bad("fpu", c.FPU, fmt.Sprint("one of ", kinds))
	case c.RootFPU != "" && !slices.Contains(kinds, c.RootFPU):
		return bad("root_fpu", c.RootFPU, fmt.Sprint("one of ", kinds, " or none"))
	case !(c.FPUReduction >= 0):
		return bad("fpu_reduction", c.FPUReduction, "0 or more")
	case !(c.RootFPUReduction >= 0):
		return bad("root_fpu_reduction", c.RootFPUReduction, "0 or more")
	case c.FPUValue-c.FPUValue != 0:
		return bad("fpu_value", c.FPUValue, "a finite number")
	case c.RootFPUValue-c.RootFPUValue != 0:
		return bad("root_fpu_value", c.RootFPUValue, "a finite number")
	case !(c.ForcedPlayouts >= 0) || (c.ForcedPlayouts > 0 && c.Policy != AlphaZero):
		return bad("forced_playouts", c.ForcedPlayouts, "0, or more with policy alphazero")
	case !(c.LCB >= 0) || (c.LCB > 0 && c.Policy == Gumbel):
		return bad("lcb", c.LCB, "0, or more with another policy than gumbel")
	case !(c.LCBMinVisits >= 0 && c.LCBMinVisits <= 1):
		return bad("lcb_min_visits", c.LCBMinVisits, "0 to 1")
	case !c.CountKept && c.MaxNodes == 0:
		return bad("max_nodes", c.MaxNodes, "more than 0 with count_kept=false")
	case c.MaxNodes < 0:
		return bad("max_nodes", c.MaxNodes, "0 (no bound) or more")
	}
	return nil
}
