package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/statestore"
)

// roots are the states that a call is about.
type roots struct {
	env     *envs.Env
	store   *statestore.Store
	workers dispatch.Runner
	states  []int32
	release func()
}

// rootsRequest is a request that names states: by their bytes, by handles of a pool, or by the moves to them.
type rootsRequest interface {
	GetEnv() *pb.EnvRef
	GetStates() *pb.StateBytes
	GetPoolStates() *pb.PoolStates
	GetMoves() *pb.Games
}

// roots finds the states of a request.
func (s *Server) roots(ctx context.Context, client *identity, req rootsRequest) (*roots, error) {
	if p := req.GetPoolStates(); p != nil {
		if req.GetEnv() != nil {
			return nil, wire.Bad("env", "is set; want none, since pool_states says it")
		}
		return s.poolRoots(client, p)
	}
	count := len(req.GetStates().GetStates()) + len(req.GetMoves().GetGames())
	if req.GetStates() == nil && req.GetMoves() == nil {
		return nil, wire.Bad("states", "isn't set; want states, pool_states or moves")
	}
	if count > s.cfg.MaxNodes {
		return nil, wire.Bad("states", "has %d rows; this server takes at most %d", count, s.cfg.MaxNodes)
	}
	b, release, err := s.benches.use(req.GetEnv())
	if err != nil {
		return nil, err
	}
	r := &roots{env: b.env, store: b.store, workers: s.workers}
	if m := req.GetStates(); m != nil {
		r.states = make([]int32, len(m.States))
		err = wire.At("states.states", b.store.Load(m.States, r.states))
	} else {
		r.states, err = play(ctx, b.store, req.GetMoves().Games, s.cfg.MaxNodes)
	}
	if err != nil {
		release()
		return nil, err
	}
	r.release = sync.OnceFunc(func() {
		_ = b.store.Release(r.states) // they are ours, so it can't fail
		release()
	})
	return r, nil
}

func (s *Server) poolRoots(client *identity, p *pb.PoolStates) (*roots, error) {
	x, release, err := s.pools.use(client, p.Pool)
	if err != nil {
		return nil, wire.At("pool_states.pool", err)
	}
	states, err := wire.Rows[int32]("pool_states.state_id", p.StateId)
	if err == nil {
		err = wire.At("pool_states.state_id", x.Store().Retain(states)) // they stay if the client releases them meanwhile
	}
	if err != nil {
		release()
		return nil, err
	}
	return &roots{
		env: x.Env(), store: x.Store(), workers: x.Workers(), states: states,
		release: sync.OnceFunc(func() {
			_ = x.Store().Release(states)
			release()
		}),
	}, nil
}

// play makes the states that moves lead to, all games a move at a time; most is how many moves there may be in all.
func play(ctx context.Context, store *statestore.Store, games []*pb.Game, most int) (states []int32, err error) {
	states = make([]int32, len(games))
	seeds := make([]uint64, len(games))
	moves, rest := 0, make([]int, 0, len(games)) // rest: the games that have moves left
	for i, g := range games {
		seeds[i] = g.Seed
		moves += len(g.Actions)
		rest = append(rest, i)
	}
	if moves > most {
		return nil, wire.Bad("moves.games", "have %d moves; this server takes at most %d", moves, most)
	}
	if err := store.Reset(nil, seeds, states); err != nil {
		return nil, wire.At("moves.games", err)
	}
	for ply := 0; ; ply++ {
		rest = slices.DeleteFunc(rest, func(i int) bool { return ply >= len(games[i].Actions) })
		if len(rest) == 0 {
			return states, nil
		}
		rows := rest
		var parents, actions []int32
		for _, i := range rows {
			parents, actions = append(parents, states[i]), append(actions, games[i].Actions[ply])
		}
		if err := ctx.Err(); err != nil {
			_ = store.Release(states)
			return nil, err
		}
		out := statestore.Steps{Children: make([]int32, len(rows))}
		if err := store.Simulate(parents, actions, &out); err != nil {
			_ = store.Release(states)
			return nil, moveError(err, ply, rows)
		}
		_ = store.Release(parents)
		for k, i := range rows {
			states[i] = out.Children[k]
		}
	}
}

// moveError says which game's move it was.
func moveError(err error, ply int, rows []int) error {
	e := *wire.From(err)
	if row := fault.RowOf(err); row >= 0 && row < len(rows) {
		e.Row = rows[row]
		e.Path = fmt.Sprintf("moves.games[%d].actions[%d]", rows[row], ply)
	}
	return &e
}
