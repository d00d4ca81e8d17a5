package selfplay

import (
	"context"
	"fmt"

	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/statestore"
)

// Lines counts the games of a player against every possible reply.
type Lines struct {
	Won, Drawn, Lost int
}

// maxLines bounds an enumeration: it is for small games.
const maxLines = 1_000_000

// Exhaustive plays a deterministic player against all replies of the opponent, from both sides, and
// counts how the lines end. A game of more than a million open lines is an error.
func Exhaustive(ctx context.Context, store *statestore.Store, p Player) (Lines, error) {
	var total Lines
	for side := range int32(2) {
		l, err := exhaust(ctx, store, p, side)
		if err != nil {
			return total, err
		}
		total.Won += l.Won
		total.Drawn += l.Drawn
		total.Lost += l.Lost
	}
	return total, nil
}

// exhaust is Exhaustive with the player on one side.
func exhaust(ctx context.Context, store *statestore.Store, p Player, side int32) (lines Lines, err error) {
	open := make([]int32, 1)
	if err := store.Reset(nil, []uint64{0}, open); err != nil {
		return lines, err
	}
	defer func() { _ = store.Release(open) }()
	for len(open) > 0 {
		if len(open) > maxLines {
			return lines, fmt.Errorf("selfplay: more than %d lines: the game is too large to enumerate", maxLines)
		}
		next, err := expandLines(ctx, store, p, side, open, &lines)
		if err != nil {
			return lines, err
		}
		if err := store.Release(open); err != nil {
			return lines, err
		}
		open = next
	}
	return lines, nil
}

// expandLines plays one ply in every open line: the player's choice, or all replies.
func expandLines(
	ctx context.Context, store *statestore.Store, p Player, side int32, open []int32, lines *Lines,
) ([]int32, error) {
	a := store.Env().Spec().NumActions
	turns, mask := make([]int32, len(open)), make([]bool, len(open)*a)
	if err := store.Read(open, statestore.View{ToPlay: turns, Mask: mask}); err != nil {
		return nil, err
	}
	var parents, actions []int32
	var mine []bool
	var ours []int32
	var seeds []uint64
	for i, s := range open {
		if turns[i] == side {
			ours, seeds = append(ours, s), append(seeds, rng.Derive(0, uint64(i)))
			continue
		}
		for k := range a {
			if mask[i*a+k] {
				parents, actions, mine = append(parents, s), append(actions, int32(k)), append(mine, false)
			}
		}
	}
	if len(ours) > 0 {
		chosen := make([]int32, len(ours))
		if err := p.Choose(ctx, store, ours, seeds, chosen); err != nil {
			return nil, err
		}
		for i, s := range ours {
			parents, actions, mine = append(parents, s), append(actions, chosen[i]), append(mine, true)
		}
	}
	return stepLines(store, parents, actions, mine, lines)
}

// stepLines applies the plies, counts what ended and returns what goes on.
func stepLines(
	store *statestore.Store, parents, actions []int32, mine []bool, lines *Lines,
) ([]int32, error) {
	n := len(parents)
	out := statestore.Steps{
		Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n),
	}
	if err := store.Simulate(parents, actions, &out); err != nil {
		return nil, err
	}
	var next, over []int32
	for i, c := range out.Children {
		if !out.Terminated[i] {
			next = append(next, c)
			continue
		}
		over = append(over, c)
		switch r := out.Reward[i]; {
		case r == 0:
			lines.Drawn++
		case (r > 0) == mine[i]:
			lines.Won++
		default:
			lines.Lost++
		}
	}
	return next, store.Release(over)
}

// PlayerLines is an enumeration with the player it is of.
type PlayerLines struct {
	Player string
	Lines
}

// Lines enumerates the model without search and with its evaluation search. It is nil for
// environments without a solver: those are too large.
func (r *Run) Lines(ctx context.Context) ([]PlayerLines, error) {
	if !r.env.Capabilities().Solves {
		return nil, nil
	}
	n := r.cfg.EvalSimulations
	var out []PlayerLines
	for _, p := range []Player{
		NewRaw("the model without search", r.actor),
		NewGumbel(fmt.Sprintf("the model with %d simulations", n), r.env, r.actor, n, r.workers),
	} {
		l, err := Exhaustive(ctx, r.store, p)
		if err != nil {
			return nil, err
		}
		out = append(out, PlayerLines{p.Name(), l})
	}
	return out, nil
}

// Threads returns the number of worker threads.
func (r *Run) Threads() int { return r.workers.Size() }
