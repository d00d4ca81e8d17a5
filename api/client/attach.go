package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/safe"
)

// Attach is how an evaluator of this process serves a model.
type Attach struct {
	Model    string
	Name     string // for logs and errors
	MaxBatch int    // rows
	InFlight int    // batches at a time; 0 means 2
	Version  uint64 // of its weights
}

func elementSize[T any]() uintptr {
	var zero T
	return unsafe.Sizeof(zero)
}

// ServeEvaluator attaches an evaluator that reads observations to a model of the server, and serves it until ctx ends
// or the connection does. An error or a panic of the evaluator fails its batch. The environments must be known here.
func (c *Client) ServeEvaluator(ctx context.Context, a Attach, ev evaluator.Evaluator) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.models.Attach(ctx)
	if err != nil {
		return wire.FromStatus(err)
	}
	hello := &pb.Hello{
		Model: a.Model, Name: a.Name, MaxBatch: int32(a.MaxBatch), InFlight: int32(a.InFlight),
		Weights: &pb.Weights{Versions: []uint64{a.Version}},
	}
	if err := stream.Send(&pb.AttachRequest{Message: &pb.AttachRequest_Hello{Hello: hello}}); err != nil {
		return wire.FromStatus(err)
	}
	w := &worker{stream: stream, ev: ev, envs: map[string]*envs.Env{}, running: map[uint64]context.CancelFunc{}}
	defer w.done.Wait()
	defer cancel()
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return wire.FromStatus(err)
		case m.GetBatch() != nil:
			w.begin(ctx, m.GetBatch())
		case m.GetCancel() != nil:
			w.cancel(m.GetCancel().Id)
		}
	}
}

// worker answers the batches of a stream, each in a goroutine of its own.
type worker struct {
	stream pb.Models_AttachClient
	ev     evaluator.Evaluator
	envs   map[string]*envs.Env
	done   sync.WaitGroup

	mu      sync.Mutex // guards running, and is held while something is sent
	running map[uint64]context.CancelFunc
}

func (w *worker) begin(ctx context.Context, b *pb.EvaluationBatch) {
	key := b.Env + fmt.Sprint(b.Keywords)
	env, err := w.envs[key], error(nil)
	if env == nil {
		if env, err = wire.Env(b.Env, b.Keywords); err == nil {
			w.envs[key] = env
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.running[b.Id] = cancel
	w.mu.Unlock()
	w.done.Go(func() {
		defer cancel()
		answer := &pb.AttachRequest{}
		if err == nil {
			err = safe.Call(func() error { return w.evaluate(ctx, env, b, answer) })
		}
		if err != nil {
			answer.Message = &pb.AttachRequest_Failure{Failure: &pb.Failure{Id: b.Id, Message: err.Error()}}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, b.Id)
		_ = w.stream.Send(answer) // where that fails, Recv says why
	})
}

func (w *worker) cancel(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel := w.running[id]; cancel != nil {
		cancel()
	}
}

func (w *worker) evaluate(ctx context.Context, env *envs.Env, b *pb.EvaluationBatch, answer *pb.AttachRequest) error {
	spec := env.Spec()
	arrays, n, err := wire.ReadArrays("batch.obs", spec.Obs, b.Obs)
	if err != nil {
		return err
	}
	in := &evaluator.Batch{N: n, Spec: spec, Obs: arrays}
	if in.Legal, err = wire.Read[bool]("batch.action_mask", b.ActionMask, n, spec.NumActions); err != nil {
		return err
	}
	if in.Chance, err = wire.Read[bool]("batch.chance", b.Chance, n); err != nil {
		return err
	}
	out := &evaluator.Output{Logits: make([]float32, n*spec.NumActions), Value: make([]float32, n)}
	if err := w.ev.Evaluate(ctx, in, out); err != nil {
		return err
	}
	for _, err := range out.Errors {
		if err != nil {
			return err
		}
	}
	answer.Message = &pb.AttachRequest_Answer{Answer: &pb.Answer{
		Id: b.Id, PriorLogits: wire.Of(out.Logits, n, spec.NumActions), Value: wire.Vector(out.Value),
	}}
	return nil
}
