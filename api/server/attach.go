package server

import (
	"errors"
	"fmt"
	"io"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator/remote"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// evaluatorConn sends batches over a stream.
type evaluatorConn struct{ stream pb.Models_AttachServer }

// Send sends a batch. The message shares the batch's memory, which gRPC has read when this returns.
func (c *evaluatorConn) Send(r *remote.Request) error {
	b, spec := r.Batch, r.Batch.Spec
	m := &pb.EvaluationBatch{
		Id: r.ID, Version: r.Version, Env: spec.ID, NumActions: int32(spec.NumActions),
		Keywords: wire.Keywords(r.Env.Keywords()),
		Obs:      wire.Arrays(spec.Obs, b.Obs, b.N),
	}
	if b.Legal != nil && wire.Masks(r.Env) {
		m.ActionMask = wire.Of(b.Legal[:b.N*spec.NumActions], b.N, spec.NumActions)
	}
	if b.Chance != nil {
		m.Chance = wire.Vector(b.Chance[:b.N])
	}
	err := c.stream.Send(&pb.AttachResponse{Message: &pb.AttachResponse_Batch{Batch: m}})
	if status.Code(err) == codes.ResourceExhausted { // the batch's fault, not the evaluator's
		return fmt.Errorf("%w: %w", remote.ErrFailed, err)
	}
	return err
}

// Cancel says that nobody waits for a batch any more.
func (c *evaluatorConn) Cancel(id uint64) error {
	return c.stream.Send(&pb.AttachResponse{Message: &pb.AttachResponse_Cancel{Cancel: &pb.CancelBatch{Id: id}}})
}

// Attach makes the caller an evaluator.
func (s *modelService) Attach(stream pb.Models_AttachServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return wire.Bad("hello", "isn't set; want it first")
	}
	introduced := remote.Hello{
		Name: hello.Name, MaxBatch: int(hello.MaxBatch), InFlight: int(hello.InFlight),
		Versions: hello.Weights.GetVersions(),
	}
	if err := introduced.Validate(); err != nil {
		return wire.At("hello", err)
	}
	hub, err := s.registry.attached(hello.Model)
	if err != nil {
		return err
	}
	name := hello.Name
	if p, ok := peer.FromContext(stream.Context()); name == "" && ok {
		name = fmt.Sprintf("%s (%s)", identityOf(stream.Context()).name, p.Addr)
	}
	welcome := &pb.Welcome{Name: name, TimeoutMs: hub.Timeout().Milliseconds()}
	err = stream.Send(&pb.AttachResponse{Message: &pb.AttachResponse_Welcome{Welcome: welcome}})
	if err != nil {
		return err
	}
	introduced.Name = name
	worker, err := hub.Attach(&evaluatorConn{stream}, introduced)
	if err != nil {
		return wire.At("hello", err)
	}
	s.cfg.Log.Info("evaluator attached", "model", hello.Model, "evaluator", name, "max_batch", hello.MaxBatch)
	s.health()
	failed := make(chan error, 1)
	go func() { failed <- listen(stream, worker) }() // ends with the stream, which ends when this function returns
	select {
	case err = <-failed:
		worker.Detach(nil)
	case <-worker.Gone():
		err = worker.Err()
		switch {
		case errors.Is(err, remote.ErrSlow):
			err = wire.New(errcode.Unavailable, "%s", err)
		case errors.Is(err, remote.ErrCutOff):
			err = wire.New(errcode.Evaluator, "%s", err)
		}
	}
	s.cfg.Log.Info("evaluator left", "model", hello.Model, "evaluator", name, "why", worker.Err())
	s.health()
	return err
}

// listen takes what an evaluator says, until its stream ends.
func listen(stream pb.Models_AttachServer, worker *remote.Worker) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch m := m.Message.(type) {
		case *pb.AttachRequest_Answer:
			logits, err := wire.Read[float32]("answer.prior_logits", m.Answer.PriorLogits, wire.Any, wire.Any)
			if err != nil {
				worker.Fail(m.Answer.Id, err.Error())
				continue
			}
			values, err := wire.Read[float32]("answer.value", m.Answer.Value, wire.Any)
			if err != nil {
				worker.Fail(m.Answer.Id, err.Error())
				continue
			}
			worker.Answer(m.Answer.Id, logits, values)
		case *pb.AttachRequest_Failure:
			if m.Failure.NoWeights {
				worker.NoWeights(m.Failure.Id)
				continue
			}
			worker.Fail(m.Failure.Id, m.Failure.Message)
		case *pb.AttachRequest_Weights:
			worker.SetVersions(m.Weights.Versions)
		default:
			return wire.Bad("message", "is %T; want answer, failure or weights", m)
		}
	}
}
