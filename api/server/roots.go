package server

import (
	"fmt"
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
func (s *Server) roots(client *identity, req rootsRequest) (*roots, error) {
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
		r.states, err = play(b.store, req.GetMoves().Games)
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

// play makes the states that moves lead to, all games a move at a time.
func play(store *statestore.Store, games []*pb.Game) (states []int32, err error) {
	states = make([]int32, len(games))
	seeds := make([]uint64, len(games))
	longest := 0
	for i, g := range games {
		seeds[i] = g.Seed
		longest = max(longest, len(g.Actions))
	}
	if err := store.Reset(nil, seeds, states); err != nil {
		return nil, wire.At("moves.games", err)
	}
	for ply := range longest {
		var rows []int
		var parents, actions []int32
		for i, g := range games {
			if ply < len(g.Actions) {
				rows, parents, actions = append(rows, i), append(parents, states[i]), append(actions, g.Actions[ply])
			}
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
	return states, nil
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
