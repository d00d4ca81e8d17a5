package envs_test

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// plainMaze is a naive twin of the rules: a grid of booleans.
type plainMaze struct {
	wall                   [][]bool
	row, col, goalR, goalC int
	steps, limit           int
}

func (m *plainMaze) free(r, c int) bool {
	return r >= 0 && r < len(m.wall) && c >= 0 && c < len(m.wall[0]) && !m.wall[r][c]
}

func (m *plainMaze) step(action int) (reward float32, terminated, truncated, invalid bool) {
	r, c := m.row, m.col
	switch action {
	case 0:
		r--
	case 1:
		c++
	case 2:
		r++
	case 3:
		c--
	}
	invalid = !m.free(r, c)
	if !invalid {
		m.row, m.col = r, c
	}
	m.steps++
	if m.row == m.goalR && m.col == m.goalC {
		reward, terminated = 1, true
	}
	return reward, terminated, m.steps >= m.limit, invalid
}

func plainOf(g *envs.Maze, s *envs.MazeState) *plainMaze {
	shape := g.Spec().Obs[0].Shape
	m := &plainMaze{
		row: int(s.Row), col: int(s.Col), goalR: int(s.GoalRow), goalC: int(s.GoalCol), limit: g.Spec().MaxEpisodeSteps,
	}
	for r := range shape[0] {
		m.wall = append(m.wall, make([]bool, shape[1]))
		for c := range shape[1] {
			m.wall[r][c] = s.Walls[r]>>c&1 == 1
		}
	}
	return m
}

func TestMazeAgainstTwin(t *testing.T) {
	rnd := rng.New(5)
	arrived := 0
	for seed := range uint64(300) {
		kw := fmt.Sprintf(`{"rows":%d,"cols":%d,"wall_density":%g,"random_start":%v}`, 2+rnd.IntN(8), 2+rnd.IntN(8),
			0.6*rnd.Float64(), rnd.IntN(2) == 1)
		g := makeEnv(t, "Maze-v0", kw).Rules().(*envs.Maze)
		var s envs.MazeState
		g.Reset(&s, seed)
		m := plainOf(g, &s)
		legal := make([]bool, 4)
		for {
			g.Mask(&s, legal)
			for a, d := range [4][2]int{{-1, 0}, {0, 1}, {1, 0}, {0, -1}} {
				require.Equal(t, m.free(m.row+d[0], m.col+d[1]), legal[a])
			}
			action := rnd.IntN(4)
			o := g.Step(&s, int32(action))
			reward, terminated, truncated, invalid := m.step(action)
			require.Equal(t, envs.Outcome{Reward: reward, Terminated: terminated, Truncated: truncated}, o)
			require.Equal(t, [3]any{m.row, m.col, invalid}, [3]any{int(s.Row), int(s.Col), s.Invalid})
			if terminated || truncated {
				arrived += int(reward)
				break
			}
		}
	}
	require.Greater(t, arrived, 20)
}

// TestMazeGenerators checks what each generator promises.
func TestMazeGenerators(t *testing.T) {
	for seed := range uint64(200) {
		for _, kw := range []string{
			`{}`, `{"wall_density":0.6,"rows":20,"cols":20}`, `{"rows":64,"cols":64,"wall_density":0.3}`, `{"generator":"empty"}`,
			`{"generator":"division","rows":9,"cols":13}`,
		} {
			g := makeEnv(t, "Maze-v0", kw).Rules().(*envs.Maze)
			var s envs.MazeState
			g.Reset(&s, seed)
			m := plainOf(g, &s)
			require.True(t, flood(m)[[2]int{m.goalR, m.goalC}], "%s, seed %d: no way\n%s", kw, seed, g.Text(&s))
			if kw == `{"generator":"empty"}` {
				require.Len(t, flood(m), len(m.wall)*len(m.wall[0]))
			}
		}
		division(t, seed)
	}
}

// division requires that a divided maze is a tree: every free cell is reached, on one way only.
func division(t *testing.T, seed uint64) {
	g := makeEnv(t, "Maze-v0", `{"generator":"division","rows":9,"cols":13}`).Rules().(*envs.Maze)
	var s envs.MazeState
	g.Reset(&s, seed)
	m := plainOf(g, &s)
	free, joints := 0, 0
	for r := range m.wall {
		for c := range m.wall[r] {
			if !m.free(r, c) {
				continue
			}
			free++
			if m.free(r+1, c) {
				joints++
			}
			if m.free(r, c+1) {
				joints++
			}
		}
	}
	require.Len(t, flood(m), free)
	require.Equal(t, free-1, joints, "not a tree:\n%s", g.Text(&s))
	count := 0
	for _, row := range g.Reach(&s, 0, 0) {
		count += bits.OnesCount64(row)
	}
	require.Equal(t, free, count)
}

// flood lists the cells that are connected with the agent's.
func flood(m *plainMaze) map[[2]int]bool {
	seen := map[[2]int]bool{{m.row, m.col}: true}
	for todo := [][2]int{{m.row, m.col}}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		for _, d := range [][2]int{{-1, 0}, {0, 1}, {1, 0}, {0, -1}} {
			to := [2]int{at[0] + d[0], at[1] + d[1]}
			if m.free(to[0], to[1]) && !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return seen
}

func TestMazeRegenerate(t *testing.T) {
	for _, c := range []struct {
		kw    string
		moves bool
	}{{`{}`, true}, {`{"regenerate":false}`, false}} {
		g := makeEnv(t, "Maze-v0", c.kw).Rules().(*envs.Maze)
		var s envs.MazeState
		g.Reset(&s, 1)
		first := s.Walls
		g.Restart(&s)
		require.Equal(t, c.moves, s.Walls != first)
	}
}

// A goal that can't be reached is refused, so that a random start can always be drawn.
func TestMazeForgedBytes(t *testing.T) {
	env := makeEnv(t, "Maze-v0", `{"generator":"empty","random_start":true,"regenerate":false}`)
	a := env.NewArena(2)
	a.Reset([]int32{0}, nil, []uint64{1})
	g, s := env.Rules().(*envs.Maze), envs.MazeState{}
	g.Reset(&s, 1)
	s.Walls[7], s.Walls[6] = 1<<6, 1<<7
	require.ErrorContains(t, g.Validate(&s), "the goal at (7, 7) can't be reached")
}
