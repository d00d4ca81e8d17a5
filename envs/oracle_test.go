package envs_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// perft counts the move sequences of a length; a game stops at its end.
func perft[S any](rules interface {
	envs.Rules[S]
	envs.Masker[S]
}, s *S, depth int) int {
	if depth == 0 {
		return 1
	}
	var legal [64]bool
	mask := legal[:rules.Spec().NumActions]
	rules.Mask(s, mask)
	n := 0
	for a, ok := range mask {
		if !ok {
			continue
		}
		if depth == 1 {
			n++
			continue
		}
		t := *s
		rules.Step(&t, int32(a))
		n += perft(rules, &t, depth-1)
	}
	return n
}

// Counts published for the standard board; they agree with OpenSpiel's.
func TestConnectFourPerft(t *testing.T) {
	g, err := envs.NewConnectFour(envs.ConnectFourConfig{Rows: 6, Cols: 7, Connect: 4})
	require.NoError(t, err)
	want := []int{7, 49, 343, 2401, 16807, 117649, 823536, 5673234}
	for i, n := range want {
		require.Equal(t, n, perft[envs.ConnectFourState](g, &envs.ConnectFourState{}, i+1))
	}
}

// A line of another length than 4 goes through other code: compare both with a plain count.
func TestConnectFourLines(t *testing.T) {
	for _, k := range []int{3, 4, 5} {
		g, err := envs.NewConnectFour(envs.ConnectFourConfig{Rows: 6, Cols: 7, Connect: k})
		require.NoError(t, err)
		env, err := envs.Define[envs.ConnectFourState](g)
		require.NoError(t, err)
		a := env.NewArena(1)
		for game := range 500 {
			playAndCompare(t, a, game, k)
		}
	}
}

func playAndCompare(t *testing.T, a envs.Arena, game, k int) {
	var board [6][7]int
	a.Reset([]int32{0}, nil, []uint64{0})
	x := uint32(game*2654435761 + 1)
	for ply := 0; ; ply++ {
		var legal [7]bool
		a.Mask([]int32{0}, legal[:])
		col := -1
		for col < 0 || !legal[col] {
			x = x*1664525 + 1013904223
			col = int(x >> 16 % 7)
		}
		row := 0
		for board[row][col] != 0 {
			row++
		}
		board[row][col] = 1 + ply%2
		var out [1]envs.Outcome
		a.Step([]int32{0}, []int32{0}, []int32{int32(col)}, out[:])
		won := lineThrough(&board, row, col, k)
		require.Equal(t, won, out[0].Reward == 1)
		require.Equal(t, won || ply == 41, out[0].Terminated)
		if out[0].Terminated {
			return
		}
	}
}

func lineThrough(b *[6][7]int, r, c, k int) bool {
	me := b[r][c]
	for _, d := range [][2]int{{0, 1}, {1, 0}, {1, 1}, {1, -1}} {
		n := 1
		for _, sign := range []int{1, -1} {
			for i := 1; ; i++ {
				y, x := r+sign*i*d[0], c+sign*i*d[1]
				if y < 0 || y > 5 || x < 0 || x > 6 || b[y][x] != me {
					break
				}
				n++
			}
		}
		if n >= k {
			return true
		}
	}
	return false
}

// All games of tic-tac-toe: 255,168, of which 131,184 for X, 77,904 for O and 46,080 drawn, over
// 5,478 positions.
func TestTicTacToeExhaustive(t *testing.T) {
	g := &envs.TicTacToe{}
	positions := map[envs.TicTacToeState]bool{}
	var results [3]int
	var walk func(s envs.TicTacToeState)
	walk = func(s envs.TicTacToeState) {
		positions[s] = true
		var legal [9]bool
		g.Mask(&s, legal[:])
		for a, ok := range legal {
			if !ok {
				continue
			}
			next := s
			o := g.Step(&next, int32(a))
			switch {
			case o.Reward == 1:
				results[s.Mover]++
				positions[next] = true
			case o.Terminated:
				results[2]++
				positions[next] = true
			default:
				walk(next)
			}
		}
	}
	walk(envs.TicTacToeState{})
	require.Equal(t, [3]int{131184, 77904, 46080}, results)
	require.Len(t, positions, 5478)
}

// B19: the permutations of the square, and of Connect Four's columns.
func TestB19Symmetries(t *testing.T) {
	sym := makeEnv(t, "TicTacToe-v0", `{}`).Symmetries()
	want := [][]int{
		{2, 5, 8, 1, 4, 7, 0, 3, 6}, {8, 7, 6, 5, 4, 3, 2, 1, 0}, {6, 3, 0, 7, 4, 1, 8, 5, 2},
		{2, 1, 0, 5, 4, 3, 8, 7, 6}, {8, 5, 2, 7, 4, 1, 6, 3, 0}, {6, 7, 8, 3, 4, 5, 0, 1, 2},
		{0, 3, 6, 1, 4, 7, 2, 5, 8},
	}
	require.Len(t, sym, len(want))
	for i, s := range sym {
		require.Equal(t, want[i], s.Actions, s.Name)
	}
	policy, turned := []float32{.1, .2, .3, .05, .15, .15, .05}, make([]float32, 7)
	mirror := makeEnv(t, "ConnectFour-v0", `{}`).Symmetries()
	require.Len(t, mirror, 1)
	envs.Apply(mirror[0].Actions, policy, turned)
	require.Equal(t, []float32{.05, .15, .15, .05, .3, .2, .1}, turned)
}

type cartPoleEpisode struct {
	Seed  uint64
	First []string
	Steps []struct {
		Action     int32
		State      []string
		Obs        []string
		Reward     float32
		Terminated bool
		AfterReset []string `json:"after_reset"`
	}
}

// CartPole against episodes written by Gymnasium 1.4.0, as hexadecimal floats.
func TestCartPoleGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/cartpole.json")
	require.NoError(t, err)
	var episodes []cartPoleEpisode
	require.NoError(t, json.Unmarshal(data, &episodes))
	for _, math := range []string{"libm", "go"} {
		g, err := envs.NewCartPole(envs.CartPoleConfig{MaxEpisodeSteps: 500, Low: -0.05, High: 0.05, Math: math})
		require.NoError(t, err)
		exact := math == "libm" && strings.HasSuffix(g.Spec().Keywords, "math=libm")
		worst := 0.0
		for _, e := range episodes {
			worst = max(worst, cartPoleError(t, g, e))
		}
		t.Logf("math=%s: largest difference to Gymnasium %g", math, worst)
		if exact {
			require.Zero(t, worst, "math=%s must be bit-equal", math)
		}
		require.LessOrEqual(t, worst, 1.1e-6)
	}
}

// cartPoleError returns the largest difference of a state or observation to the golden one, over
// all steps and resets.
func cartPoleError(t *testing.T, g *envs.CartPole, e cartPoleEpisode) float64 {
	var s envs.CartPoleState
	g.Reset(&s, e.Seed)
	worst := diff(t, s.Physics[:], e.First)
	for _, step := range e.Steps {
		out := g.Step(&s, step.Action)
		require.Equal(t, envs.Outcome{Reward: step.Reward, Terminated: step.Terminated}, out)
		obs := envs.NewArrays(g.Spec().Obs, 1)
		g.Observe(&s, envs.RowOf(obs, 0))
		var seen [4]float64
		for i, v := range obs[0].F32 {
			seen[i] = float64(v)
		}
		worst = max(worst, diff(t, s.Physics[:], step.State), diff(t, seen[:], step.Obs))
		if step.Terminated {
			g.Restart(&s)
			worst = max(worst, diff(t, s.Physics[:], step.AfterReset))
		}
	}
	return worst
}

func diff(t *testing.T, got []float64, want []string) float64 {
	worst := 0.0
	for i, w := range want {
		v, err := strconv.ParseFloat(w, 64)
		require.NoError(t, err)
		worst = max(worst, math.Abs(got[i]-v))
	}
	return worst
}

// Gomoku on 3 x 3 with three in a row is tic-tac-toe.
func TestGomokuIsTicTacToe(t *testing.T) {
	a, b := makeEnv(t, "Gomoku-v0", `{"size":3,"connect":3}`).NewArena(1), makeEnv(t, "TicTacToe-v0", `{}`).NewArena(1)
	slot, rnd := []int32{0}, rng.New(4)
	x, y := envs.NewArrays(a.Spec().Obs, 1), envs.NewArrays(b.Spec().Obs, 1)
	var left, right [1]envs.Outcome
	var action [1]int32
	for range 2000 {
		a.Reset(slot, nil, []uint64{0})
		b.Reset(slot, nil, []uint64{0})
		for left[0].Terminated = false; !left[0].Terminated; {
			a.Pick(slot, []uint64{rnd.Uint64()}, action[:])
			a.Step(slot, slot, action[:], left[:])
			b.Step(slot, slot, action[:], right[:])
			require.Equal(t, right, left)
			a.Observe(slot, x, 0)
			b.Observe(slot, y, 0)
			require.Equal(t, y[0].Bool, x[0].Bool)
		}
	}
}

// Every end of random games on crowded boards is where a search of all lines sees the first five.
func TestGomokuLines(t *testing.T) {
	for _, size := range []int{7, 15, 19} {
		a := makeEnv(t, "Gomoku-v0", fmt.Sprintf(`{"size":%d}`, size)).NewArena(1)
		obs, slot, rnd := envs.NewArrays(a.Spec().Obs, 1), []int32{0}, rng.New(uint64(size))
		wins := 0
		for range 40 {
			a.Reset(slot, nil, []uint64{0})
			var out [1]envs.Outcome
			var action [1]int32
			for !out[0].Terminated {
				a.Pick(slot, []uint64{rnd.Uint64()}, action[:])
				a.Step(slot, slot, action[:], out[:])
				a.Observe(slot, obs, 0) // the view of the opponent of the one who moved: plane 1 is who moved
				stone := func(r, c int) bool {
					return r >= 0 && c >= 0 && r < size && c < size && obs[0].Bool[2*(r*size+c)+1]
				}
				require.Equal(t, fiveInARow(stone, size), out[0].Reward == 1)
			}
			if out[0].Reward == 1 {
				wins++
			}
		}
		require.Positive(t, wins)
	}
}

func fiveInARow(stone func(r, c int) bool, size int) bool {
	for r := range size {
		for c := range size {
			for _, d := range [][2]int{{0, 1}, {1, 0}, {1, 1}, {1, -1}} {
				n := 0
				for n < 5 && stone(r+n*d[0], c+n*d[1]) {
					n++
				}
				if n == 5 {
					return true
				}
			}
		}
	}
	return false
}
