package selfplay

import (
	"context"
	"math"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/replay"
)

// learn does the steps that are owed.
func (r *Run) learn(ctx context.Context) error {
	if r.ring.Len() == 0 {
		return nil
	}
	r.trainer.SetLearningRate(r.learningRate())
	rnd := rng.New(r.cfg.Seed, uint64(r.trainer.Steps()), 1<<40)
	var total gorgonia.Loss
	steps := int(r.state.Debt)
	for range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.fillSamples(&rnd)
		l, err := r.trainer.Step()
		if err != nil {
			return err
		}
		r.state.Debt--
		total.Policy += l.Policy / float32(steps)
		total.Value += l.Value / float32(steps)
		total.Gradient += l.Gradient / float32(steps)
	}
	if steps > 0 {
		r.last.Loss = total
	}
	return nil
}

// learningRate falls to a twentieth along a cosine over the run.
func (r *Run) learningRate() float64 {
	return r.cfg.LearningRate * (0.05 + 0.95*0.5*(1+math.Cos(math.Pi*r.fraction())))
}

// fillSamples draws a batch of positions, each under a random symmetry.
func (r *Run) fillSamples(rnd *rng.Stream) {
	t, a := r.trainer, r.env.Spec().NumActions
	inputs := len(t.X) / r.cfg.BatchSize
	syms := r.env.Symmetries()
	if !r.cfg.Symmetries {
		syms = nil
	}
	window := min(r.ring.Len(), r.cfg.window(r.ring.Total()))
	for i := range r.cfg.BatchSize {
		p := r.ring.At(rnd.IntN(window))
		var sym *envs.Symmetry
		if k := rnd.IntN(len(syms) + 1); k > 0 {
			sym = &syms[k-1]
		}
		writeSample(&p, sym, t.X[i*inputs:(i+1)*inputs], t.Policy[i*a:(i+1)*a], t.Legal[i*a:(i+1)*a])
		t.Value[i], t.Weight[i] = p.Value, 1
	}
}

// writeSample writes a position as the network learns it, under a symmetry (nil for none).
func writeSample(p *replay.Position, sym *envs.Symmetry, x, policy, legal []float32) {
	if sym == nil {
		gorgonia.Features(p.Obs, p.Row, p.Row+1, x)
		copy(policy, p.Policy)
		for a, ok := range p.Legal {
			legal[a] = indicator(ok)
		}
		return
	}
	plain := make([]float32, len(x))
	gorgonia.Features(p.Obs, p.Row, p.Row+1, plain)
	at := 0
	for k := range p.Obs {
		n := p.Obs[k].Size()
		envs.Apply(sym.Obs[k], plain[at:at+n], x[at:at+n])
		at += n
	}
	for a, from := range sym.Actions {
		policy[a], legal[a] = p.Policy[from], indicator(p.Legal[from])
	}
}

func indicator(b bool) float32 {
	if b {
		return 1
	}
	return 0
}
