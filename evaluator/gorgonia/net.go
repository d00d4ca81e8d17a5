package gorgonia

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

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
	Kind     string `json:"kind"`     // "mlp" or "resnet"
	Env      string `json:"env"`      // id of the environment
	Keywords string `json:"keywords"` // of the environment
	Inputs   int    `json:"inputs"`   // numbers of an observation
	Actions  int    `json:"actions"`
	Bounded  bool   `json:"bounded"` // the value is a tanh: for games with results in -1..1

	Hidden []int `json:"hidden,omitempty"` // mlp: widths of the hidden layers, first to last

	// resnet: the observation is one array [rows, cols, planes].
	Board    []int `json:"board,omitempty"`    // rows, cols, planes
	Blocks   int   `json:"blocks,omitempty"`   // of two convolutions each
	Channels int   `json:"channels,omitempty"` // planes of the tower
	Head     int   `json:"head,omitempty"`     // planes of either head
	Value    int   `json:"value,omitempty"`    // width of the value's hidden layer
}

// Kinds of networks.
const (
	MLP    = "mlp"
	ResNet = "resnet"
)

// DefaultConfig returns the shape of a small network for an environment: two layers of 128.
func DefaultConfig(env *envs.Env) Config {
	spec := env.Spec()
	c := Config{
		Kind: MLP, Env: spec.ID, Keywords: spec.Keywords, Actions: spec.NumActions,
		Hidden: []int{128, 128}, Bounded: spec.NumPlayers > 1 && spec.RewardLow >= -1 && spec.RewardHigh <= 1,
	}
	for _, a := range spec.Obs {
		c.Inputs += a.Len()
	}
	return c
}

// ResNetConfig returns the shape of a residual network for an environment whose observation is one array
// [rows, cols] or [rows, cols, planes]; any other is ErrConfig.
func ResNetConfig(env *envs.Env, blocks, channels int) (Config, error) {
	c := DefaultConfig(env)
	obs := env.Spec().Obs
	if len(obs) != 1 || len(obs[0].Shape) < 2 || len(obs[0].Shape) > 3 {
		return c, fmt.Errorf("%w: kind \"resnet\" needs one observation array [rows, cols, planes]; %s has %d, the "+
			"first %v", ErrConfig, c.Env, len(obs), obs[0].Shape)
	}
	c.Kind, c.Hidden = ResNet, nil
	c.Board = append([]int{1, 1, 1}[:0], obs[0].Shape...)
	if len(c.Board) == 2 {
		c.Board = append(c.Board, 1)
	}
	c.Blocks, c.Channels, c.Head, c.Value = blocks, channels, 8, 64
	return c, c.validate()
}

func (c *Config) validate() error {
	if c.Inputs < 1 || c.Actions < 1 || c.Inputs > maxInputs || c.Actions > maxInputs {
		return fmt.Errorf("%w: inputs %d, actions %d; want 1 to %d of each", ErrConfig, c.Inputs, c.Actions, maxInputs)
	}
	switch c.Kind {
	case MLP:
		return c.validateMLP()
	case ResNet:
		return c.validateResNet()
	}
	return fmt.Errorf("%w: kind %q; want \"mlp\" or \"resnet\"", ErrConfig, c.Kind)
}

// Bounds of the layers, so that their products are numbers.
const (
	maxInputs = 1 << 22
	maxWidth  = 1 << 14
)

func inWidth(name string, value, least int) error {
	if value < least || value > maxWidth {
		return fmt.Errorf("%w: %s is %d; want %d to %d", ErrConfig, name, value, least, maxWidth)
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

	mu      sync.RWMutex // guards the numbers in params and version: written by training, read by evaluation
	version uint64       // of these numbers: different ones have different versions

	graphMu sync.Mutex       // guards idle
	idle    map[int][]*graph // graphs not in use, by batch size
}

// layer is a matrix of weights [in, out] with a bias [out], as it is at first: normal numbers of standard
// deviation std, and zeros.
type layer struct {
	name    string
	in, out int
	std     float64
}

// layers lists the network's layers in the order in which they are applied.
func (c *Config) layers() []layer {
	if c.Kind == ResNet {
		return c.resnetLayers()
	}
	return c.mlpLayers()
}

// he is the standard deviation that keeps the size of activations through a layer with relu (He 2015).
func he(in int) float64 { return math.Sqrt(2 / float64(in)) }

// outputStd makes the first policy nearly uniform and the first value nearly 0.
func outputStd(in int) float64 { return 0.1 / math.Sqrt(float64(in)) }

// NewNet returns a network with random weights drawn from a seed.
func NewNet(cfg Config, seed uint64) (*Net, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Net{cfg: cfg, version: newVersion(), idle: map[int][]*graph{}}
	rnd := rng.New(seed)
	for _, l := range cfg.layers() {
		w := Param{l.name + ".weight", []int{l.in, l.out}, make([]float32, l.in*l.out)}
		for j := range w.Data {
			w.Data[j] = float32(l.std * rnd.Norm())
		}
		n.params = append(n.params, w, Param{l.name + ".bias", []int{l.out}, make([]float32, l.out)})
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
	n.version = newVersion()
	return nil
}

// newVersion returns a number that no weights of this process had before.
func newVersion() uint64 { return versions.Add(1) }

var versions atomic.Uint64

// Version returns the version of the weights: it rises whenever they change, and differs from that of every
// other network of this process.
func (n *Net) Version() uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.version
}

// Count returns the number of weights.
func (n *Net) Count() int { return n.cfg.count() }

// count is the number of weights of a valid shape.
func (c *Config) count() int {
	count := 0
	for _, l := range c.layers() {
		count += (l.in + 1) * l.out
	}
	return count
}
