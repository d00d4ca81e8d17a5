package envs

import (
	"fmt"
	"math/bits"
)

// mazeTries is how many random mazes are thrown away before a way is carved into the last one.
const mazeTries = 100

// generate makes the walls and the goal.
func (g *Maze) generate(s *MazeState) {
	s.Walls = [mazeMaxSide]uint64{}
	s.GoalRow, s.GoalCol = int16(g.c.Rows-1), int16(g.c.Cols-1)
	switch g.c.Generator {
	case "layout":
		s.Walls, s.GoalRow, s.GoalCol = g.layout.walls, g.layout.goalRow, g.layout.goalCol
	case "random":
		g.generateRandom(s)
	case "division":
		g.divide(s, 0, 0, g.c.Rows-1, g.c.Cols-1)
	}
}

// generateRandom draws each cell by itself, row by row, until the goal can be reached from the top left.
func (g *Maze) generateRandom(s *MazeState) {
	for range mazeTries {
		for r := range g.c.Rows {
			row := uint64(0)
			for c := range g.c.Cols {
				if s.RNG.Float64() < g.c.WallDensity {
					row |= 1 << c
				}
			}
			s.Walls[r] = row
		}
		s.Walls[0] &^= 1
		s.Walls[s.GoalRow] &^= 1 << s.GoalCol
		if reach := g.reach(s, 0, 0); reach[s.GoalRow]>>s.GoalCol&1 == 1 {
			return
		}
	}
	g.carve(s)
}

// carve frees a random way right and down from the top left to the bottom right.
func (g *Maze) carve(s *MazeState) {
	right, down := g.c.Cols-1, g.c.Rows-1
	r, c := 0, 0
	for right+down > 0 {
		if s.RNG.IntN(right+down) < right {
			c, right = c+1, right-1
		} else {
			r, down = r+1, down-1
		}
		s.Walls[r] &^= 1 << c
	}
}

// divide cuts a room with even corners by a wall with one passage, and its parts again: walls stand on odd
// rows and columns, passages are on even ones, so no later wall closes one.
func (g *Maze) divide(s *MazeState, top, left, bottom, right int) {
	high, wide := (bottom-top)/2, (right-left)/2 // places for a wall
	if high == 0 || wide == 0 {
		return
	}
	if high > wide || (high == wide && s.RNG.IntN(2) == 0) {
		wall, gap := top+1+2*s.RNG.IntN(high), left+2*s.RNG.IntN(wide+1)
		s.Walls[wall] |= (1<<(right-left+1) - 1) << left &^ (1 << gap)
		g.divide(s, top, left, wall-1, right)
		g.divide(s, wall+1, left, bottom, right)
		return
	}
	wall, gap := left+1+2*s.RNG.IntN(wide), top+2*s.RNG.IntN(high+1)
	for r := top; r <= bottom; r++ {
		if r != gap {
			s.Walls[r] |= 1 << wall
		}
	}
	g.divide(s, top, left, bottom, wall-1)
	g.divide(s, top, wall+1, bottom, right)
}

// reach returns the cells that can be reached from one, by flooding whole rows at a time.
func (g *Maze) reach(s *MazeState, row, col int) (seen [mazeMaxSide]uint64) {
	all := ^uint64(0) >> (64 - g.c.Cols)
	seen[row] = 1 << col &^ s.Walls[row]
	for changed := true; changed; {
		changed = false
		for r := range g.c.Rows {
			x := seen[r]
			if r > 0 {
				x |= seen[r-1]
			}
			if r+1 < g.c.Rows {
				x |= seen[r+1]
			}
			free := all &^ s.Walls[r]
			for y := x & free; ; y = x & free {
				if x = y | y<<1 | y>>1; x&free == y {
					break
				}
			}
			if x &= free; x != seen[r] {
				seen[r], changed = x, true
			}
		}
	}
	return seen
}

// starts returns the cells from which the goal can be reached, but for the goal itself, and how many there are.
func (g *Maze) starts(s *MazeState) (cells [mazeMaxSide]uint64, n int) {
	cells = g.reach(s, int(s.GoalRow), int(s.GoalCol))
	cells[s.GoalRow] &^= 1 << s.GoalCol
	for _, x := range cells {
		n += bits.OnesCount64(x)
	}
	return cells, n
}

// randomStart draws among the cells from which the goal can be reached.
func (g *Maze) randomStart(s *MazeState) (row, col int16) {
	seen, n := g.starts(s)
	k, r := s.RNG.IntN(n), 0
	for ; k >= bits.OnesCount64(seen[r]); r++ {
		k -= bits.OnesCount64(seen[r])
	}
	return int16(r), int16(nthBit(seen[r], k))
}

// mazeLayout is a maze that was given as text.
type mazeLayout struct {
	walls                      [mazeMaxSide]uint64
	row, col, goalRow, goalCol int16
}

// parseMaze reads rows of #.SG.
func parseMaze(rows []string) (*mazeLayout, error) {
	l := &mazeLayout{row: -1, goalRow: -1}
	if len(rows) < 2 || len(rows) > mazeMaxSide || len(rows[0]) < 2 || len(rows[0]) > mazeMaxSide {
		return nil, fmt.Errorf("%d rows of %d; want 2 to %d of 2 to %d", len(rows), len(rows[0]), mazeMaxSide, mazeMaxSide)
	}
	for r, text := range rows {
		if len(text) != len(rows[0]) {
			return nil, fmt.Errorf("row %d has %d cells; want %d as row 0", r, len(text), len(rows[0]))
		}
		for c, cell := range text {
			if err := l.put(r, c, cell); err != nil {
				return nil, err
			}
		}
	}
	if l.row < 0 || l.goalRow < 0 {
		return nil, fmt.Errorf("want one S and one G")
	}
	g, s := &Maze{c: MazeConfig{Rows: len(rows), Cols: len(rows[0])}}, &MazeState{Walls: l.walls}
	if reach := g.reach(s, int(l.row), int(l.col)); reach[l.goalRow]>>l.goalCol&1 == 0 {
		return nil, fmt.Errorf("the goal G can't be reached from S")
	}
	return l, nil
}

func (l *mazeLayout) put(r, c int, cell rune) error {
	switch {
	case cell == '#':
		l.walls[r] |= 1 << c
	case cell == 'S' && l.row < 0:
		l.row, l.col = int16(r), int16(c)
	case cell == 'G' && l.goalRow < 0:
		l.goalRow, l.goalCol = int16(r), int16(c)
	case cell != '.':
		return fmt.Errorf("row %d, column %d is %q; want one of #.SG, one S and one G", r, c, cell)
	}
	return nil
}
