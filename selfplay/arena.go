package selfplay

import (
	"context"
	"fmt"

	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/statestore"
)

// MatchConfig is the settings of a match.
type MatchConfig struct {
	Games        int    // rounded up to pairs
	OpeningPlies int    // random legal moves before the players take over: 0 to this many, by pair
	Seed         uint64 // of openings and random choices
}

// match is games that are played side by side. Game 2k and 2k+1 start from the same opening, with
// sides swapped.
type match struct {
	store   *statestore.Store
	players [2]Player
	cfg     MatchConfig
	games   []game
}

type game struct {
	state int32
	first int // which of the players is player 0
	over  bool
	score float64 // of players[0]
	moves []byte
	ply   uint64
}

// Arena plays a match of two players and returns the score of a. The environment must have two
// players whose rewards sum to 0.
func Arena(ctx context.Context, store *statestore.Store, a, b Player, cfg MatchConfig) (*Score, error) {
	if n := store.Env().Spec().NumPlayers; n != 2 {
		return nil, fmt.Errorf("selfplay: arena: %s has %d players; want 2", store.Env().Spec().ID, n)
	}
	if cfg.Games < 1 {
		return nil, ErrNoGames
	}
	m := &match{store: store, players: [2]Player{a, b}, cfg: cfg, games: make([]game, (cfg.Games+1)/2*2)}
	defer m.release()
	if err := m.open(); err != nil {
		return nil, err
	}
	for {
		moved := false
		for p := range m.players {
			did, err := m.move(ctx, p)
			if err != nil {
				return nil, err
			}
			moved = moved || did
		}
		if !moved {
			return m.score(), nil
		}
	}
}

// open plays the openings: each pair of games gets its own, from which nobody has won yet.
func (m *match) open() error {
	handles, seeds := make([]int32, len(m.games)), make([]uint64, len(m.games))
	for i := range seeds { // both games of a pair have the same luck
		seeds[i] = rng.Derive(m.cfg.Seed, uint64(i/2), 2)
	}
	if err := m.store.Reset(nil, seeds, handles); err != nil {
		return err
	}
	for i := range m.games {
		m.games[i] = game{state: handles[i], first: i % 2, score: 0.5}
	}
	for pair := 0; pair < len(m.games); pair += 2 {
		rnd := rng.New(m.cfg.Seed, uint64(pair))
		plies := 0
		if m.cfg.OpeningPlies > 0 {
			plies = rnd.IntN(m.cfg.OpeningPlies + 1)
		}
		opening, err := randomOpening(m.store, plies, seeds[pair], rnd.Uint64())
		if err != nil {
			return err
		}
		for i := pair; i < pair+2; i++ {
			for _, action := range opening {
				if err := m.apply([]int{i}, []int32{action}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// randomOpening returns legal moves from the first state of a seed after which the game goes on: at most plies.
func randomOpening(store *statestore.Store, plies int, start, seed uint64) (moves []int32, err error) {
	at := make([]int32, 1)
	if err := store.Reset(nil, []uint64{start}, at); err != nil {
		return nil, err
	}
	defer func() { _ = store.Release(at) }()
	for i := range plies {
		next, action, err := randomMove(store, at[0], rng.Derive(seed, uint64(i)))
		if err != nil || next == at[0] {
			return moves, err
		}
		at[0] = next
		moves = append(moves, action)
	}
	return moves, nil
}

// randomMove plays a random move in a state, which is released, and returns the next state. Where the game would end
// by that move, the state stays as it is, and is returned.
func randomMove(store *statestore.Store, state int32, seed uint64) (next, action int32, err error) {
	before, mask := []int32{state}, make([]bool, store.Env().Spec().NumActions)
	if err := store.Read(before, statestore.View{Mask: mask}); err != nil {
		return state, 0, err
	}
	action = pick(mask, seed)
	out := statestore.Steps{Children: make([]int32, 1), Terminated: make([]bool, 1), Truncated: make([]bool, 1)}
	if err := store.Simulate(before, []int32{action}, &out); err != nil {
		return state, 0, err
	}
	if out.Terminated[0] || out.Truncated[0] {
		return state, action, store.Release(out.Children)
	}
	return out.Children[0], action, store.Release(before)
}

// move lets a player move in all games where it is his turn. It returns false if there is none.
func (m *match) move(ctx context.Context, p int) (bool, error) {
	var which []int
	var states []int32
	var seeds []uint64
	for i := range m.games {
		g := &m.games[i]
		if g.over {
			continue
		}
		turn, err := m.turn(g.state)
		if err != nil {
			return false, err
		}
		if (g.first+int(turn))%2 == p {
			which, states = append(which, i), append(states, g.state)
			seeds = append(seeds, rng.Derive(m.cfg.Seed, 1, uint64(i), g.ply))
		}
	}
	if len(which) == 0 {
		return false, nil
	}
	actions := make([]int32, len(which))
	if err := m.players[p].Choose(ctx, m.store, states, seeds, actions); err != nil {
		return false, fmt.Errorf("selfplay: %s: %w", m.players[p].Name(), err)
	}
	return true, m.apply(which, actions)
}

func (m *match) turn(state int32) (int32, error) {
	var turn [1]int32
	err := m.store.Read([]int32{state}, statestore.View{ToPlay: turn[:]})
	return turn[0], err
}

// apply plays an action in each of the games which.
func (m *match) apply(which []int, actions []int32) error {
	n := len(which)
	states := make([]int32, n)
	turns := make([]int32, n)
	for i, g := range which {
		states[i] = m.games[g].state
	}
	if err := m.store.Read(states, statestore.View{ToPlay: turns}); err != nil {
		return err
	}
	out := statestore.Steps{
		Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n),
		Truncated: make([]bool, n),
	}
	if err := m.store.Simulate(states, actions, &out); err != nil {
		return err
	}
	for i, k := range which {
		g := &m.games[k]
		g.state = out.Children[i]
		g.moves = fmt.Append(g.moves, actions[i], " ")
		g.ply++
		g.over = out.Terminated[i] || out.Truncated[i]
		reward := float64(out.Reward[i])
		if (g.first+int(turns[i]))%2 == 1 {
			reward = -reward
		}
		g.score += reward / 2
	}
	return m.store.Release(states)
}

func (m *match) release() {
	for i := range m.games {
		_ = m.store.Release([]int32{m.games[i].state})
	}
}

func (m *match) score() *Score {
	s := &Score{}
	seen := map[string]bool{}
	for i := range m.games {
		g := &m.games[i]
		switch {
		case g.score > 0.5:
			s.Wins++
		case g.score < 0.5:
			s.Losses++
		default:
			s.Draws++
		}
		seen[string(g.moves)] = true
		if i%2 == 1 {
			s.Pairs = append(s.Pairs, (clamp(g.score)+clamp(m.games[i-1].score))/2)
		}
	}
	s.Distinct = len(seen)
	return s
}

// clamp turns a sum of rewards into a result: 0, 0.5 or 1.
func clamp(score float64) float64 {
	switch {
	case score > 0.5:
		return 1
	case score < 0.5:
		return 0
	}
	return 0.5
}
