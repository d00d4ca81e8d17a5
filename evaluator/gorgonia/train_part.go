package gorgonia

import (
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
)

// partRows is how many samples a graph of training has. A batch is several parts, whose activations fit into the
// processor's cache, and which threads share; the sums over parts are always made in the same order.
const partRows = 64

// part is a graph of the loss and its gradients for some rows of the batch.
type part struct {
	Samples
	loss *loss
	vm   gorgonia.VM
	out  gorgonia.Value // of the network
	w    gorgonia.Nodes

	policy, value float32 // the last run's loss
	share         float32 // of the batch's weight
	err           error
}

// newPart builds the graph for rows lo to hi-1.
func (t *Trainer) newPart(lo, hi int) (*part, error) {
	c, n := &t.net.cfg, hi-lo
	p := &part{loss: newLoss(t.cfg.ValueWeight, c.Bounded), Samples: Samples{
		X: t.X[lo*c.Inputs : hi*c.Inputs], Policy: t.Policy[lo*c.Actions : hi*c.Actions],
		Legal: t.Legal[lo*c.Actions : hi*c.Actions], Value: t.Value[lo:hi], Weight: t.Weight[lo:hi],
	}}
	g := gorgonia.NewGraph()
	y, w, err := t.net.build(g, input(g, "x", p.X, n, c.Inputs))
	if err != nil {
		return nil, err
	}
	l, err := gorgonia.ApplyOp(p.loss, y, input(g, "policy", p.Policy, n, c.Actions),
		input(g, "legal", p.Legal, n, c.Actions), input(g, "value", p.Value, n), input(g, "weight", p.Weight, n))
	if err != nil {
		return nil, fmt.Errorf("gorgonia: loss: %w", err)
	}
	if _, err := gorgonia.Grad(l, w...); err != nil {
		return nil, fmt.Errorf("gorgonia: gradients: %w", err)
	}
	gorgonia.Read(y, &p.out)
	p.w, p.vm = w, gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(w...))
	return p, nil
}

// run computes the part's loss and gradients; total is the weight of the batch.
func (p *part) run(total float32) {
	p.policy, p.value, p.err = 0, 0, nil
	if p.share = sum(p.Weight) / total; p.share == 0 {
		return
	}
	defer p.vm.Reset()
	if p.err = p.vm.RunAll(); p.err == nil {
		in := [][]float32{floats(p.out), p.Policy, p.Legal, p.Value, p.Weight}
		p.policy, p.value = p.loss.parts(in, len(p.Policy)/len(p.Value))
	}
}

// addTo adds the part's gradient of a weight to the batch's, and forgets it: Gorgonia adds to it in the next run.
func (p *part) addTo(grad []float32, i int) error {
	if p.share == 0 {
		return nil
	}
	v, err := p.w[i].Grad()
	if err != nil {
		return fmt.Errorf("gorgonia: gradient of %s: %w", p.w[i].Name(), err)
	}
	g := floats(v)
	for j, x := range g {
		grad[j] += p.share * x
	}
	clear(g)
	return nil
}

// gradients computes the loss of the batch, and its gradients into t.grads.
func (t *Trainer) gradients() (Loss, error) {
	total := sum(t.Weight)
	if total <= 0 {
		return Loss{}, fmt.Errorf("%w: every sample has weight 0", ErrConfig)
	}
	t.runParts(total)
	l, errs := Loss{}, []error{}
	for _, p := range t.parts {
		l.Policy, l.Value = l.Policy+p.share*p.policy, l.Value+p.share*p.value
		errs = append(errs, p.err)
	}
	if err := errors.Join(errs...); err != nil {
		return Loss{}, fmt.Errorf("gorgonia: training: %w", err)
	}
	for i, g := range t.grads {
		clear(g)
		for _, p := range t.parts {
			if err := p.addTo(g, i); err != nil {
				return l, err
			}
		}
	}
	if l.Policy-l.Policy != 0 || l.Value-l.Value != 0 {
		return Loss{}, fmt.Errorf("gorgonia: training: loss is %g + %g: the network's numbers overflowed; "+
			"lower the learning rate", l.Policy, l.Value)
	}
	return l, nil
}

// runParts runs all parts on the threads.
func (t *Trainer) runParts(total float32) {
	var wg sync.WaitGroup
	next := make(chan *part, len(t.parts))
	for _, p := range t.parts {
		next <- p
	}
	close(next)
	work := func() {
		for p := range next {
			p.run(total)
		}
	}
	for range min(t.cfg.Threads, len(t.parts)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
