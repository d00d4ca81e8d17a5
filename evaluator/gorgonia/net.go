package gorgonia

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
)

// Errors of this package.
var (
	ErrConfig = errors.New("gorgonia: bad network")    // names the field
	ErrModel  = errors.New("gorgonia: bad model file") // names the file
)

// Config is the shape of a network. It is what the JSON file beside the weights holds.
type Config struct {
	Kind     string `json:"kind"`     // "mlp"
	Env      string `json:"env"`      // id of the environment
	Keywords string `json:"keywords"` // of the environment
	Inputs   int    `json:"inputs"`   // numbers of an observation
	Actions  int    `json:"actions"`
	Hidden   []int  `json:"hidden"`  // widths of the hidden layers, first to last
	Bounded  bool   `json:"bounded"` // the value is a tanh: for games with results in -1..1
}

// DefaultConfig returns the shape of a small network for an environment: two layers of 128.
func DefaultConfig(env *envs.Env) Config {
	spec := env.Spec()
	c := Config{
		Kind: "mlp", Env: spec.ID, Keywords: spec.Keywords, Actions: spec.NumActions,
		Hidden: []int{128, 128}, Bounded: spec.NumPlayers > 1 && spec.RewardLow >= -1 && spec.RewardHigh <= 1,
	}
	for _, a := range spec.Obs {
		c.Inputs += a.Len()
	}
	return c
}

func (c *Config) validate() error {
	switch {
	case c.Kind != "mlp":
		return fmt.Errorf("%w: kind %q; want \"mlp\"", ErrConfig, c.Kind)
	case c.Inputs < 1 || c.Actions < 1:
		return fmt.Errorf("%w: inputs %d, actions %d; want at least 1 of each", ErrConfig, c.Inputs,
			c.Actions)
	case len(c.Hidden) < 1:
		return fmt.Errorf("%w: hidden is empty; want the width of at least one layer", ErrConfig)
	}
	for i, h := range c.Hidden {
		if h < 1 || h > 1<<14 {
			return fmt.Errorf("%w: hidden[%d] is %d; want 1 to %d", ErrConfig, i, h, 1<<14)
		}
	}
	return nil
}

// fits says whether a network of this shape can evaluate an environment.
func (c *Config) fits(env *envs.Env) error {
	want := DefaultConfig(env)
	if c.Env != want.Env || c.Keywords != want.Keywords || c.Inputs != want.Inputs || c.Actions != want.Actions {
		return fmt.Errorf("%w: made for %s (%s): %d inputs, %d actions; %s (%s) has %d and %d", ErrConfig,
			c.Env, c.Keywords, c.Inputs, c.Actions, want.Env, want.Keywords, want.Inputs, want.Actions)
	}
	return nil
}

// Param is one array of weights.
type Param struct {
	Name  string
	Shape []int
	Data  []float32
}

// Net is a network. Evaluate may be called from several goroutines at once; training waits for them
// and keeps them waiting.
type Net struct {
	cfg    Config
	params []Param

	mu sync.RWMutex // guards the numbers in params: written by training, read by evaluation

	graphMu sync.Mutex       // guards idle
	idle    map[int][]*graph // graphs not in use, by batch size
}

// NewNet returns a network with random weights drawn from a seed: He's initialisation (2015) for the
// hidden layers, small numbers for the output, so that the first policy is nearly uniform and the
// first value nearly 0.
func NewNet(cfg Config, seed uint64) (*Net, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Net{cfg: cfg, idle: map[int][]*graph{}}
	rnd := rng.New(seed)
	widths := slices.Concat([]int{cfg.Inputs}, cfg.Hidden, []int{cfg.Actions + 1})
	for i := range len(widths) - 1 {
		in, out := widths[i], widths[i+1]
		scale := math.Sqrt(2 / float64(in))
		if i == len(widths)-2 {
			scale = 0.1 / math.Sqrt(float64(in))
		}
		w := Param{fmt.Sprintf("layer%d.weight", i), []int{in, out}, make([]float32, in*out)}
		for j := range w.Data {
			w.Data[j] = float32(scale * rnd.Norm())
		}
		b := Param{fmt.Sprintf("layer%d.bias", i), []int{out}, make([]float32, out)}
		n.params = append(n.params, w, b)
	}
	return n, nil
}

// Config returns the network's shape.
func (n *Net) Config() Config { return n.cfg }

// Params returns a copy of the weights.
func (n *Net) Params() []Param {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := make([]Param, len(n.params))
	for i, p := range n.params {
		out[i] = Param{p.Name, p.Shape, slices.Clone(p.Data)}
	}
	return out
}

// SetParams replaces the weights, which must have the same names and shapes in the same order.
func (n *Net) SetParams(params []Param) error {
	if len(params) != len(n.params) {
		return fmt.Errorf("%w: %d arrays of weights; want %d", ErrModel, len(params), len(n.params))
	}
	for i, p := range params {
		want := &n.params[i]
		if p.Name != want.Name || !slices.Equal(p.Shape, want.Shape) || len(p.Data) != len(want.Data) {
			return fmt.Errorf("%w: weights %q %v; want %q %v", ErrModel, p.Name, p.Shape, want.Name, want.Shape)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, p := range params {
		copy(n.params[i].Data, p.Data)
	}
	return nil
}

// Count returns the number of weights.
func (n *Net) Count() int {
	count := 0
	for _, p := range n.params {
		count += len(p.Data)
	}
	return count
}
