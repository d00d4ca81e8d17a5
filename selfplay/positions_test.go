package selfplay_test

import (
	"context"
	"strings"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/selfplay"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

// What comes with azserve: 1,000 positions of Connect Four in which the move matters, in three phases.
func TestPositions(t *testing.T) {
	env, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	positions, err := selfplay.Positions(env)
	require.NoError(t, err)
	require.Len(t, positions, 1000)
	phases := map[string]int{}
	for i := range positions {
		p := &positions[i]
		phases[p.Phase]++
		results := map[int]bool{}
		for a, ok := range p.Legal {
			if ok {
				results[min(1, max(-1, p.Scores[a]))] = true
			}
		}
		require.Greater(t, len(results), 1, "position %d", i)
	}
	require.Equal(t, map[string]int{"opening": 334, "middle": 333, "end": 333}, phases)
	for id, kw := range map[string]envs.Keywords{"TicTacToe-v0": nil, "ConnectFour-v0": {"rows": []byte("5")}} {
		other, err := envs.Make(id, kw)
		require.NoError(t, err)
		none, err := selfplay.Positions(other)
		require.NoError(t, err)
		require.Empty(t, none, id)
	}
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	// In positions with an immediate win the solver's labels and a search that proves agree.
	uct, free, err := selfplay.ParsePlayer("uct:300", selfplay.PlayerOptions{Env: env})
	require.NoError(t, err)
	defer free()
	ends := positions[900:]
	counts, err := selfplay.CountMistakes(context.Background(), store, uct, ends, 1)
	require.NoError(t, err)
	require.Len(t, counts, 1)
	require.Equal(t, 100, counts[0].Positions)
	require.Less(t, counts[0].Share(), 0.05, "%s", counts[0])
	require.Zero(t, store.Stats().Live)
}

// The count itself, by the solver of tic-tac-toe: a perfect player makes none, the first legal move makes some.
func TestCountMistakes(t *testing.T) {
	_, store := ticTacToe(t)
	const file = "moves,phase,scores\n" +
		"0 1,early,- - -1 1 1 -1 1 -1 -1\n" + // centre, or a side that makes two threats
		"0 3 1 4,late,- - 1 - - -1 -1 -1 -1\n" +
		"4 0 8,late,- -1 0 -1 - -1 0 -1 -\n"
	positions, err := selfplay.ReadPositions(strings.NewReader(file), 9)
	require.NoError(t, err)
	perfect, err := selfplay.CountMistakes(context.Background(), store, selfplay.Perfect{}, positions, 1)
	require.NoError(t, err)
	require.Equal(t, []selfplay.Mistakes{{Phase: "early", Positions: 1}, {Phase: "late", Positions: 2}}, perfect)
	first, err := selfplay.CountMistakes(context.Background(), store, firstLegal{}, positions, 1)
	require.NoError(t, err)
	require.Equal(t, []selfplay.Mistakes{{"early", 1, 1}, {"late", 2, 1}}, first)
	require.Equal(t, "50.0 % (1 of 2) in the late", first[1].String())
	for text, want := range map[string]string{
		"moves,scores\n": "want the header moves,phase,scores",
		"moves,phase,scores\n0 9,x,0 0 0 0 0 0 0 0 0\n":      `line 2: move "9"; want 0 to 8`,
		"moves,phase,scores\n0,x,0 0\n":                      "line 2: 2 scores; want 9",
		"moves,phase,scores\n0,x,0 0 0 0 0 0 0 0 win\n":      `score "win"`,
		"moves,phase,scores\n0,x,0 0 0 0 0 0 0 0 0\n1,y,0\n": "line 3",
	} {
		_, err := selfplay.ReadPositions(strings.NewReader(text), 9)
		require.ErrorIs(t, err, selfplay.ErrPositions)
		require.ErrorContains(t, err, want)
	}
	for text, want := range map[string]string{
		"moves,phase,scores\n0 0,x,- 0 0 0 0 0 0 0 0\n": "position 1: move 2",
		"moves,phase,scores\n0,x,0 0 0 0 0 0 0 0 0\n":   "legal actions are",
	} {
		positions, err := selfplay.ReadPositions(strings.NewReader(text), 9)
		require.NoError(t, err)
		_, err = selfplay.CountMistakes(context.Background(), store, selfplay.Random{}, positions, 1)
		require.ErrorIs(t, err, selfplay.ErrPositions)
		require.ErrorContains(t, err, want)
	}
	require.Zero(t, store.Stats().Live)
}
