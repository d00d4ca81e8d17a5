package tree

import (
	"fmt"
	"math"
	"slices"
)

// Policy is the kind of search.
type Policy string

// The policies.
const (
	// AlphaZero is PUCT as game engines do it: values in the game's own range, unvisited actions
	// start from their parent's value, terminal nodes are leaves.
	AlphaZero Policy = "alphazero"
	// MuZero is mctx's muzero_policy.
	MuZero Policy = "muzero"
	// Gumbel is mctx's gumbel_muzero_policy.
	Gumbel Policy = "gumbel"
	// Stochastic is mctx's stochastic_muzero_policy (Antonoglou et al. 2022): chance nodes are evaluated,
	// and cost a simulation like others. With the other policies they cost neither: see chance.go.
	Stochastic Policy = "stochastic"
	// UCT is plain UCB1 in the tree (Kocsis and Szepesvari 2006): no prior, unvisited actions first.
	// With playouts as evaluator it is the reference that others are measured by.
	UCT Policy = "uct"
)

// Policies lists the policies, in the order of the documentation.
var Policies = []Policy{AlphaZero, MuZero, Gumbel, Stochastic, UCT}

// likeMCTX says that root noise, masks and the final draw are those of mctx's muzero_policy.
func (p Policy) likeMCTX() bool { return p == MuZero || p == Stochastic }

// QTransform says how Q values enter a score; the names are mctx's qtransform_*.
type QTransform string

// The transforms.
const (
	// ByParentAndSiblings scales Q to 0..1 between the least and the greatest of the node's value
	// and its visited children's Q; unvisited is 0.
	ByParentAndSiblings QTransform = "by_parent_and_siblings"
	// ByMinMax scales Q from MinValue..MaxValue to 0..1; unvisited is 0.
	ByMinMax QTransform = "by_min_max"
	// CompletedByMixValue gives unvisited actions the mixed value (Danihelka et al., appendix D),
	// scales all to 0..1, and multiplies by (MaxvisitInit + most visits) * ValueScale.
	CompletedByMixValue QTransform = "completed_by_mix_value"
	// ByRange scales Q from MinValue..MaxValue to 0..1; unvisited is the node's own value, less
	// FPUReduction times the square root of the visited prior mass (first-play urgency).
	ByRange QTransform = "by_range"
)

// Config is the settings of a search. Start from [Default]: a zero is a value like any other here,
// not a default.
type Config struct {
	Policy         Policy
	NumSimulations int // at least 1; 0 is allowed except for Gumbel
	MaxDepth       int // edges from the root; a simulation that gets there evaluates that node again. 0: no limit
	LeavesPerStep  int // leaves of one tree in flight at once, at least 1

	// Exploration: c = PbCInit + ln((n + PbCBase + 1) / PbCBase). UCT: c = PbCInit, in units of the
	// range of Q.
	PbCInit float32
	PbCBase float32

	QTransform       QTransform
	Epsilon          float32 // least range that Q is divided by
	MinValue         float32 // ByMinMax, ByRange
	MaxValue         float32
	ValueScale       float32 // CompletedByMixValue
	MaxvisitInit     float32
	RescaleValues    bool
	UseMixedValue    bool    // else the raw value completes the unvisited
	FPUReduction     float32 // ByRange
	Outcomes         int     // more than 0: chance nodes with so many outcomes follow each action
	MaxNumConsidered int     // Gumbel: actions that sequential halving starts from

	// Solve proves values (score-bounded MCTS, see solve.go): actions that can't be better than what is
	// certain are not searched, and a search whose root is proven ends. For two players whose rewards
	// sum to 0 and come at the end, within MinValue..MaxValue.
	Solve bool

	KeepLogits bool // remember every node's logits, for Export
}

// Default returns a policy's published settings, with 32 simulations.
func Default(p Policy) Config {
	c := Config{
		Policy: p, NumSimulations: 32, LeavesPerStep: 1, PbCInit: 1.25, PbCBase: 19652,
		QTransform: ByParentAndSiblings, Epsilon: 1e-8, MinValue: -1, MaxValue: 1,
		ValueScale: 0.1, MaxvisitInit: 50, RescaleValues: true, UseMixedValue: true,
		FPUReduction: 0.2, MaxNumConsidered: 16,
	}
	switch p {
	case Gumbel:
		c.QTransform = CompletedByMixValue
	case AlphaZero:
		c.QTransform = ByRange
	case UCT:
		c.QTransform, c.PbCInit = ByMinMax, math.Sqrt2
	default: // as above
	}
	return c
}

// Nodes returns how many nodes a tree has room for.
func (c *Config) Nodes() int { return c.NumSimulations*c.nodesEach() + 1 }

// nodesEach returns how many nodes a simulation makes at most.
func (c *Config) nodesEach() int {
	if c.Passes() {
		return 2
	}
	return 1
}

// MaxSimulations bounds NumSimulations: visit counts stay exact in every formula.
const MaxSimulations = 1 << 24

// validate reports the first setting that can't be.
func (c *Config) validate() error {
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
	case !(c.FPUReduction >= 0):
		return bad("fpu_reduction", c.FPUReduction, "0 or more")
	case c.Outcomes < 0 || (c.Policy == Stochastic && c.Outcomes == 0):
		return bad("outcomes", c.Outcomes, "1 or more")
	case c.Outcomes > 0 && c.Solve:
		return bad("solve", c.Solve, "false where there is chance")
	case c.Policy == Gumbel && c.MaxNumConsidered < 1:
		return bad("max_num_considered_actions", c.MaxNumConsidered, "1 or more")
	}
	switch c.QTransform {
	case ByParentAndSiblings, ByMinMax, CompletedByMixValue, ByRange:
		return nil
	}
	return bad("qtransform", c.QTransform, fmt.Sprint("one of ",
		[]QTransform{ByParentAndSiblings, ByMinMax, CompletedByMixValue, ByRange}))
}

// Params is a checked configuration with its tables. Immutable; all trees of a search share one.
type Params struct {
	Config
	puct []float32 // puct[n]: sqrt(n) * c(n), for a node of n visits
}

// puctTable is how many visits are tabulated: more are rare, and computed.
const puctTable = 4096

// NewParams checks a configuration.
func NewParams(c Config) (*Params, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &Params{Config: c, puct: make([]float32, min(c.NumSimulations+c.LeavesPerStep+2, puctTable))}
	for n := range p.puct {
		p.puct[n] = p.puctAt(n)
	}
	return p, nil
}

// exploration returns sqrt(n) * (PbCInit + ln((n + PbCBase + 1) / PbCBase)).
func (p *Params) exploration(n int32) float32 {
	if int(n) < len(p.puct) {
		return p.puct[n]
	}
	return p.puctAt(int(n))
}

func (p *Params) puctAt(n int) float32 {
	base := float64(p.PbCBase)
	c := float64(p.PbCInit) + math.Log((float64(n)+base+1)/base)
	return float32(math.Sqrt(float64(n)) * c)
}
