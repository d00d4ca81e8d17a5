package envs

import (
	"fmt"
	"math/bits"
	"strings"
)

// ConnectFour drops stones into columns; who first has connect in a row, in any of the four
// directions, wins. Bitboards: column c takes the bits c*(rows+1) upwards from its lowest cell, and
// one bit above the top stays 0, so that shifted lines never run from one column into the next.
type ConnectFour struct {
	rows, cols, connect int
	full                uint64    // all cells
	shifts              [4]uint   // bit distance of neighbours: vertical, horizontal, diagonals
	bottom              [64]uint8 // the lowest bit of each column
	tops                uint64    // the top cell of each column
	column              [64]uint8 // of each bit
}

// ConnectFourConfig holds the keywords.
type ConnectFourConfig struct {
	Rows    int `json:"rows" default:"6" doc:"rows of the board, 2 to 16"`
	Cols    int `json:"cols" default:"7" doc:"columns, 2 to 16; cols*(rows+1) at most 64"`
	Connect int `json:"connect" default:"4" doc:"stones in a row that win, 2 to 8"`
}

// ConnectFourState is a position. Fields are exported only so that tests may set up positions.
type ConnectFourState struct {
	Mine, Theirs uint64 // stones of the mover and of the opponent
	Moves        uint8  // played so far; player Moves%2 is to move
	Ended        bool
}

// NewConnectFour checks the keywords and returns the rules.
func NewConnectFour(c ConnectFourConfig) (*ConnectFour, error) {
	const id = "ConnectFour-v0"
	for _, err := range []error{
		inRange(id, "rows", c.Rows, 2, 16), inRange(id, "cols", c.Cols, 2, 16),
		inRange(id, "connect", c.Connect, 2, 8),
	} {
		if err != nil {
			return nil, err
		}
	}
	if bits := c.Cols * (c.Rows + 1); bits > 64 {
		return nil, fmt.Errorf("%w: %s: rows=%d cols=%d takes cols*(rows+1) = %d bits; want at most 64",
			ErrKeyword, id, c.Rows, c.Cols, bits)
	}
	h := uint(c.Rows + 1)
	g := &ConnectFour{rows: c.Rows, cols: c.Cols, connect: c.Connect}
	g.shifts = [4]uint{1, h, h - 1, h + 1}
	for col := range c.Cols {
		g.bottom[col] = uint8(col) * uint8(h)
		g.full |= (1<<c.Rows - 1) << g.bottom[col]
		top := g.bottom[col] + uint8(c.Rows) - 1
		g.tops |= 1 << top
		g.column[top] = uint8(col)
	}
	return g, nil
}

// Spec describes the game. The observation's layout is pgx's: row 0 is the top.
func (g *ConnectFour) Spec() Spec {
	return Spec{
		ID: "ConnectFour-v0", Version: 1,
		Keywords: fmt.Sprintf("rows=%d cols=%d connect=%d", g.rows, g.cols, g.connect),
		Obs: []ArraySpec{{
			Name: "board", DType: Bool, Shape: []int{g.rows, g.cols, 2},
			Low: []float64{0}, High: []float64{1},
		}},
		NumActions: g.cols, NumPlayers: 2, RewardLow: -1, RewardHigh: 1,
	}
}

// Reset starts with an empty board.
func (g *ConnectFour) Reset(s *ConnectFourState, _ uint64) { *s = ConnectFourState{} }

// Step drops a stone of the mover into a column.
func (g *ConnectFour) Step(s *ConnectFourState, action int32) Outcome {
	if s.Ended {
		return Outcome{Terminated: true}
	}
	// Adding the column's lowest bit to its stones carries into the lowest free cell.
	all := s.Mine | s.Theirs
	column := uint64(1<<g.rows-1) << g.bottom[action]
	mine := s.Mine | (all+1<<g.bottom[action])&column
	s.Mine, s.Theirs = s.Theirs, mine
	s.Moves++
	if g.wins(mine) {
		s.Ended = true
		return Outcome{Reward: 1, Terminated: true}
	}
	s.Ended = s.Mine|s.Theirs == g.full
	return Outcome{Terminated: s.Ended}
}

// wins says whether the stones hold a line. After k rounds m has a bit wherever a line of k+1
// stones starts.
func (g *ConnectFour) wins(stones uint64) bool {
	for _, d := range g.shifts {
		if g.connect == 4 {
			if pairs := stones & (stones >> d); pairs&(pairs>>(2*d)) != 0 {
				return true
			}
			continue
		}
		m := stones
		for range g.connect - 1 {
			m &= m >> d
		}
		if m != 0 {
			return true
		}
	}
	return false
}

// Observe writes the board as the mover sees it.
func (g *ConnectFour) Observe(s *ConnectFourState, row Row) {
	board := row.Bool(0)
	i := 0
	for r := g.rows - 1; r >= 0; r-- {
		for c := range g.cols {
			bit := uint(g.bottom[c]) + uint(r)
			board[i] = s.Mine>>bit&1 == 1
			board[i+1] = s.Theirs>>bit&1 == 1
			i += 2
		}
	}
}

// Mask allows the columns whose top cell is free; nothing after the end.
func (g *ConnectFour) Mask(s *ConnectFourState, legal []bool) {
	all := s.Mine | s.Theirs
	for c := range legal {
		top := uint(g.bottom[c]) + uint(g.rows) - 1
		legal[c] = all>>top&1 == 0 && !s.Ended
	}
}

// Legal is Mask for one action.
func (g *ConnectFour) Legal(s *ConnectFourState, action int32) bool {
	top := g.bottom[action] + uint8(g.rows) - 1
	return !s.Ended && (s.Mine|s.Theirs)>>top&1 == 0
}

// ToPlay returns the mover.
func (g *ConnectFour) ToPlay(s *ConnectFourState) int32 { return int32(s.Moves & 1) }

// Pick draws among the columns whose top cell is free.
func (g *ConnectFour) Pick(s *ConnectFourState, r uint64) int32 {
	free := g.tops &^ (s.Mine | s.Theirs)
	if s.Ended || free == 0 {
		return -1
	}
	return int32(g.column[nthBit(free, nth(r, bits.OnesCount64(free)))])
}

// Hash is of the stones: who moves is in their number.
func (g *ConnectFour) Hash(s *ConnectFourState) uint64 { return HashKey(s.Mine, s.Theirs) }

// Symmetries has the one reflection, left to right.
func (g *ConnectFour) Symmetries() []Symmetry {
	m := gridSymmetry("mirror", g.rows, g.cols, 2, func(r, c int) (int, int) {
		return r, g.cols - 1 - c
	})
	m.Actions = m.Actions[:g.cols] // the actions are columns: those of row 0
	return []Symmetry{m}
}

// Text draws the board with X for player 0.
func (g *ConnectFour) Text(s *ConnectFourState) string {
	var b strings.Builder
	marks := [2]byte{'X', 'O'}
	for r := g.rows - 1; r >= 0; r-- {
		for c := range g.cols {
			bit := uint(g.bottom[c]) + uint(r)
			mark := byte('.')
			if s.Mine>>bit&1 == 1 {
				mark = marks[s.Moves&1]
			} else if s.Theirs>>bit&1 == 1 {
				mark = marks[1-s.Moves&1]
			}
			fmt.Fprintf(&b, " %c ", mark)
		}
		b.WriteByte('\n')
	}
	for c := range g.cols {
		fmt.Fprintf(&b, "%2d ", c)
	}
	b.WriteByte('\n')
	return b.String()
}

// ActionName names a column by its number, from 0.
func (g *ConnectFour) ActionName(_ *ConnectFourState, a int32) string { return fmt.Sprint(a) }

// Validate refuses boards that no order of drops gives.
func (g *ConnectFour) Validate(s *ConnectFourState) error {
	all := s.Mine | s.Theirs
	if all&^g.full != 0 || s.Mine&s.Theirs != 0 {
		return fmt.Errorf("impossible board %x/%x", s.Mine, s.Theirs)
	}
	for c := range g.cols {
		column := all >> g.bottom[c] & (1<<g.rows - 1)
		if column&(column+1) != 0 {
			return fmt.Errorf("a stone floats in column %d", c)
		}
	}
	if s.Ended != (all == g.full || g.wins(s.Mine) || g.wins(s.Theirs)) {
		return fmt.Errorf("ended is %v on the board %x/%x", s.Ended, s.Mine, s.Theirs)
	}
	return nil
}
