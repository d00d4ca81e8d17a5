package envs

import (
	"fmt"
	"math/bits"
	"strings"
)

// Gomoku is five in a row on a square board: who first has connect stones or more in an unbroken line, in
// any of the four directions, wins (freestyle: no further rules).
type Gomoku struct{ size, connect, cells int }

// GomokuConfig holds the keywords.
type GomokuConfig struct {
	Size    int `json:"size" default:"15" doc:"rows and columns of the board, 3 to 19"`
	Connect int `json:"connect" default:"5" doc:"stones in a row that win, 2 to 19"`
}

// gomokuWords is how many words hold a bit for each of 19 x 19 cells.
const gomokuWords = 6

// GomokuState is a position. Fields are exported only so that tests may set up positions.
type GomokuState struct {
	Stones [2][gomokuWords]uint64 // of player 0 and player 1: bit i is cell i, by rows from the top left
	Moves  int32                  // played so far; player Moves%2 is to move
	Ended  bool
}

// NewGomoku checks the keywords and returns the rules.
func NewGomoku(c GomokuConfig) (*Gomoku, error) {
	const id = "Gomoku-v0"
	if err := inRange(id, "size", c.Size, 3, 19); err != nil {
		return nil, err
	}
	if err := inRange(id, "connect", c.Connect, 2, 19); err != nil {
		return nil, err
	}
	return &Gomoku{c.Size, c.Connect, c.Size * c.Size}, nil
}

// Spec describes the game. The reward is +1 to a mover who completes a line; a full board is a draw.
func (g *Gomoku) Spec() Spec {
	return Spec{
		ID: "Gomoku-v0", Version: 1, Keywords: fmt.Sprintf("size=%d connect=%d", g.size, g.connect),
		Obs: []ArraySpec{{
			// board[row, column, 0] is the mover's stone, [.., 1] the opponent's.
			Name: "board", DType: Bool, Shape: []int{g.size, g.size, 2}, Low: []float64{0}, High: []float64{1},
		}},
		NumActions: g.cells, NumPlayers: 2, RewardLow: -1, RewardHigh: 1,
	}
}

// Reset starts with an empty board.
func (g *Gomoku) Reset(s *GomokuState, _ uint64) { *s = GomokuState{} }

// Step puts the mover's stone on a free cell.
func (g *Gomoku) Step(s *GomokuState, action int32) Outcome {
	if s.Ended {
		return Outcome{Terminated: true}
	}
	mine := &s.Stones[s.Moves&1]
	mine[action>>6] |= 1 << (action & 63)
	s.Moves++
	if g.wins(mine, int(action)) {
		s.Ended = true
		return Outcome{Reward: 1, Terminated: true}
	}
	s.Ended = int(s.Moves) == g.cells
	return Outcome{Terminated: s.Ended}
}

// wins says whether a line runs through a cell: only the stone put last can have completed one.
func (g *Gomoku) wins(stones *[gomokuWords]uint64, cell int) bool {
	row, col := cell/g.size, cell%g.size
	for _, d := range [4][2]int{{0, 1}, {1, 0}, {1, 1}, {1, -1}} {
		if 1+g.run(stones, row, col, d[0], d[1])+g.run(stones, row, col, -d[0], -d[1]) >= g.connect {
			return true
		}
	}
	return false
}

// run counts the stones in a direction from a cell, without that cell.
func (g *Gomoku) run(stones *[gomokuWords]uint64, row, col, down, right int) (count int) {
	for count < g.connect-1 {
		row, col = row+down, col+right
		if uint(row) >= uint(g.size) || uint(col) >= uint(g.size) {
			return count
		}
		if cell := row*g.size + col; stones[cell>>6]>>(cell&63)&1 == 0 {
			return count
		}
		count++
	}
	return count
}

// free returns the free cells of a word.
func (g *Gomoku) free(s *GomokuState, word int) uint64 {
	left := g.cells - 64*word
	if left <= 0 || s.Ended {
		return 0
	}
	all := ^uint64(0)
	if left < 64 {
		all = 1<<left - 1
	}
	return all &^ (s.Stones[0][word] | s.Stones[1][word])
}

// Observe writes the board as the mover sees it: his own stones first.
func (g *Gomoku) Observe(s *GomokuState, row Row) {
	board := row.Bool(0)
	mine, theirs := &s.Stones[s.Moves&1], &s.Stones[1-s.Moves&1]
	for i := range g.cells {
		board[2*i] = mine[i>>6]>>(i&63)&1 == 1
		board[2*i+1] = theirs[i>>6]>>(i&63)&1 == 1
	}
}

// Mask allows the free cells; nothing after the end.
func (g *Gomoku) Mask(s *GomokuState, legal []bool) {
	for w := 0; len(legal) > 0; w++ {
		free, word := g.free(s, w), legal[:min(64, len(legal))]
		for i := range word {
			word[i] = free&1 == 1
			free >>= 1
		}
		legal = legal[len(word):]
	}
}

// Pick draws among the free cells.
func (g *Gomoku) Pick(s *GomokuState, r uint64) int32 {
	if s.Ended {
		return -1
	}
	left := nth(r, g.cells-int(s.Moves))
	for w := range gomokuWords {
		free := g.free(s, w)
		count := bits.OnesCount64(free)
		if left >= count {
			left -= count
			continue
		}
		return int32(64*w + nthBit(free, left))
	}
	return -1
}

// Legal is Mask for one action.
func (g *Gomoku) Legal(s *GomokuState, action int32) bool {
	return !s.Ended && (s.Stones[0][action>>6]|s.Stones[1][action>>6])>>(action&63)&1 == 0
}

// ToPlay returns the mover.
func (g *Gomoku) ToPlay(s *GomokuState) int32 { return s.Moves & 1 }

// Hash is of the stones: who moves is in their number.
func (g *Gomoku) Hash(s *GomokuState) uint64 {
	h := HashKey()
	for p := range s.Stones {
		for _, w := range s.Stones[p] {
			h = hashStep(h, w)
		}
	}
	return h
}

// Symmetries lists the turns and reflections of the board.
func (g *Gomoku) Symmetries() []Symmetry { return squareSymmetries(g.size, 2) }

// Text draws the board with X for player 0.
func (g *Gomoku) Text(s *GomokuState) string {
	var b strings.Builder
	for i := range g.cells {
		mark := byte('.')
		for p, stones := range s.Stones {
			if stones[i>>6]>>(i&63)&1 == 1 {
				mark = "XO"[p]
			}
		}
		b.WriteByte(mark)
		if (i+1)%g.size == 0 {
			b.WriteByte('\n')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// ActionName names a cell by its column letter and row number from below.
func (g *Gomoku) ActionName(_ *GomokuState, a int32) string {
	return fmt.Sprintf("%c%d", 'a'+int(a)%g.size, g.size-int(a)/g.size)
}

// Validate refuses positions that play can't reach.
func (g *Gomoku) Validate(s *GomokuState) error {
	var count [2]int
	won := false
	for p := range s.Stones {
		for i := range 64 * gomokuWords {
			if s.Stones[p][i>>6]>>(i&63)&1 == 0 {
				continue
			}
			if count[p]++; i >= g.cells || s.Stones[1-p][i>>6]>>(i&63)&1 == 1 {
				return fmt.Errorf("impossible stone of player %d on cell %d", p, i)
			}
			won = won || g.wins(&s.Stones[p], i)
		}
	}
	n := count[0] + count[1]
	if int(s.Moves) != n || count[0] != (n+1)/2 {
		return fmt.Errorf("moves=%d with %d and %d stones", s.Moves, count[0], count[1])
	}
	if over := won || n == g.cells; over != s.Ended {
		return fmt.Errorf("ended is %v with %d stones", s.Ended, n)
	}
	return nil
}
