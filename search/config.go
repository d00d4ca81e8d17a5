package search

import (
	"fmt"
	"math"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/search/tree"
)

// Config is a search's settings; the names are mctx's. Start from [Default].
type Config struct {
	tree.Config

	DirichletFraction float32 `json:"dirichlet_fraction"` // share of noise in the root's prior, 0 to 1 (MuZero, AlphaZero)
	DirichletAlpha    float32 `json:"dirichlet_alpha"`    // its concentration, above 0; the noise is over legal actions only
	Temperature       float32 `json:"temperature"`        // of the drawn action: 1 as visits, 0 most visits (MuZero, AlphaZero)
	GumbelScale       float32 `json:"gumbel_scale"`       // factor of the Gumbel noise at the root; 0 is deterministic (Gumbel)
	VisitOffset       float32 `json:"visit_offset"`       // see tree.Draw; 0 is off
	ValueCutoff       float32 `json:"value_cutoff"`       // see tree.Draw; 0 is off
	Discount          float32 `json:"discount"`           // of a step of a single player's environment, 0 to 1

	// Pipeline makes Run search the rows in two groups that take turns, one searched while the other is
	// evaluated: for evaluators that work elsewhere, on a device or a server. It changes no result.
	Pipeline bool `json:"pipeline"`

	// Cache remembers the evaluator's answers, nil for none: give all searches of one evaluator the same one.
	// It changes no result. Not for evaluators that draw random numbers.
	Cache *evaluator.Cache `json:"-"`

	// MaxBytes bounds the memory of a row's tree with its states; 0 means no bound. It comes to a MaxNodes.
	MaxBytes int `json:"max_bytes"`
}

// limit turns MaxBytes into MaxNodes, and refuses bounds that leave a tree no room to work.
func (c *Config) limit(env *envs.Env) error {
	actions, least := env.Spec().NumActions, c.MinNodes(env.Spec().NumActions)
	each := c.NodeBytes(actions) + env.StateSize() + 4
	if c.MaxBytes > 0 {
		nodes := c.MaxBytes / each
		if nodes < least {
			return fmt.Errorf("%w: max_bytes=%d; want at least %d: %d nodes of %d bytes", ErrConfig, c.MaxBytes,
				least*each, least, each)
		}
		if c.MaxNodes == 0 || nodes < c.MaxNodes {
			c.MaxNodes = nodes
		}
	}
	if c.MaxNodes > 0 && c.MaxNodes < least {
		return fmt.Errorf("%w: max_nodes=%d; want at least %d for %d actions and leaves_per_step=%d", ErrConfig,
			c.MaxNodes, least, actions, c.LeavesPerStep)
	}
	return nil
}

// Default returns a policy's published settings for an environment. AlphaZero and UCT take the range of
// values from the specification of a game, and from the tree where there is one player.
func Default(p tree.Policy, spec *envs.Spec) Config {
	c := Config{
		Config: tree.Default(p), DirichletFraction: 0.25, DirichletAlpha: 0.3, Temperature: 1,
		GumbelScale: 1, Discount: 1,
	}
	if p == tree.UCT {
		c.DirichletFraction, c.Temperature = 0, 0
	}
	if p != tree.AlphaZero && p != tree.UCT {
		return c
	}
	if top := max(spec.RewardHigh, -spec.RewardLow); spec.NumPlayers > 1 && top > 0 {
		c.MinValue, c.MaxValue = -top, top
	} else {
		c.QTransform = tree.ByParentAndSiblings
	}
	return c
}

func (c *Config) validate() error {
	bad := func(name string, got float32, want string) error {
		return fmt.Errorf("%w: %s=%v; want %s", ErrConfig, name, got, want)
	}
	switch {
	case !(c.DirichletFraction >= 0 && c.DirichletFraction <= 1):
		return bad("dirichlet_fraction", c.DirichletFraction, "0 to 1")
	case !(c.DirichletAlpha > 0) || math.IsInf(float64(c.DirichletAlpha), 0):
		return bad("dirichlet_alpha", c.DirichletAlpha, "above 0")
	case !(c.Temperature >= 0):
		return bad("temperature", c.Temperature, "0 or more")
	case !(c.GumbelScale >= 0) || math.IsInf(float64(c.GumbelScale), 0):
		return bad("gumbel_scale", c.GumbelScale, "0 or more")
	case c.VisitOffset-c.VisitOffset != 0:
		return bad("visit_offset", c.VisitOffset, "a finite number")
	case !(c.ValueCutoff >= 0):
		return bad("value_cutoff", c.ValueCutoff, "0 or more")
	case c.MaxBytes < 0:
		return bad("max_bytes", float32(c.MaxBytes), "0 (no bound) or more")
	case !(c.Discount >= 0 && c.Discount <= 1):
		return bad("discount", c.Discount, "0 to 1")
	}
	return nil
}

// Roots are the rows of a search.
type Roots struct {
	States []int32  // [B] handles of the store
	Seeds  []uint64 // [B] one a row

	Invalid []bool // [B, A] actions not to be chosen at the root; nil means none
	Noise   Noise

	// Budgets of the rows, each nil for none beside Config's. They hold for these roots only, not for those
	// that Advance goes on to.
	Simulations []int32     // [B] 1 to NumSimulations
	Deadlines   []time.Time // [B] when a row ends with what it has; its root is evaluated in any case

	// Fast marks rows without root noise and forced playouts: the cheap searches of playout cap
	// randomisation (Wu 2019, section 3.1). Nil means none.
	Fast []bool // [B]
}

// Noise replaces what a search would draw from its seeds: for tests, and for callers with random
// numbers of their own. Nil parts are drawn.
type Noise struct {
	Dirichlet    []float32 // [B, A]
	RootGumbel   []float32 // [B, A] before scaling by GumbelScale
	ActionGumbel []float32 // [B, A] for the action that is drawn at the end
}

// perPosition says that the roots have what holds for their positions alone.
func (r *Roots) perPosition() bool {
	return r.Invalid != nil || r.Deadlines != nil || r.Noise.given()
}

func (n *Noise) given() bool {
	return n.Dirichlet != nil || n.RootGumbel != nil || n.ActionGumbel != nil
}

// Seeds returns the seeds of n rows from one number: row i draws from the stream (seed, i), so that
// equal roots differ.
func Seeds(seed uint64, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = rowSeed(seed, i)
	}
	return out
}

// validate checks the shapes.
func (r *Roots) validate(actions, simulations int) error {
	n := len(r.States)
	for _, x := range []struct {
		name string
		got  int
		want int
		must bool
	}{
		{"seeds", len(r.Seeds), n, true},
		{"simulations", len(r.Simulations), n, false},
		{"deadlines", len(r.Deadlines), n, false},
		{"fast", len(r.Fast), n, false},
		{"invalid_actions", len(r.Invalid), n * actions, false},
		{"dirichlet noise", len(r.Noise.Dirichlet), n * actions, false},
		{"root gumbel noise", len(r.Noise.RootGumbel), n * actions, false},
		{"action gumbel noise", len(r.Noise.ActionGumbel), n * actions, false},
	} {
		if x.got != x.want && (x.must || x.got != 0) {
			return fmt.Errorf("%w: %s has %d elements; want %d", ErrConfig, x.name, x.got, x.want)
		}
	}
	for i, n := range r.Simulations {
		if n < 1 || int(n) > simulations {
			return fmt.Errorf("%w: simulations of %w is %d; want 1 to num_simulations=%d", ErrConfig, fault.RowError(i), n,
				simulations)
		}
	}
	return nil
}

// slice returns rows lo to hi-1.
func (r *Roots) slice(lo, hi, actions int) *Roots {
	return &Roots{
		States: r.States[lo:hi], Seeds: r.Seeds[lo:hi], Invalid: part(r.Invalid, lo, hi, actions),
		Noise: Noise{
			part(r.Noise.Dirichlet, lo, hi, actions), part(r.Noise.RootGumbel, lo, hi, actions),
			part(r.Noise.ActionGumbel, lo, hi, actions),
		},
		Simulations: part(r.Simulations, lo, hi, 1), Deadlines: part(r.Deadlines, lo, hi, 1),
		Fast: part(r.Fast, lo, hi, 1),
	}
}

// part returns rows lo to hi-1 of rows of n.
func part[T any](x []T, lo, hi, n int) []T {
	if x == nil {
		return nil
	}
	return x[lo*n : hi*n]
}
