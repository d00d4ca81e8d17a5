package selfplay

import (
	"context"
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/onnx"
)

// Kinds of Config.Evaluator.
const (
	EvaluatorAuto     = "auto"     // onnx if ONNX Runtime is there, else gorgonia
	EvaluatorGorgonia = "gorgonia" // the network that learns, a copy of it
	EvaluatorONNX     = "onnx"     // the same exported: about twice as fast
)

// actor is the network that plays: an evaluator whose version is the iteration that its weights are of.
type actor struct {
	env     *envs.Env
	net     *gorgonia.Net
	onnx    *onnx.Model // evaluates in net's place; nil: net does
	own     evaluator.Evaluator
	version uint64
}

// newActor makes an actor with the weights of a new network.
func newActor(env *envs.Env, shape gorgonia.Config, seed uint64, kind string) (*actor, error) {
	a := &actor{env: env}
	var err error
	if a.net, err = gorgonia.NewNet(shape, seed); err != nil {
		return nil, err
	}
	if a.own, err = a.net.Evaluator(env); err != nil {
		return nil, err
	}
	if _, err = onnx.Library(); kind == EvaluatorGorgonia || (kind == EvaluatorAuto && err != nil) {
		return a, nil
	}
	data, err := a.net.ONNX(env)
	if err != nil {
		return nil, err
	}
	a.onnx, err = onnx.New(data, 0, env, onnx.Options{})
	if err != nil {
		return nil, fmt.Errorf("selfplay: evaluator=%s: %w", kind, err)
	}
	return a, nil
}

// kind says what evaluates.
func (a *actor) kind() string {
	if a.onnx != nil {
		return EvaluatorONNX
	}
	return EvaluatorGorgonia
}

// set gives the actor the weights of an iteration. No search may be going on.
func (a *actor) set(params []gorgonia.Param, iteration int) error {
	if err := a.net.SetParams(params); err != nil {
		return err
	}
	a.version = uint64(iteration) + 1 // 0 means none
	if a.onnx == nil {
		return nil
	}
	data, err := a.net.ONNX(a.env)
	if err != nil {
		return err
	}
	return a.onnx.Replace(data, a.version)
}

// Needs is the observations.
func (*actor) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

// Pin tells the iteration; set changes the weights between searches only.
func (a *actor) Pin() (evaluator.Evaluator, uint64, func()) {
	if a.onnx == nil {
		return a, a.version, func() {}
	}
	return a.onnx.Pin()
}

// Evaluate runs the network.
func (a *actor) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	if a.onnx != nil {
		return a.onnx.Evaluate(ctx, in, out)
	}
	return a.own.Evaluate(ctx, in, out)
}

// close frees the network.
func (a *actor) close() {
	a.net.Close()
	if a.onnx != nil {
		a.onnx.Close()
	}
}
