package server

import (
	"context"
	"errors"
	"math"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/pool"
)

// AsyncReset starts episodes.
func (s *envService) AsyncReset(ctx context.Context, req *pb.ResetRequest) (*pb.SendResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.SendResponse, error) {
		return &pb.SendResponse{}, p.startEpisodes(req)
	})
}

// Send gives actions to environments.
func (s *envService) Send(ctx context.Context, req *pb.SendRequest) (*pb.SendResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.SendResponse, error) {
		return &pb.SendResponse{}, p.sendActions(req)
	})
}

// Recv waits for results.
func (s *envService) Recv(ctx context.Context, req *pb.RecvRequest) (*pb.RecvResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.RecvResponse, error) {
		return p.receive(ctx, req.Timeout)
	})
}

// Reset starts episodes and waits for their observations.
func (s *envService) Reset(ctx context.Context, req *pb.ResetRequest) (*pb.RecvResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.RecvResponse, error) {
		if err := p.startEpisodes(req); err != nil {
			return nil, err
		}
		return p.receive(ctx, nil)
	})
}

// Step gives actions to environments and waits for results.
func (s *envService) Step(ctx context.Context, req *pb.SendRequest) (*pb.RecvResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.RecvResponse, error) {
		if err := p.sendActions(req); err != nil {
			return nil, err
		}
		return p.receive(ctx, nil)
	})
}

func (p *openPool) startEpisodes(req *pb.ResetRequest) error {
	ids, err := wire.Read[int32]("env_id", req.EnvId, wire.Any)
	if err != nil {
		return err
	}
	n := p.Config().NumEnvs
	if req.EnvId != nil {
		n = len(ids)
	}
	seeds, err := wire.Read[uint64]("seeds", req.Seeds, n)
	if err != nil {
		return err
	}
	seeded, err := wire.Read[bool]("seeded", req.Seeded, n)
	if err != nil {
		return err
	}
	return p.AsyncReset(ids, seeds, seeded)
}

func (p *openPool) sendActions(req *pb.SendRequest) error {
	actions, err := wire.Rows[int32]("actions", req.Actions)
	if err != nil {
		return err
	}
	ids, err := wire.Read[int32]("env_id", req.EnvId, wire.Any)
	if err != nil {
		return err
	}
	if req.EnvId != nil {
		err = sameLength("actions", len(actions), "env_id", len(ids))
	} else {
		err = sameLength("actions", len(actions), "num_envs", p.Config().NumEnvs)
	}
	if err != nil {
		return err
	}
	return p.Send(actions, ids)
}

// lookAround is how long a wait for results goes on before it looks whether the caller is still there.
const lookAround = 50 * time.Millisecond

// receive waits for results, for seconds or as long as the caller does. What comes after that is for a later call.
func (p *openPool) receive(ctx context.Context, seconds *float64) (*pb.RecvResponse, error) {
	deadline := time.Time{}
	if seconds != nil {
		if !(*seconds >= 0) || math.IsInf(*seconds, 0) {
			return nil, wire.Bad("timeout", "is %v; want 0 or more seconds, or none", *seconds)
		}
		deadline = time.Now().Add(time.Duration(min(*seconds, 1e9) * float64(time.Second)))
	}
	if p.Pending() == 0 { // before memory is made for nothing
		return nil, pool.ErrNothing
	}
	b := p.newBatch()
	for {
		wait := lookAround
		switch {
		case p.Quick():
			wait = -1
		case seconds != nil:
			wait = max(0, min(wait, time.Until(deadline)))
		}
		n, err := p.Recv(wait, b)
		if n > 0 {
			return p.recvMessage(b, n, err), nil
		}
		switch {
		case !errors.Is(err, pool.ErrTimeout):
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case seconds != nil && !time.Now().Before(deadline):
			return nil, err
		}
	}
}

// newBatch is memory for what a Recv brings.
func (p *openPool) newBatch() *pool.Batch {
	c, spec := p.Config(), p.Env().Spec()
	n := c.BatchSize
	b := &pool.Batch{
		EnvID: make([]int32, n), Obs: envs.NewArrays(spec.Obs, n), Info: envs.NewArrays(spec.Info, n),
		Reward: make([]float32, n), Terminated: make([]bool, n), Truncated: make([]bool, n), Failed: make([]bool, n),
		ToPlay: make([]int32, n), Elapsed: make([]int32, n),
	}
	if wire.Masks(p.Env()) {
		b.Mask = make([]bool, n*spec.NumActions)
	}
	if spec.NumPlayers > 1 {
		b.Rewards = make([]float32, n*spec.NumPlayers)
	}
	if c.Autoreset == pool.SameStep || c.Autoreset == "" {
		b.Final, b.FinalInfo = envs.NewArrays(spec.Obs, n), envs.NewArrays(spec.Info, n)
	}
	return b
}

// recvMessage is n rows as a message; err is what environments failed with.
func (p *openPool) recvMessage(b *pool.Batch, n int, err error) *pb.RecvResponse {
	spec := p.Env().Spec()
	m := &pb.RecvResponse{
		Obs: wire.Arrays(spec.Obs, b.Obs, n), Reward: wire.Vector(b.Reward[:n]), EnvId: wire.Vector(b.EnvID[:n]),
		Terminated: wire.Vector(b.Terminated[:n]), Truncated: wire.Vector(b.Truncated[:n]),
		ToPlay:      wire.Vector(b.ToPlay[:n]),
		ElapsedStep: wire.Vector(b.Elapsed[:n]), Info: wire.Arrays(spec.Info, b.Info, n),
	}
	if b.Mask != nil {
		m.ActionMask = wire.Of(b.Mask[:n*spec.NumActions], n, spec.NumActions)
	}
	if b.Rewards != nil {
		m.Rewards = wire.Of(b.Rewards[:n*spec.NumPlayers], n, spec.NumPlayers)
	}
	if b.Done > 0 && b.Final != nil {
		m.FinalObs, m.FinalInfo = wire.Arrays(spec.Obs, b.Final, b.Done), wire.Arrays(spec.Info, b.FinalInfo, b.Done)
	}
	if err != nil {
		m.Failed, m.Error = wire.Vector(b.Failed[:n]), wire.Message(err)
	}
	return m
}

// Stream answers steps and forks of a stream, in their order.
func (s *envService) Stream(stream pb.Envs_StreamServer) error {
	return serveRequests(s.Server, stream, 0, nil, func(req *pb.StreamRequest) error {
		return stream.Send(s.streamAnswer(stream.Context(), req))
	})
}

// streamAnswer does what one request of a stream asks.
func (s *envService) streamAnswer(ctx context.Context, req *pb.StreamRequest) (out *pb.StreamResponse) {
	s.work.Add(1)
	defer s.work.Add(-1)
	err := safe.Call(func() error {
		recv := func(m *pb.RecvResponse, err error) error {
			out = &pb.StreamResponse{Answer: &pb.StreamResponse_Recv{Recv: m}}
			return err
		}
		switch call := req.Call.(type) {
		case *pb.StreamRequest_Step:
			return recv(s.Step(ctx, call.Step))
		case *pb.StreamRequest_Reset_:
			return recv(s.Reset(ctx, call.Reset_))
		case *pb.StreamRequest_Recv:
			return recv(s.Recv(ctx, call.Recv))
		case *pb.StreamRequest_Send:
			m, err := s.Send(ctx, call.Send)
			out = &pb.StreamResponse{Answer: &pb.StreamResponse_Send{Send: m}}
			return err
		case *pb.StreamRequest_SimulateBatch:
			m, err := s.SimulateBatch(ctx, call.SimulateBatch)
			out = &pb.StreamResponse{Answer: &pb.StreamResponse_SimulateBatch{SimulateBatch: m}}
			return err
		}
		return wire.Bad("call", "isn't set; want one of a stream's calls")
	})
	if err != nil {
		return &pb.StreamResponse{Answer: &pb.StreamResponse_Error{Error: wire.Message(err)}}
	}
	return out
}
