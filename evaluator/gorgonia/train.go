package gorgonia

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
)

// TrainConfig is the settings of training. The zero value of a field means its default.
type TrainConfig struct {
	BatchSize    int     // rows of a step; default 256
	LearningRate float64 // of Adam; default 1e-3
	ValueWeight  float32 // of the squared error of the value; default 1
	L2           float64 // added to the gradient as L2 * weight; default 1e-4
	Momentum     float64 // 0 for Adam (Kingma and Ba 2015); else SGD with this momentum
	Clip         float64 // the gradient is scaled down to this norm where it is longer; default 5, negative: never
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
	return c
}

func (c *TrainConfig) validate() error {
	switch {
	case c.BatchSize < 1:
		return fmt.Errorf("%w: batch_size %d; want at least 1", ErrConfig, c.BatchSize)
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
	loss   *loss
	vm     gorgonia.VM
	out    gorgonia.Value
	w      gorgonia.Nodes
	first  [][]float32 // Adam's first moments, or SGD's velocity
	second [][]float32 // Adam's second moments
	mean   [][]float32 // moving average of the weights; nil for none
	steps  int
}

// NewTrainer builds the graph of the loss and its gradients.
func NewTrainer(net *Net, cfg TrainConfig) (*Trainer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b, c := cfg.BatchSize, &net.cfg
	t := &Trainer{net: net, cfg: cfg, loss: newLoss(cfg.ValueWeight, c.Bounded), Samples: Samples{
		X: make([]float32, b*c.Inputs), Policy: make([]float32, b*c.Actions),
		Legal: make([]float32, b*c.Actions), Value: make([]float32, b), Weight: make([]float32, b),
	}}
	g := gorgonia.NewGraph()
	y, w, err := net.build(g, input(g, "x", t.X, b, c.Inputs))
	if err != nil {
		return nil, err
	}
	l, err := gorgonia.ApplyOp(t.loss, y, input(g, "policy", t.Policy, b, c.Actions),
		input(g, "legal", t.Legal, b, c.Actions), input(g, "value", t.Value, b),
		input(g, "weight", t.Weight, b))
	if err != nil {
		return nil, fmt.Errorf("gorgonia: loss: %w", err)
	}
	if _, err := gorgonia.Grad(l, w...); err != nil {
		return nil, fmt.Errorf("gorgonia: gradients: %w", err)
	}
	gorgonia.Read(y, &t.out)
	t.w, t.vm = w, gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(w...))
	for _, p := range net.params {
		t.first = append(t.first, make([]float32, len(p.Data)))
		t.second = append(t.second, make([]float32, len(p.Data)))
		if cfg.Average > 0 {
			t.mean = append(t.mean, make([]float32, len(p.Data)))
		}
	}
	return t, nil
}

// Close frees the machine.
func (t *Trainer) Close() { _ = t.vm.Close() }

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
	grads := make([][]float32, len(t.w))
	for i := range t.w {
		if grads[i], err = t.grad(i); err != nil {
			return l, err
		}
	}
	l.Gradient = t.clip(grads)
	for i, g := range grads {
		if t.cfg.Momentum > 0 {
			t.sgd(t.net.params[i].Data, g, t.first[i])
		} else {
			t.adam(t.net.params[i].Data, g, t.first[i], t.second[i])
		}
		clear(g) // Gorgonia adds to it in the next run
	}
	t.average()
	t.net.version = newVersion()
	return l, nil
}

// clip scales a gradient down to the length that is allowed, and returns the length that it had.
func (t *Trainer) clip(grads [][]float32) float32 {
	squares := 0.0
	for _, g := range grads {
		s := float32(0)
		for _, v := range g {
			s += v * v
		}
		squares += float64(s)
	}
	norm := math.Sqrt(squares)
	if t.cfg.Clip > 0 && norm > t.cfg.Clip {
		scale := float32(t.cfg.Clip / norm)
		for _, g := range grads {
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

// gradients runs the graph.
func (t *Trainer) gradients() (Loss, error) {
	if sum(t.Weight) <= 0 {
		return Loss{}, fmt.Errorf("%w: every sample has weight 0", ErrConfig)
	}
	defer t.vm.Reset()
	if err := t.vm.RunAll(); err != nil {
		return Loss{}, fmt.Errorf("gorgonia: training: %w", err)
	}
	in := [][]float32{floats(t.out), t.Policy, t.Legal, t.Value, t.Weight}
	policy, value := t.loss.parts(in, t.net.cfg.Actions)
	if policy-policy != 0 || value-value != 0 {
		return Loss{}, fmt.Errorf("gorgonia: training: loss is %g + %g: the network's numbers overflowed; "+
			"lower the learning rate", policy, value)
	}
	return Loss{Policy: policy, Value: value}, nil
}

func (t *Trainer) grad(i int) ([]float32, error) {
	v, err := t.w[i].Grad()
	if err != nil {
		return nil, fmt.Errorf("gorgonia: gradient of %s: %w", t.net.params[i].Name, err)
	}
	return floats(v), nil
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
