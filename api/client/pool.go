package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
)

// Pool is a pool of environments on a server. Its lease is renewed until Close. Safe for concurrent use as far as
// package pool's is.
type Pool struct {
	c         *Client
	id        string
	env       *envs.Env
	batchSize int

	stop  chan struct{}
	done  sync.WaitGroup
	close func() error
}

// Open opens a pool. Of the settings NumThreads, Dispatch and CPUs are the server's.
func (c *Client) Open(ctx context.Context, env Env, cfg pool.Config) (*Pool, error) {
	m, err := c.envs.Open(ctx, &pb.OpenRequest{
		Env: env.ref(), NumEnvs: int32(cfg.NumEnvs), BatchSize: int32(cfg.BatchSize), Seeds: cfg.Seeds,
		Autoreset: string(cfg.Autoreset), MaxStates: int64(cfg.MaxStates), MaxBytes: cfg.MaxBytes, Record: cfg.Record,
	})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	p := &Pool{c: c, id: m.Pool, batchSize: int(m.BatchSize), stop: make(chan struct{})}
	// The environment is made here as well, for the arrays of its specification.
	if p.env, err = wire.Env(m.Spec.Id, m.Spec.GivenKeywords); err != nil {
		_, _ = c.envs.Close(ctx, &pb.PoolRef{Pool: m.Pool})
		return nil, err
	}
	p.close = sync.OnceValue(func() error {
		close(p.stop)
		p.done.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := c.envs.Close(ctx, &pb.PoolRef{Pool: p.id})
		return wire.FromStatus(err)
	})
	p.done.Go(func() { p.renew(time.Duration(m.LeaseMs) * time.Millisecond / 3) })
	return p, nil
}

// renew keeps the lease, until Close.
func (p *Pool) renew(every time.Duration) {
	tick := time.NewTicker(max(every, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(context.Background(), every)
			_, _ = p.c.envs.Renew(ctx, &pb.PoolRef{Pool: p.id}) // a lease that is lost shows at the next call
			cancel()
		}
	}
}

// Close frees the pool on the server. A second call does nothing.
func (p *Pool) Close() error { return p.close() }

// Env returns the environment.
func (p *Pool) Env() *envs.Env { return p.env }

func vector[T wire.Element](x []T) *pb.Tensor {
	if x == nil {
		return nil
	}
	return wire.Vector(x)
}

// Reset starts episodes in environments (nil: all) and writes their observations; see pool.Pool.
func (p *Pool) Reset(ctx context.Context, ids []int32, seeds []uint64, b *pool.Batch) (int, error) {
	m, err := p.c.envs.Reset(ctx, &pb.ResetRequest{Pool: p.id, EnvId: vector(ids), Seeds: vector(seeds)})
	if err != nil {
		return 0, wire.FromStatus(err)
	}
	return p.read(m, b)
}

// Step gives an action to each environment (ids nil: 0, 1, ...) and writes results; see pool.Pool.
func (p *Pool) Step(ctx context.Context, actions, ids []int32, b *pool.Batch) (int, error) {
	m, err := p.c.envs.Step(ctx, &pb.SendRequest{Pool: p.id, Actions: wire.Vector(actions), EnvId: vector(ids)})
	if err != nil {
		return 0, wire.FromStatus(err)
	}
	return p.read(m, b)
}

// read writes results to b, whose nil arrays aren't written.
func (p *Pool) read(m *pb.RecvResponse, b *pool.Batch) (n int, err error) {
	spec := p.env.Spec()
	n = int(m.GetEnvId().GetShape()[0])
	for _, err := range []error{
		copyTo(b.EnvID, m.EnvId), copyTo(b.Mask, m.ActionMask), copyTo(b.Reward, m.Reward), copyTo(b.Rewards, m.Rewards),
		copyTo(b.Terminated, m.Terminated), copyTo(b.Truncated, m.Truncated), copyTo(b.ToPlay, m.ToPlay),
		copyTo(b.Elapsed, m.ElapsedStep), copyTo(b.Failed, m.Failed), copyArrays(spec.Obs, b.Obs, m.Obs),
		copyArrays(spec.Info, b.Info, m.Info), copyArrays(spec.Obs, b.Final, m.FinalObs),
		copyArrays(spec.Info, b.FinalInfo, m.FinalInfo),
	} {
		if err != nil {
			return 0, err
		}
	}
	b.Done = 0
	if len(m.FinalObs) > 0 {
		b.Done = int(m.FinalObs[0].Shape[0])
	}
	if m.Error != nil {
		return n, wire.FromMessage(m.Error)
	}
	return n, nil
}

// copyTo copies a tensor of any shape.
func copyTo[T wire.Element](dst []T, t *pb.Tensor) error {
	if dst == nil || t == nil {
		return nil
	}
	flat := &pb.Tensor{Dtype: t.Dtype, Shape: []int64{int64(len(t.Data)) / int64(elementSize[T]())}, Data: t.Data}
	x, err := wire.Read[T]("answer", flat, wire.Any)
	if err == nil && len(x) > len(dst) {
		err = fmt.Errorf("client: %d elements; want room for as many, there is for %d", len(x), len(dst))
	}
	copy(dst, x)
	return err
}

func copyArrays(specs []envs.ArraySpec, dst []envs.Array, tensors []*pb.Tensor) error {
	if dst == nil || len(tensors) == 0 {
		return nil
	}
	arrays, n, err := wire.ReadArrays("answer", specs, tensors)
	if err != nil {
		return err
	}
	for k := range arrays {
		if dst[k].Rows() < n {
			return fmt.Errorf("client: %d rows; want room for as many, there is for %d", n, dst[k].Rows())
		}
		dst[k].CopyRows(0, &arrays[k], 0, n)
	}
	return nil
}

// Snapshot keeps the present states of environments (nil: all); see pool.Pool.
func (p *Pool) Snapshot(ctx context.Context, ids []int32) ([]int32, error) {
	m, err := p.c.envs.Snapshot(ctx, &pb.EnvIds{Pool: p.id, EnvId: vector(ids)})
	return handles(m, err)
}

func handles(m *pb.StateIds, err error) ([]int32, error) {
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	return wire.Rows[int32]("state_id", m.StateId)
}

// Restore puts states into environments.
func (p *Pool) Restore(ctx context.Context, ids, states []int32) error {
	_, err := p.c.envs.Restore(ctx, &pb.RestoreRequest{Pool: p.id, EnvId: wire.Vector(ids),
		StateId: wire.Vector(states)})
	return wire.FromStatus(err)
}

// Simulate forks states; see statestore.Store.
func (p *Pool) Simulate(ctx context.Context, states, actions []int32, out *statestore.Steps) error {
	m, err := p.c.envs.SimulateBatch(ctx, &pb.SimulateBatchRequest{
		Pool: p.id, StateId: wire.Vector(states), Actions: wire.Vector(actions),
	})
	if err != nil {
		return wire.FromStatus(err)
	}
	spec, v := p.env.Spec(), m.View
	for _, err := range []error{
		copyTo(out.Children, m.StateId), copyTo(out.Reward, m.Reward), copyTo(out.Rewards, m.Rewards),
		copyTo(out.Terminated, m.Terminated), copyTo(out.Truncated, m.Truncated), copyTo(out.Mask, v.ActionMask),
		copyTo(out.ToPlay, v.ToPlay), copyArrays(spec.Obs, out.Obs, v.Obs), copyArrays(spec.Info, out.Info, v.Info),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Release releases states.
func (p *Pool) Release(ctx context.Context, states []int32) error {
	_, err := p.c.envs.Release(ctx, &pb.StateIds{Pool: p.id, StateId: wire.Vector(states)})
	return wire.FromStatus(err)
}

// Dump returns states as bytes.
func (p *Pool) Dump(ctx context.Context, states []int32) ([][]byte, error) {
	m, err := p.c.envs.Dump(ctx, &pb.StateIds{Pool: p.id, StateId: wire.Vector(states)})
	return m.GetStates(), wire.FromStatus(err)
}

// Load makes states of bytes.
func (p *Pool) Load(ctx context.Context, blobs [][]byte) ([]int32, error) {
	m, err := p.c.envs.Load(ctx, &pb.LoadRequest{Pool: p.id, States: blobs})
	return handles(m, err)
}
