package search

import (
	"fmt"
	"math"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/search/tree"
)

// Config is a search's settings; the names are mctx's. Start from [Default].
type Config struct {
	tree.Config

	DirichletFraction float32 // share of noise in the root's prior, 0 to 1 (MuZero, AlphaZero)
	DirichletAlpha    float32 // its concentration, above 0; the noise is over legal actions only
	Temperature       float32 // of the drawn action: 1 as visits, 0 most visits (MuZero, AlphaZero)
	GumbelScale       float32 // factor of the Gumbel noise at the root; 0 is deterministic (Gumbel)
	Discount          float32 // of a step of a single player's environment, 0 to 1
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
}

// Noise replaces what a search would draw from its seeds: for tests, and for callers with random
// numbers of their own. Nil parts are drawn.
type Noise struct {
	Dirichlet    []float32 // [B, A]
	RootGumbel   []float32 // [B, A] before scaling by GumbelScale
	ActionGumbel []float32 // [B, A] for the action that is drawn at the end
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
func (r *Roots) validate(actions int) error {
	n := len(r.States)
	for _, x := range []struct {
		name string
		got  int
		want int
		must bool
	}{
		{"seeds", len(r.Seeds), n, true},
		{"invalid_actions", len(r.Invalid), n * actions, false},
		{"dirichlet noise", len(r.Noise.Dirichlet), n * actions, false},
		{"root gumbel noise", len(r.Noise.RootGumbel), n * actions, false},
		{"action gumbel noise", len(r.Noise.ActionGumbel), n * actions, false},
	} {
		if x.got != x.want && (x.must || x.got != 0) {
			return fmt.Errorf("%w: %s has %d elements; want %d", ErrConfig, x.name, x.got, x.want)
		}
	}
	return nil
}

// slice returns rows lo to hi-1.
func (r *Roots) slice(lo, hi, actions int) *Roots {
	part := func(x []float32) []float32 {
		if x == nil {
			return nil
		}
		return x[lo*actions : hi*actions]
	}
	out := &Roots{States: r.States[lo:hi], Seeds: r.Seeds[lo:hi], Noise: Noise{
		part(r.Noise.Dirichlet), part(r.Noise.RootGumbel), part(r.Noise.ActionGumbel),
	}}
	if r.Invalid != nil {
		out.Invalid = r.Invalid[lo*actions : hi*actions]
	}
	return out
}
