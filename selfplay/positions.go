package selfplay

import (
	"bytes"
	"context"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/statestore"
)

// ErrPositions is the kind of every error about a set of labelled positions; it names the line.
var ErrPositions = errors.New("selfplay: bad positions")

// labelled has the sets that come with this package, one file an environment; the scripts beside them made
// them with a perfect solver.
//
//go:embed positions/*.csv
var labelled embed.FS

// Labelled is a position with what a perfect solver says of its actions.
type Labelled struct {
	Moves  []int32 // from the first state
	Phase  string  // of the game
	Scores []int   // [A] > 0: the action wins, 0: it draws, < 0: it loses; of legal ones
	Legal  []bool  // [A]
}

// Positions returns the labelled positions that come with azserve for an environment; none for most.
func Positions(env *envs.Env) ([]Labelled, error) {
	spec := env.Spec()
	b, err := labelled.ReadFile("positions/" + spec.ID + ".csv")
	plain, makeErr := envs.Make(spec.ID, nil)
	if err != nil || makeErr != nil || plain.Spec().Keywords != spec.Keywords {
		return nil, nil //nolint:nilerr // there is no file: no positions
	}
	return ReadPositions(bytes.NewReader(b), spec.NumActions)
}

// ReadPositions reads a CSV file with the header moves,phase,scores: the actions from the first state, joined
// by spaces; a name; a score for each of the environment's actions, joined by spaces, "-" where illegal.
func ReadPositions(r io.Reader, actions int) ([]Labelled, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPositions, err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], []string{"moves", "phase", "scores"}) {
		return nil, fmt.Errorf("%w: want the header moves,phase,scores", ErrPositions)
	}
	out := make([]Labelled, 0, len(rows)-1)
	for i, row := range rows[1:] {
		p, err := parsePosition(row, actions)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrPositions, i+2, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePosition(row []string, actions int) (Labelled, error) {
	p := Labelled{Phase: row[1], Scores: make([]int, actions), Legal: make([]bool, actions)}
	for m := range strings.FieldsSeq(row[0]) {
		a, err := strconv.Atoi(m)
		if err != nil || a < 0 || a >= actions {
			return p, fmt.Errorf("move %q; want 0 to %d", m, actions-1)
		}
		p.Moves = append(p.Moves, int32(a))
	}
	scores := strings.Fields(row[2])
	if len(scores) != actions {
		return p, fmt.Errorf("%d scores; want %d", len(scores), actions)
	}
	for a, text := range scores {
		if text == "-" {
			continue
		}
		var err error
		if p.Scores[a], err = strconv.Atoi(text); err != nil {
			return p, fmt.Errorf("score %q; want a whole number, or - for an illegal action", text)
		}
		p.Legal[a] = true
	}
	return p, nil
}

// best is the best result that an action of the position has: 1, 0 or -1.
func (p *Labelled) best() int {
	best := -1
	for a, ok := range p.Legal {
		if ok {
			best = max(best, sign(p.Scores[a]))
		}
	}
	return best
}

func sign(x int) int {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// Mistakes counts a player's actions in the positions of a phase that lose what the position holds: a win
// for a draw or a loss, a draw for a loss.
type Mistakes struct {
	Phase     string
	Positions int
	Mistakes  int
}

// Share is the part of the positions with a mistake, 0 to 1.
func (m *Mistakes) Share() float64 { return float64(m.Mistakes) / float64(max(1, m.Positions)) }

func (m Mistakes) String() string {
	return fmt.Sprintf("%.1f %% (%d of %d) in the %s", 100*m.Share(), m.Mistakes, m.Positions, m.Phase)
}

// together is how many positions a player sees side by side.
const together = 128

// CountMistakes lets a player choose in every position and counts the phases in the order in which they come.
func CountMistakes(
	ctx context.Context, store *statestore.Store, player Player, positions []Labelled, seed uint64,
) ([]Mistakes, error) {
	states := make([]int32, 0, len(positions))
	defer func() { _ = store.Release(states) }()
	for i := range positions {
		s, err := setUp(store, &positions[i])
		if err != nil {
			return nil, fmt.Errorf("%w: position %d: %w", ErrPositions, i+1, err)
		}
		states = append(states, s)
	}
	seeds, chosen := make([]uint64, len(states)), make([]int32, len(states))
	for i := range seeds {
		seeds[i] = rng.Derive(seed, uint64(i))
	}
	for lo := 0; lo < len(states); lo += together {
		hi := min(len(states), lo+together)
		if err := player.Choose(ctx, store, states[lo:hi], seeds[lo:hi], chosen[lo:hi]); err != nil {
			return nil, err
		}
	}
	var out []Mistakes
	for i := range positions {
		p := &positions[i]
		at := slices.IndexFunc(out, func(m Mistakes) bool { return m.Phase == p.Phase })
		if at < 0 {
			at = len(out)
			out = append(out, Mistakes{Phase: p.Phase})
		}
		out[at].Positions++
		if sign(p.Scores[chosen[i]]) < p.best() {
			out[at].Mistakes++
		}
	}
	return out, nil
}

// setUp plays the moves of a position and checks that its legal actions are those that have a score.
func setUp(store *statestore.Store, p *Labelled) (int32, error) {
	var state [1]int32
	if err := store.Reset(nil, []uint64{0}, state[:]); err != nil {
		return 0, err
	}
	for i, m := range p.Moves {
		out := statestore.Steps{Children: make([]int32, 1)}
		err := store.Simulate(state[:], []int32{m}, &out)
		if release := store.Release(state[:]); err == nil {
			err = release
		}
		if err != nil {
			return 0, fmt.Errorf("move %d: %w", i+1, err)
		}
		state[0] = out.Children[0]
	}
	legal := make([]bool, len(p.Legal))
	if err := store.Read(state[:], statestore.View{Mask: legal}); err != nil {
		return 0, err
	}
	if !slices.Equal(legal, p.Legal) {
		_ = store.Release(state[:])
		return 0, fmt.Errorf("legal actions are %v; the file has scores for %v", legal, p.Legal)
	}
	return state[0], nil
}
