package server

import (
	"context"
	"fmt"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
)

// envService is azserve.v1.Envs.
type envService struct {
	pb.UnimplementedEnvsServer
	*Server
}

// List lists the environments.
func (s *envService) List(context.Context, *pb.ListEnvsRequest) (*pb.ListEnvsResponse, error) {
	return &pb.ListEnvsResponse{Ids: s.benches.ids()}, nil
}

// Describe describes an environment.
func (s *envService) Describe(_ context.Context, ref *pb.EnvRef) (*pb.EnvSpec, error) {
	env, err := s.benches.make(ref)
	if err != nil {
		return nil, err
	}
	return wire.Spec(env), nil
}

// Open opens a pool.
func (s *envService) Open(ctx context.Context, req *pb.OpenRequest) (*pb.OpenResponse, error) {
	env, err := s.benches.make(req.Env)
	if err != nil {
		return nil, err
	}
	n := int(req.NumEnvs)
	if n < 1 || n > s.cfg.MaxEnvs {
		return nil, wire.Bad("num_envs", "is %d; want 1 to %d", n, s.cfg.MaxEnvs)
	}
	if err := s.fits("num_envs", n, 2*rowBytes(env)); err != nil { // with the last observation of episodes
		return nil, err
	}
	maxStates, err := bound("max_states", req.MaxStates, int64(s.cfg.MaxStates))
	if err != nil {
		return nil, err
	}
	maxBytes, err := bound("max_bytes", req.MaxBytes, s.cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	x, err := s.pools.open(identityOf(ctx), env, pool.Config{
		NumEnvs: n, BatchSize: int(req.BatchSize), Seeds: req.Seeds, NumThreads: s.cfg.Threads,
		Autoreset: pool.Autoreset(req.Autoreset), MaxStates: int(maxStates), MaxBytes: maxBytes, Record: req.Record,
	})
	if err != nil {
		return nil, err
	}
	return &pb.OpenResponse{
		Pool: x.id, Spec: wire.Spec(env), BatchSize: int32(x.Config().BatchSize), NumThreads: int32(x.NumThreads()),
		LeaseMs: s.cfg.Lease.Milliseconds(),
	}, nil
}

// bound returns what a caller asks for, the most if he doesn't say.
func bound(name string, asked, most int64) (int64, error) {
	if asked < 0 || asked > most {
		return 0, wire.Bad(name, "is %d; this server allows 1 to %d, and 0 for that", asked, most)
	}
	if asked == 0 {
		return most, nil
	}
	return asked, nil
}

// Close closes a pool.
func (s *envService) Close(ctx context.Context, req *pb.PoolRef) (*pb.CloseResponse, error) {
	return &pb.CloseResponse{}, s.pools.close(identityOf(ctx), req.Pool)
}

// Renew begins a pool's lease anew.
func (s *envService) Renew(ctx context.Context, req *pb.PoolRef) (*pb.RenewResponse, error) {
	_, release, err := s.pools.use(identityOf(ctx), req.Pool)
	if err != nil {
		return nil, err
	}
	release()
	return &pb.RenewResponse{LeaseMs: s.cfg.Lease.Milliseconds()}, nil
}

// Stats counts what a pool has.
func (s *envService) Stats(ctx context.Context, req *pb.PoolRef) (*pb.PoolStats, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.PoolStats, error) {
		st, t := p.Store().Stats(), p.Timing()
		p50, p99 := make([]float64, len(t.P50)), make([]float64, len(t.P99))
		for i := range p50 {
			p50[i], p99[i] = t.P50[i].Seconds(), t.P99[i].Seconds()
		}
		return &pb.PoolStats{
			LiveStates: int64(st.Live), States: int64(st.States), ReservedStates: int64(st.Reserved),
			Searches:   int64(st.Blocks),
			PeakStates: int64(st.Peak), MaxStates: int64(st.Limit), Bytes: st.Bytes, Pending: int64(p.Pending()),
			StepTimeP50: wire.Vector(p50), StepTimeP99: wire.Vector(p99), Stragglers: wire.Vector(t.Stragglers),
		}, nil
	})
}

// onPool calls f with a pool of the caller.
func onPool[T any](ctx context.Context, s *Server, id string, f func(p *openPool) (T, error)) (out T, err error) {
	p, release, err := s.pools.use(identityOf(ctx), id)
	if err != nil {
		return out, err
	}
	defer release()
	return f(p)
}

// ids returns the environments of a request, all if it doesn't say.
func (p *openPool) ids(path string, t *pb.Tensor) ([]int32, error) {
	if t != nil {
		return wire.Read[int32](path, t, wire.Any)
	}
	out := make([]int32, p.Config().NumEnvs)
	for i := range out {
		out[i] = int32(i)
	}
	return out, nil
}

// sameLength checks that two fields have an entry for each row.
func sameLength(a string, x int, b string, y int) error {
	if x != y {
		return wire.Bad(a, "has %d entries, %s %d; want as many", x, b, y)
	}
	return nil
}

// Snapshot keeps the present states of environments.
func (s *envService) Snapshot(ctx context.Context, req *pb.EnvIds) (*pb.StateIds, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.StateIds, error) {
		ids, err := p.ids("env_id", req.EnvId)
		if err != nil {
			return nil, err
		}
		return newStates(p, len(ids), func(out []int32) error { return wire.At("env_id", p.Snapshot(ids, out)) })
	})
}

// newStates returns the handles that fill writes.
func newStates(p *openPool, n int, fill func(out []int32) error) (*pb.StateIds, error) {
	out := make([]int32, n)
	if err := fill(out); err != nil {
		return nil, err
	}
	return &pb.StateIds{Pool: p.id, StateId: wire.Vector(out)}, nil
}

// Restore puts states into environments.
func (s *envService) Restore(ctx context.Context, req *pb.RestoreRequest) (*pb.RestoreResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.RestoreResponse, error) {
		ids, err := wire.Rows[int32]("env_id", req.EnvId)
		if err != nil {
			return nil, err
		}
		states, err := wire.Rows[int32]("state_id", req.StateId)
		if err != nil {
			return nil, err
		}
		if err := sameLength("env_id", len(ids), "state_id", len(states)); err != nil {
			return nil, err
		}
		return &pb.RestoreResponse{}, p.Restore(ids, states)
	})
}

// SimulateBatch forks states.
func (s *envService) SimulateBatch(
	ctx context.Context, req *pb.SimulateBatchRequest,
) (*pb.SimulateBatchResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.SimulateBatchResponse, error) {
		states, err := wire.Rows[int32]("state_id", req.StateId)
		if err != nil {
			return nil, err
		}
		actions, err := wire.Rows[int32]("actions", req.Actions)
		if err != nil {
			return nil, err
		}
		if err := sameLength("state_id", len(states), "actions", len(actions)); err != nil {
			return nil, err
		}
		if err := s.fits("state_id", len(states), rowBytes(p.Env())); err != nil {
			return nil, err
		}
		return p.simulate(states, actions)
	})
}

func (p *openPool) simulate(states, actions []int32) (*pb.SimulateBatchResponse, error) {
	n, spec := len(states), p.Env().Spec()
	out := statestore.Steps{
		Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n), Truncated: make([]bool, n),
		View: newView(p.Env(), n),
	}
	if spec.NumPlayers > 1 {
		out.Rewards = make([]float32, n*spec.NumPlayers)
	}
	if err := p.Store().Simulate(states, actions, &out); err != nil {
		return nil, err
	}
	m := &pb.SimulateBatchResponse{
		StateId: wire.Vector(out.Children), View: viewMessage(p.Env(), &out.View, n), Reward: wire.Vector(out.Reward),
		Terminated: wire.Vector(out.Terminated), Truncated: wire.Vector(out.Truncated),
	}
	if out.Rewards != nil {
		m.Rewards = wire.Of(out.Rewards, n, spec.NumPlayers)
	}
	return m, nil
}

// newView is memory for what n states look like.
func newView(env *envs.Env, n int) statestore.View {
	spec := env.Spec()
	v := statestore.View{Obs: envs.NewArrays(spec.Obs, n), ToPlay: make([]int32, n), Info: envs.NewArrays(spec.Info, n)}
	if wire.Masks(env) {
		v.Mask = make([]bool, n*spec.NumActions)
	}
	return v
}

func viewMessage(env *envs.Env, v *statestore.View, n int) *pb.View {
	spec := env.Spec()
	m := &pb.View{
		Obs: wire.Arrays(spec.Obs, v.Obs, n), ToPlay: wire.Vector(v.ToPlay), Info: wire.Arrays(spec.Info, v.Info, n),
	}
	if v.Mask != nil {
		m.ActionMask = wire.Of(v.Mask, n, spec.NumActions)
	}
	return m
}

// onStates calls f with a pool and states of it.
func onStates[T any](
	ctx context.Context, s *Server, req *pb.StateIds, f func(p *openPool, states []int32) (T, error),
) (T, error) {
	return onPool(ctx, s, req.Pool, func(p *openPool) (out T, err error) {
		states, err := wire.Rows[int32]("state_id", req.StateId)
		if err != nil {
			return out, err
		}
		out, err = f(p, states)
		return out, wire.At("state_id", err)
	})
}

// Release releases states.
func (s *envService) Release(ctx context.Context, req *pb.StateIds) (*pb.ReleaseResponse, error) {
	return onStates(ctx, s.Server, req, func(p *openPool, states []int32) (*pb.ReleaseResponse, error) {
		return &pb.ReleaseResponse{}, p.Store().Release(states)
	})
}

// Dump returns states as bytes.
func (s *envService) Dump(ctx context.Context, req *pb.StateIds) (*pb.StateBytes, error) {
	return onStates(ctx, s.Server, req, func(p *openPool, states []int32) (*pb.StateBytes, error) {
		out, total := &pb.StateBytes{}, 0
		for lo := 0; lo < len(states); lo += dumpedAtOnce {
			blobs, err := p.Store().Dump(states[lo:min(lo+dumpedAtOnce, len(states))])
			if err != nil {
				return nil, err
			}
			for _, b := range blobs {
				total += len(b) + 8
			}
			if out.States = append(out.States, blobs...); total > s.cfg.MaxMessage {
				return nil, tooLarge("state_id", len(states), int64(len(out.States)))
			}
		}
		return out, nil
	})
}

// dumpedAtOnce is how many states are made bytes of before it is looked how many there are.
const dumpedAtOnce = 64

// Load makes states of bytes.
func (s *envService) Load(ctx context.Context, req *pb.LoadRequest) (*pb.StateIds, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.StateIds, error) {
		return newStates(p, len(req.States), func(out []int32) error {
			return wire.At("states", p.Store().Load(req.States, out))
		})
	})
}

// Hash returns a key of each state.
func (s *envService) Hash(ctx context.Context, req *pb.StateIds) (*pb.HashResponse, error) {
	return onStates(ctx, s.Server, req, func(p *openPool, states []int32) (*pb.HashResponse, error) {
		keys := make([]uint64, len(states))
		err := p.Store().Hash(states, keys)
		return &pb.HashResponse{Keys: wire.Vector(keys)}, err
	})
}

// Text draws states as text.
func (s *envService) Text(ctx context.Context, req *pb.StateIds) (*pb.TextResponse, error) {
	return onStates(ctx, s.Server, req, func(p *openPool, states []int32) (*pb.TextResponse, error) {
		out, total := &pb.TextResponse{}, 0
		for _, h := range states {
			text, err := p.Store().Text(h)
			if err != nil {
				return nil, err
			}
			if total += len(text) + 8; total > s.cfg.MaxMessage {
				return nil, tooLarge("state_id", len(states), int64(len(out.Texts)))
			}
			out.Texts = append(out.Texts, text)
		}
		return out, nil
	})
}

// Replay makes states of earlier steps.
func (s *envService) Replay(ctx context.Context, req *pb.ReplayRequest) (*pb.StateIds, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.StateIds, error) {
		ids, err := wire.Rows[int32]("env_id", req.EnvId)
		if err != nil {
			return nil, err
		}
		steps, err := wire.Rows[int32]("step", req.Step)
		if err != nil {
			return nil, err
		}
		if err := sameLength("env_id", len(ids), "step", len(steps)); err != nil {
			return nil, err
		}
		return newStates(p, len(ids), func(out []int32) error { return p.Replay(ids, steps, out) })
	})
}

// Actions returns the actions of present episodes.
func (s *envService) Actions(ctx context.Context, req *pb.EnvIds) (*pb.ActionsResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.ActionsResponse, error) {
		ids, err := p.ids("env_id", req.EnvId)
		if err != nil {
			return nil, err
		}
		out, total := &pb.ActionsResponse{}, 0
		for _, e := range ids {
			actions, err := p.Actions(e)
			if err != nil {
				return nil, wire.At("env_id", err)
			}
			if total += 4*len(actions) + 32; total > s.cfg.MaxMessage {
				return nil, tooLarge("env_id", len(ids), int64(len(out.Actions)))
			}
			out.Actions = append(out.Actions, wire.Vector(actions))
		}
		return out, nil
	})
}

// onRows calls f with states: those given, or the present ones of environments, n of them.
func (p *openPool) onRows(r *pb.Rows, f func(n int) func(states []int32) error) error {
	if r == nil || (r.EnvId == nil) == (r.StateId == nil) {
		return wire.Bad("rows", "names environments and states, or neither; want one of them")
	}
	ids, err := wire.Read[int32]("env_id", r.EnvId, wire.Any)
	if err != nil {
		return err
	}
	states, err := wire.Read[int32]("state_id", r.StateId, wire.Any)
	if err != nil {
		return err
	}
	return p.Read(ids, states, f(max(len(ids), len(states))))
}

// Observe looks at environments or states.
func (s *envService) Observe(ctx context.Context, req *pb.Rows) (*pb.ViewResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.ViewResponse, error) {
		var n int
		var v statestore.View
		err := p.onRows(req, func(rows int) func([]int32) error {
			if bad := s.fits("rows", rows, rowBytes(p.Env())); bad != nil {
				return func([]int32) error { return bad }
			}
			n, v = rows, newView(p.Env(), rows)
			return func(states []int32) error { return p.Store().Read(states, v) }
		})
		if err != nil {
			return nil, err
		}
		return &pb.ViewResponse{View: viewMessage(p.Env(), &v, n)}, nil
	})
}

// Render draws environments or states.
func (s *envService) Render(ctx context.Context, req *pb.Rows) (*pb.RenderResponse, error) {
	return onPool(ctx, s.Server, req.Pool, func(p *openPool) (*pb.RenderResponse, error) {
		w, h := p.Store().FrameSize()
		var n int
		var frames []uint8
		var tooLarge error
		err := p.onRows(req, func(rows int) func([]int32) error {
			if n = rows; rows*w*h*3 > s.cfg.MaxMessage-1024 {
				tooLarge = wire.Bad("rows", "are %d pictures of %d x %d; a message holds %d", rows, w, h,
					s.cfg.MaxMessage/(w*h*3))
				return func([]int32) error { return tooLarge }
			}
			frames = make([]uint8, rows*w*h*3)
			return func(states []int32) error { return p.Store().Paint(states, frames) }
		})
		if err != nil {
			return nil, err
		}
		return &pb.RenderResponse{Frames: wire.Of(frames, n, h, w, 3)}, nil
	})
}

// QueryMask tells which values of the next action component are possible.
func (s *envService) QueryMask(ctx context.Context, req *pb.QueryMaskRequest) (*pb.QueryMaskResponse, error) {
	return onPool(ctx, s.Server, req.Rows.GetPool(), func(p *openPool) (*pb.QueryMaskResponse, error) {
		values, err := wire.Read[int32]("prefix", req.Prefix, wire.Any, wire.Any)
		if err != nil {
			return nil, err
		}
		lengths, err := wire.Read[int32]("prefix_len", req.PrefixLen, wire.Any)
		if err != nil {
			return nil, err
		}
		width := int(req.Width)
		if len(p.Env().Spec().Factorization.Sizes) == 0 {
			return nil, wire.At("rows", fmt.Errorf("%w: %s", envs.ErrNoFactors, p.Env().Spec().ID))
		}
		if most := p.Env().Spec().Factorization.Width(); width < 0 || width > most {
			return nil, wire.Bad("width", "is %d; want 0 to %d", width, most)
		}
		var n int
		var mask []bool
		err = p.onRows(req.Rows, func(rows int) func([]int32) error {
			n = rows
			if bad := s.fits("rows", rows, int64(width)); bad != nil {
				return func([]int32) error { return bad }
			}
			prefixes := &envs.Prefixes{Values: values, Lengths: lengths}
			if rows > 0 {
				prefixes.Stride = len(values) / rows
			}
			if len(lengths) != rows || len(values) != rows*prefixes.Stride {
				bad := wire.Bad("prefix", "has %d numbers and %d lengths for %d rows; want as many a row", len(values),
					len(lengths), rows)
				return func([]int32) error { return bad }
			}
			mask = make([]bool, rows*width)
			return func(states []int32) error { return p.Store().ConditionalMask(states, prefixes, mask, width) }
		})
		if err != nil {
			return nil, fmt.Errorf("query_mask: %w", err)
		}
		return &pb.QueryMaskResponse{Mask: wire.Of(mask, n, width)}, nil
	})
}
