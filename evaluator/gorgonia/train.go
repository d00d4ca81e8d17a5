package gorgonia

import (
	"fmt"
	"math"
)

// TrainConfig is the settings of training. The zero value of a field means its default.
type TrainConfig struct {
	BatchSize    int     // rows of a step; default 256
	LearningRate float64 // of Adam; default 1e-3
	ValueWeight  float32 // of the squared error of the value; default 1
	L2           float64 // added to the gradient as L2 * weight; default 1e-4
	Momentum     float64 // 0 for Adam (Kingma and Ba 2015); else SGD with this momentum
	Clip         float64 // the gradient is scaled down to this norm where it is longer; default 5, negative: never
	Threads      int     // that share a step; default 1. The result doesn't depend on it
	Average      float64 // decay a step of the moving average of the weights (Trainer.Average); 0: none is kept
}

func (c TrainConfig) withDefaults() TrainConfig {
	if c.BatchSize == 0 {
		c.BatchSize = 256
	}
	if c.LearningRate == 0 {
		c.LearningRate = 1e-3
	}
	if c.ValueWeight == 0 {
		c.ValueWeight = 1
	}
	if c.L2 == 0 {
		c.L2 = 1e-4
	}
	if c.Clip == 0 {
		c.Clip = 5
	}
	if c.Threads == 0 {
		c.Threads = 1
	}
	return c
}

func (c *TrainConfig) validate() error {
	switch {
	case c.BatchSize < 1:
		return fmt.Errorf("%w: batch_size %d; want at least 1", ErrConfig, c.BatchSize)
	case c.Threads < 1:
		return fmt.Errorf("%w: threads %d; want at least 1", ErrConfig, c.Threads)
	case !(c.LearningRate > 0):
		return fmt.Errorf("%w: learning_rate %g; want more than 0", ErrConfig, c.LearningRate)
	case !(c.ValueWeight >= 0) || !(c.L2 >= 0):
		return fmt.Errorf("%w: value_weight %g, l2 %g; want 0 or more", ErrConfig, c.ValueWeight, c.L2)
	case !(c.Momentum >= 0 && c.Momentum < 1):
		return fmt.Errorf("%w: momentum %g; want 0 to less than 1", ErrConfig, c.Momentum)
	case !(c.Average >= 0 && c.Average < 1):
		return fmt.Errorf("%w: average %g; want 0 to less than 1", ErrConfig, c.Average)
	case c.Clip-c.Clip != 0:
		return fmt.Errorf("%w: clip %g; want a finite number", ErrConfig, c.Clip)
	}
	return nil
}

// Samples is a batch to learn from. Fill all BatchSize rows; a row of weight 0 doesn't count.
type Samples struct {
	X      []float32 // [B, inputs] see Features
	Policy []float32 // [B, A] sums to 1, or all 0 for no policy to learn; 0 where illegal
	Legal  []float32 // [B, A] 1 or 0
	Value  []float32 // [B] from the view of the player to move
	Weight []float32 // [B]
}

// Loss is a step's loss before the step: means over the batch.
type Loss struct {
	Policy   float32 // cross-entropy, in nats
	Value    float32 // squared error
	Gradient float32 // norm of the gradient, before it was clipped
}

// Trainer improves a network. Not safe for concurrent use; evaluation of the network may go on
// between two steps.
type Trainer struct {
	Samples // fill before Step

	net    *Net
	cfg    TrainConfig
	parts  []*part
	grads  [][]float32 // of the whole batch, one a Param
	first  [][]float32 // Adam's first moments, or SGD's velocity
	second [][]float32 // Adam's second moments
	mean   [][]float32 // moving average of the weights; nil for none
	steps  int
}

// NewTrainer builds the graphs of the loss and its gradients.
func NewTrainer(net *Net, cfg TrainConfig) (*Trainer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b, c := cfg.BatchSize, &net.cfg
	t := &Trainer{net: net, cfg: cfg, Samples: Samples{
		X: make([]float32, b*c.Inputs), Policy: make([]float32, b*c.Actions),
		Legal: make([]float32, b*c.Actions), Value: make([]float32, b), Weight: make([]float32, b),
	}}
	rows := partRows
	if c.Kind == MLP { // its activations are small
		rows *= 4
	}
	for lo := 0; lo < b; lo += rows {
		p, err := t.newPart(lo, min(b, lo+rows))
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
	}
	for _, p := range net.params {
		n := len(p.Data)
		t.grads = append(t.grads, make([]float32, n))
		t.first, t.second = append(t.first, make([]float32, n)), append(t.second, make([]float32, n))
		if cfg.Average > 0 {
			t.mean = append(t.mean, make([]float32, n))
		}
	}
	return t, nil
}

// Close frees the machines.
func (t *Trainer) Close() {
	for _, p := range t.parts {
		_ = p.vm.Close()
	}
}

// SetLearningRate changes the learning rate of the steps to come.
func (t *Trainer) SetLearningRate(rate float64) { t.cfg.LearningRate = rate }

// Steps returns how many steps were done, over all runs.
func (t *Trainer) Steps() int { return t.steps }

// Step learns from the samples once, and returns the loss they had before.
func (t *Trainer) Step() (Loss, error) {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	l, err := t.gradients()
	if err != nil {
		return l, err
	}
	t.steps++
	l.Gradient = t.clip()
	for i, g := range t.grads {
		if t.cfg.Momentum > 0 {
			t.sgd(t.net.params[i].Data, g, t.first[i])
		} else {
			t.adam(t.net.params[i].Data, g, t.first[i], t.second[i])
		}
	}
	t.average()
	t.net.version = newVersion()
	return l, nil
}

// clip scales the gradient down to the length that is allowed, and returns the length that it had.
func (t *Trainer) clip() float32 {
	squares := 0.0
	for _, g := range t.grads {
		s := float32(0)
		for _, v := range g {
			s += v * v
		}
		squares += float64(s)
	}
	norm := math.Sqrt(squares)
	if t.cfg.Clip > 0 && norm > t.cfg.Clip {
		scale := float32(t.cfg.Clip / norm)
		for _, g := range t.grads {
			for i := range g {
				g[i] *= scale
			}
		}
	}
	return float32(norm)
}

// average takes the weights into their mean: with decay d, a weighted mean of all since the start, where
// weights n steps old count d^n.
func (t *Trainer) average() {
	if t.mean == nil {
		return
	}
	d := t.cfg.Average
	share := float32((1 - d) / (1 - math.Pow(d, float64(t.steps))))
	for i, m := range t.mean {
		for j, w := range t.net.params[i].Data {
			m[j] += share * (w - m[j])
		}
	}
}

// Average returns a copy of the moving average of the weights; of the weights themselves if none is kept, or
// before the first step.
func (t *Trainer) Average() []Param {
	out := t.net.Params()
	if t.mean == nil || t.steps == 0 {
		return out
	}
	for i := range out {
		copy(out[i].Data, t.mean[i])
	}
	return out
}

// adam is one step of Adam with L2 in the gradient.
func (t *Trainer) adam(w, g, m, v []float32) {
	const beta1, beta2, eps = 0.9, 0.999, 1e-8
	n := float64(t.steps)
	rate := t.cfg.LearningRate * math.Sqrt(1-math.Pow(beta2, n)) / (1 - math.Pow(beta1, n))
	r, l2 := float32(rate), float32(t.cfg.L2)
	for i := range w {
		d := g[i] + l2*w[i]
		m[i] = beta1*m[i] + (1-beta1)*d
		v[i] = beta2*v[i] + (1-beta2)*d*d
		w[i] -= r * m[i] / (float32(math.Sqrt(float64(v[i]))) + eps)
	}
}

// sgd is one step of gradient descent with momentum.
func (t *Trainer) sgd(w, g, velocity []float32) {
	mu, r, l2 := float32(t.cfg.Momentum), float32(t.cfg.LearningRate), float32(t.cfg.L2)
	for i := range w {
		velocity[i] = mu*velocity[i] + g[i] + l2*w[i]
		w[i] -= r * velocity[i]
	}
}

// State is what a trainer must remember to go on after a restart, sharing its memory.
func (t *Trainer) State() []Param {
	var out []Param
	for i, p := range t.net.params {
		out = append(out, Param{"first." + p.Name, p.Shape, t.first[i]},
			Param{"second." + p.Name, p.Shape, t.second[i]})
	}
	for i, m := range t.mean {
		out = append(out, Param{"mean." + t.net.params[i].Name, t.net.params[i].Shape, m})
	}
	return append(out, Param{"steps", []int{1}, []float32{math.Float32frombits(uint32(t.steps))}})
}

// SetState goes on from a State.
func (t *Trainer) SetState(params []Param) error {
	own := t.State()
	if err := sameShapes(params, own); err != nil {
		return err
	}
	for i := range own[:len(own)-1] {
		copy(own[i].Data, params[i].Data)
	}
	t.steps = int(math.Float32bits(params[len(params)-1].Data[0]))
	return nil
}
