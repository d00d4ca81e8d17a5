package envs

import (
	"fmt"
	"strings"

	"github.com/azserve/azserve/internal/rng"
)

// Maze is a walk through a maze to its goal: the smallest environment with a generator, a time limit and a
// dict of observations. The moves and the mask are those of jumanji's Maze; reaching the goal pays 1.
type Maze struct {
	c      MazeConfig
	limit  int32
	layout *mazeLayout // of generator "layout"
}

// MazeConfig holds the keywords.
type MazeConfig struct {
	Rows            int      `json:"rows" default:"8" doc:"rows, 2 to 64"`
	Cols            int      `json:"cols" default:"8" doc:"columns, 2 to 64"`
	Generator       string   `json:"generator" default:"\"random\"" doc:"\"random\", \"division\" (odd sizes only), \"empty\" or \"layout\""`
	WallDensity     float64  `json:"wall_density" default:"0.2" doc:"share of walls of \"random\", 0 to 0.6"`
	Layout          []string `json:"layout" default:"null" doc:"rows of #.SG (wall, free, start, goal); gives rows, cols and generator"`
	RandomStart     bool     `json:"random_start" default:"false" doc:"start anywhere that reaches the goal, in place of the top left"`
	Regenerate      bool     `json:"regenerate" default:"true" doc:"a new maze each episode, in place of one a seed"`
	MaxEpisodeSteps int      `json:"max_episode_steps" default:"0" doc:"time limit in steps; 0 means rows*cols"`
	Invalid         string   `json:"invalid" default:"\"noop\"" doc:"a step into a wall: \"noop\" stays and costs a step, \"error\" refuses it"`
	Obs             string   `json:"obs" default:"\"dict\"" doc:"\"dict\" (walls, agent, goal, step_count), \"planes\" or \"flat\""`
	Factored        bool     `json:"factored" default:"false" doc:"actions as axis x sign (up, down, left, right) in place of up, right, down, left"`
}

const (
	mazeID      = "Maze-v0"
	mazeMaxSide = 64
)

// MazeState is a place in a maze. Fields are exported only so that tests may set up positions.
type MazeState struct {
	Walls                     [mazeMaxSide]uint64 // a row each: bit c is column c
	Row, Col                  int16
	GoalRow, GoalCol          int16
	Steps                     int32
	Invalid, Arrived, Timeout bool // of the last step
	RNG                       rng.Stream
}

// mazeMoves are (down, right) of the actions up, right, down, left.
var mazeMoves = [4][2]int16{{-1, 0}, {0, 1}, {1, 0}, {0, -1}}

// mazeFactored are the same moves in the order of axis (vertical, horizontal) and sign.
var mazeFactored = [4][2]int16{{-1, 0}, {1, 0}, {0, -1}, {0, 1}}

// NewMaze checks the keywords and returns the rules.
func NewMaze(c MazeConfig) (*Maze, error) {
	g := &Maze{}
	if len(c.Layout) > 0 {
		l, err := parseMaze(c.Layout)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: layout: %w", ErrKeyword, mazeID, err)
		}
		g.layout, c.Generator, c.Rows, c.Cols = l, "layout", len(c.Layout), len(c.Layout[0])
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.MaxEpisodeSteps == 0 {
		c.MaxEpisodeSteps = c.Rows * c.Cols
	}
	g.c, g.limit = c, int32(c.MaxEpisodeSteps)
	return g, nil
}

func (c *MazeConfig) validate() error {
	for _, err := range []error{
		inRange(mazeID, "rows", c.Rows, 2, mazeMaxSide), inRange(mazeID, "cols", c.Cols, 2, mazeMaxSide),
		inRange(mazeID, "max_episode_steps", c.MaxEpisodeSteps, 0, 1_000_000),
		oneOf(mazeID, "generator", c.Generator, "random", "division", "empty", "layout"),
		oneOf(mazeID, "invalid", c.Invalid, "noop", "error"),
		oneOf(mazeID, "obs", c.Obs, "dict", "planes", "flat"),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case c.Generator == "layout" && len(c.Layout) == 0:
		return fmt.Errorf("%w: %s: generator=\"layout\" without layout=[...]", ErrKeyword, mazeID)
	case !(c.WallDensity >= 0 && c.WallDensity <= 0.6):
		return fmt.Errorf("%w: %s: wall_density=%g; want 0 to 0.6", ErrKeyword, mazeID, c.WallDensity)
	case c.Generator == "division" && (c.Rows%2 == 0 || c.Cols%2 == 0):
		return fmt.Errorf("%w: %s: rows=%d cols=%d with generator=\"division\"; want odd numbers, such as %d and %d",
			ErrKeyword, mazeID, c.Rows, c.Cols, c.Rows|1, c.Cols|1)
	}
	return nil
}

// Spec describes the maze.
func (g *Maze) Spec() Spec {
	c := &g.c
	s := Spec{
		ID: mazeID, Version: 1, Obs: g.arrays(), NumActions: 4, NumPlayers: 1, RewardHigh: 1,
		MaxEpisodeSteps: int(g.limit), AnyAction: c.Invalid == "noop",
		Info: []ArraySpec{{Name: "invalid_action", DType: Bool, Low: []float64{0}, High: []float64{1}}},
		Keywords: fmt.Sprintf("rows=%d cols=%d generator=%s wall_density=%g layout=%s random_start=%v regenerate=%v "+
			"max_episode_steps=%d invalid=%s obs=%s factored=%v", c.Rows, c.Cols, c.Generator, c.WallDensity,
			strings.Join(c.Layout, "/"), c.RandomStart, c.Regenerate, g.limit, c.Invalid, c.Obs, c.Factored),
	}
	if c.Factored {
		s.Factorization = Factorization{Names: []string{"axis", "sign"}, Sizes: []int{2, 2}}
	}
	return s
}

func (g *Maze) arrays() []ArraySpec {
	r, c := g.c.Rows, g.c.Cols
	zero, one := []float64{0}, []float64{1}
	switch g.c.Obs {
	case "planes": // walls, agent, goal
		return []ArraySpec{{Name: "planes", DType: Float32, Shape: []int{3, r, c}, Low: zero, High: one}}
	case "flat": // the walls by rows, then row and column of agent and goal as shares of the side
		return []ArraySpec{{Name: "flat", DType: Float32, Shape: []int{r*c + 4}, Low: zero, High: one}}
	}
	corner := []float64{float64(r - 1), float64(c - 1)}
	return []ArraySpec{
		{Name: "walls", DType: Bool, Shape: []int{r, c}, Low: zero, High: one},
		{Name: "agent", DType: Int32, Shape: []int{2}, Low: zero, High: corner}, // row, column
		{Name: "goal", DType: Int32, Shape: []int{2}, Low: zero, High: corner},
		{Name: "step_count", DType: Int32, Low: zero, High: []float64{float64(g.limit)}},
	}
}

// Reset makes the first maze of a seed.
func (g *Maze) Reset(s *MazeState, seed uint64) {
	*s = MazeState{RNG: rng.New(seed)}
	g.generate(s)
	g.begin(s)
}

// Restart starts the next episode from the state's own random stream.
func (g *Maze) Restart(s *MazeState) {
	if g.c.Regenerate {
		g.generate(s)
	}
	g.begin(s)
}

// begin puts the agent at the start.
func (g *Maze) begin(s *MazeState) {
	s.Steps, s.Invalid, s.Arrived, s.Timeout = 0, false, false, false
	s.Row, s.Col = 0, 0
	if g.layout != nil {
		s.Row, s.Col = g.layout.row, g.layout.col
	}
	if g.c.RandomStart {
		s.Row, s.Col = g.randomStart(s)
	}
}

// move returns where an action leads, and whether the agent may go there.
func (g *Maze) move(s *MazeState, action int32) (row, col int16, ok bool) {
	d := &mazeMoves[action]
	if g.c.Factored {
		d = &mazeFactored[action]
	}
	row, col = s.Row+d[0], s.Col+d[1]
	return row, col, g.free(s, int(row), int(col))
}

func (g *Maze) free(s *MazeState, row, col int) bool {
	return uint(row) < uint(g.c.Rows) && uint(col) < uint(g.c.Cols) && s.Walls[row]>>col&1 == 0
}

// Step walks one cell; into a wall or the border it stays.
func (g *Maze) Step(s *MazeState, action int32) Outcome {
	if s.Arrived || s.Timeout {
		return Outcome{Terminated: s.Arrived, Truncated: s.Timeout}
	}
	row, col, ok := g.move(s, action)
	s.Invalid = !ok
	if ok {
		s.Row, s.Col = row, col
	}
	s.Steps++
	s.Arrived = s.Row == s.GoalRow && s.Col == s.GoalCol
	s.Timeout = s.Steps >= g.limit
	out := Outcome{Terminated: s.Arrived, Truncated: s.Timeout}
	if s.Arrived {
		out.Reward = 1
	}
	return out
}

// Observe writes what the keyword obs says.
func (g *Maze) Observe(s *MazeState, row Row) {
	r, c := g.c.Rows, g.c.Cols
	switch g.c.Obs {
	case "planes":
		x := row.Float32(0)
		clear(x)
		g.wallFloats(s, x)
		x[r*c+int(s.Row)*c+int(s.Col)] = 1
		x[2*r*c+int(s.GoalRow)*c+int(s.GoalCol)] = 1
	case "flat":
		x := row.Float32(0)
		g.wallFloats(s, x)
		high, wide := 1/float32(r-1), 1/float32(c-1)
		x[r*c], x[r*c+1] = float32(s.Row)*high, float32(s.Col)*wide
		x[r*c+2], x[r*c+3] = float32(s.GoalRow)*high, float32(s.GoalCol)*wide
	default:
		walls, agent, goal := row.Bool(0), row.Int32(1), row.Int32(2)
		for i := range r {
			for j := range c {
				walls[i*c+j] = s.Walls[i]>>j&1 == 1
			}
		}
		agent[0], agent[1] = int32(s.Row), int32(s.Col)
		goal[0], goal[1] = int32(s.GoalRow), int32(s.GoalCol)
		row.Int32(3)[0] = s.Steps
	}
}

func (g *Maze) wallFloats(s *MazeState, x []float32) {
	for i := range g.c.Rows {
		for j := range g.c.Cols {
			x[i*g.c.Cols+j] = float32(s.Walls[i] >> j & 1)
		}
	}
}

// Info writes whether the last step ran into a wall.
func (*Maze) Info(s *MazeState, row Row) { row.Bool(0)[0] = s.Invalid }

// Mask allows the steps to free cells; nothing after the end. An agent that is walled in may try all.
func (g *Maze) Mask(s *MazeState, legal []bool) {
	open := !s.Arrived && !s.Timeout
	any := false
	for a := range int32(4) {
		_, _, ok := g.move(s, a)
		legal[a] = ok && open
		any = any || legal[a]
	}
	if open && !any {
		for a := range legal {
			legal[a] = true
		}
	}
}

// Hash is of the maze, the places and the clock.
func (g *Maze) Hash(s *MazeState) uint64 {
	place := func(row, col int16) uint64 { return uint64(uint16(row))<<16 | uint64(uint16(col)) }
	h := HashKey(place(s.Row, s.Col), place(s.GoalRow, s.GoalCol), uint64(s.Steps))
	for _, row := range s.Walls[:g.c.Rows] {
		h = hashStep(h, row)
	}
	return h
}

// Text draws the maze: # wall, A agent, G goal.
func (g *Maze) Text(s *MazeState) string {
	var b strings.Builder
	for r := range g.c.Rows {
		for c := range g.c.Cols {
			switch {
			case r == int(s.Row) && c == int(s.Col):
				b.WriteByte('A')
			case r == int(s.GoalRow) && c == int(s.GoalCol):
				b.WriteByte('G')
			case s.Walls[r]>>c&1 == 1:
				b.WriteByte('#')
			default:
				b.WriteByte('.')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ActionName names the direction.
func (g *Maze) ActionName(_ *MazeState, a int32) string {
	if g.c.Factored {
		return [4]string{"up", "down", "left", "right"}[a]
	}
	return [4]string{"up", "right", "down", "left"}[a]
}

// Validate refuses places outside of the maze or in a wall.
func (g *Maze) Validate(s *MazeState) error {
	if !g.free(s, int(s.Row), int(s.Col)) || !g.free(s, int(s.GoalRow), int(s.GoalCol)) {
		return fmt.Errorf("agent at (%d, %d), goal at (%d, %d): not both free cells", s.Row, s.Col, s.GoalRow, s.GoalCol)
	}
	if _, n := g.starts(s); n == 0 {
		return fmt.Errorf("the goal at (%d, %d) can't be reached", s.GoalRow, s.GoalCol)
	}
	arrived := s.Row == s.GoalRow && s.Col == s.GoalCol
	if s.Steps < 0 || s.Steps > g.limit || s.Timeout != (s.Steps == g.limit) || s.Arrived && !arrived ||
		arrived && !s.Arrived && s.Steps > 0 {
		return fmt.Errorf("%d of %d steps, arrived=%v, timeout=%v", s.Steps, g.limit, s.Arrived, s.Timeout)
	}
	return nil
}
