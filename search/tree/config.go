package tree

import "math"

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

// LikeMCTX says that root noise, masks and the final draw are those of mctx's muzero_policy.
func (p Policy) LikeMCTX() bool { return p == MuZero || p == Stochastic }

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
	// ByRange scales Q from MinValue..MaxValue to 0..1; unvisited is as FPU says.
	ByRange QTransform = "by_range"
	// ByTree scales Q to 0..1 between the least and the greatest Q that the tree has seen (MuZero's
	// MinMaxStats: Schrittwieser et al. 2020, eq. 5); unvisited is as FPU says.
	ByTree QTransform = "by_tree"
)

// FPU is first-play urgency: what an unvisited action is worth with ByRange and ByTree.
type FPU string

// The kinds of first-play urgency, as KataGo and lc0 have them.
const (
	// FPUParent is the node's own value.
	FPUParent FPU = "parent"
	// FPUReduced is the node's own value, less FPUReduction times the square root of the visited actions'
	// prior mass. The reduction is in units of the range of Q.
	FPUReduced FPU = "reduction"
	// FPUAbsolute is FPUValue, in units of rewards.
	FPUAbsolute FPU = "absolute"
)

// Config is the settings of a search; the tags are their names elsewhere, mctx's where it has them. Start
// from [Default]: a zero is a value like any other here, not a default.
type Config struct {
	Policy         Policy `json:"policy"`
	NumSimulations int    `json:"num_simulations"` // at least 1; 0 is allowed except for Gumbel
	MaxDepth       int    `json:"max_depth"`       // edges from the root; a simulation that gets there evaluates that node again. 0: no limit
	LeavesPerStep  int    `json:"leaves_per_step"` // leaves of one tree in flight at once, at least 1

	// Exploration: c = PbCInit + ln((n + PbCBase + 1) / PbCBase). UCT: c = PbCInit, in units of the
	// range of Q.
	PbCInit float32 `json:"pb_c_init"`
	PbCBase float32 `json:"pb_c_base"`

	QTransform       QTransform `json:"qtransform"`
	Epsilon          float32    `json:"epsilon"`   // least range that Q is divided by
	MinValue         float32    `json:"min_value"` // ByMinMax, ByRange
	MaxValue         float32    `json:"max_value"`
	ValueScale       float32    `json:"value_scale"` // CompletedByMixValue
	MaxvisitInit     float32    `json:"maxvisit_init"`
	RescaleValues    bool       `json:"rescale_values"`
	UseMixedValue    bool       `json:"use_mixed_value"` // else the raw value completes the unvisited
	FPU              FPU        `json:"fpu"`
	FPUReduction     float32    `json:"fpu_reduction"`
	FPUValue         float32    `json:"fpu_value"`
	RootFPU          FPU        `json:"root_fpu"` // at the root; empty means as elsewhere, with its own two numbers otherwise
	RootFPUReduction float32    `json:"root_fpu_reduction"`
	RootFPUValue     float32    `json:"root_fpu_value"`
	Outcomes         int        `json:"-"`                          // more than 0: chance nodes with so many outcomes follow each action
	MaxNumConsidered int        `json:"max_num_considered_actions"` // Gumbel: actions that sequential halving starts from

	// ForcedPlayouts is k of KataGo's forced playouts (Wu 2019, section 3.2; 2 there): each action of the
	// root that has a visit gets at least sqrt(k * prior * all visits), so that noise is followed up; what
	// they add beyond their worth is taken off Output.Weights again (policy target pruning). 0 is off.
	// AlphaZero only.
	ForcedPlayouts float32 `json:"forced_playouts"`

	// LCB is how many standard deviations below its mean an action is judged by when the one to play is
	// chosen (KataGo's useLcbForSelection; 5 there): with it the action is the one with the best lower
	// confidence bound among those with at least LCBMinVisits (0.15 there) of the most visits. 0 is off.
	// Not with Gumbel.
	LCB          float32 `json:"lcb"`
	LCBMinVisits float32 `json:"lcb_min_visits"`

	// EarlyStop ends a search when no simulation that is left can change which action has most visits, or
	// when there is only one to choose (lc0's smart pruning).
	EarlyStop bool `json:"early_stop"`

	// CountKept makes NumSimulations count the visits that Advance kept (KataGo's maxVisits); else it counts
	// new simulations only (maxPlayouts, and mctx-az), and MaxNodes must say how large trees may grow.
	CountKept bool `json:"count_kept"`

	// MaxNodes bounds the nodes of a tree: when it is full, the parts that were visited longest ago are
	// forgotten, but for the root's children. Their values stay in what is above them. 0 means no bound.
	MaxNodes int `json:"max_nodes"`

	// Solve proves values (score-bounded MCTS, see solve.go): actions that can't be better than what is
	// certain are not searched, and a search whose root is proven ends. For two players whose rewards
	// sum to 0 and come at the end, within MinValue..MaxValue.
	Solve bool `json:"solve"`

	KeepLogits bool `json:"keep_tree"` // remember every node's logits, for Export
}

// Default returns a policy's published settings, with 32 simulations.
func Default(p Policy) Config {
	c := Config{
		Policy: p, NumSimulations: 32, LeavesPerStep: 1, PbCInit: 1.25, PbCBase: 19652,
		QTransform: ByParentAndSiblings, Epsilon: 1e-8, MinValue: -1, MaxValue: 1,
		ValueScale: 0.1, MaxvisitInit: 50, RescaleValues: true, UseMixedValue: true,
		FPU: FPUReduced, FPUReduction: 0.2, MaxNumConsidered: 16, LCBMinVisits: 0.15,
		CountKept: true,
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
func (c *Config) Nodes() int {
	n := c.NumSimulations*c.nodesEach() + 1
	if !c.CountKept {
		return c.MaxNodes
	}
	if c.MaxNodes > 0 {
		return min(n, c.MaxNodes)
	}
	return n
}

// nodesEach returns how many nodes a simulation makes at most.
func (c *Config) nodesEach() int {
	if c.Passes() {
		return 2
	}
	return 1
}

// MaxActions bounds the actions, and the outcomes, of a node.
const MaxActions = 1<<16 - 1

// MaxSimulations bounds NumSimulations: visits are counted in 32 bits, values are summed in float64.
const MaxSimulations = 1 << 30

// Params is a checked configuration with its tables. Immutable; all trees of a search share one.
type Params struct {
	Config
	explore []float32 // exploration by a node's visits

	// The names as numbers, which is what is compared at every level of every simulation.
	urgency [2]urgency // of first plays: below the root, and at it
	rule    rule
	scaling scaling
	passing bool // Passes
	bounded bool // MaxNodes is given
}

// urgency is an FPU with its number.
type urgency struct {
	absolute         bool
	reduction, value float32
}

func urgencyOf(kind FPU, reduction, value float32) urgency {
	switch kind {
	case FPUAbsolute:
		return urgency{absolute: true, value: value}
	case FPUReduced:
		return urgency{reduction: reduction}
	default:
		return urgency{}
	}
}

// rule is how an action is chosen.
type rule uint8

const (
	rulePUCT rule = iota
	ruleUCB
	ruleGumbel
)

var ruleOf = map[Policy]rule{UCT: ruleUCB, Gumbel: ruleGumbel}

// scaling is a QTransform.
type scaling uint8

const (
	scaleBySiblings scaling = iota
	scaleByMinMax
	scaleCompleted
	scaleByRange
	scaleByTree
)

var scalingOf = map[QTransform]scaling{
	ByParentAndSiblings: scaleBySiblings, ByMinMax: scaleByMinMax, CompletedByMixValue: scaleCompleted,
	ByRange: scaleByRange, ByTree: scaleByTree,
}

// exploreTable is how many visits are tabulated: more are rare, and computed.
const exploreTable = 4096

// NewParams checks a configuration.
func NewParams(c Config) (*Params, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := &Params{
		Config: c, explore: make([]float32, min(c.NumSimulations+c.LeavesPerStep+2, exploreTable)),
		rule: ruleOf[c.Policy], scaling: scalingOf[c.QTransform], passing: c.Passes(), bounded: c.MaxNodes > 0,
	}
	p.urgency[0] = urgencyOf(c.FPU, c.FPUReduction, c.FPUValue)
	p.urgency[1] = p.urgency[0]
	if c.RootFPU != "" {
		p.urgency[1] = urgencyOf(c.RootFPU, c.RootFPUReduction, c.RootFPUValue)
	}
	for n := range p.explore {
		p.explore[n] = p.explorationAt(n)
	}
	return p, nil
}

// exploration is what every action's share of a node's exploration is multiplied by: sqrt(n) * (PbCInit +
// ln((n + PbCBase + 1) / PbCBase)) for PUCT, PbCInit * sqrt(ln(n)) for UCB1.
func (p *Params) exploration(n int32) float32 {
	if int(n) < len(p.explore) {
		return p.explore[n]
	}
	return p.explorationAt(int(n))
}

func (p *Params) explorationAt(n int) float32 {
	visits, base := float64(n), float64(p.PbCBase)
	if p.rule == ruleUCB {
		return p.PbCInit * float32(math.Sqrt(math.Log(max(1, visits))))
	}
	c := float64(p.PbCInit) + math.Log((visits+base+1)/base)
	return float32(math.Sqrt(visits) * c)
}
