package envs

import (
	"fmt"
	"math/bits"
	"strings"
)

// TicTacToe is noughts and crosses, and the example to copy when you add a game. The pieces, from
// top to bottom: the keywords, the rules with their constructor, the state, then one method after
// the other of the contract in rules.go. When it compiles, add one line to the registry and run
// `go test ./envs/...`: every registered environment goes through the same battery.
type TicTacToe struct{}

// TicTacToeConfig holds the keywords: there are none. A field would look like
//
//	Rows int `json:"rows" default:"3" doc:"rows of the board, 3 to 19"`
type TicTacToeConfig struct{}

// NewTicTacToe checks the keywords and returns the rules. An error here should wrap ErrKeyword.
func NewTicTacToe(TicTacToeConfig) (*TicTacToe, error) { return &TicTacToe{}, nil }

// TicTacToeState is plain data: copying it is cloning it, and its bytes come for free. Fields are
// exported only so that tests of other packages may set up positions.
type TicTacToeState struct {
	// Stones of player 0 and player 1: bit i is cell i, by rows from the top left.
	Stones [2]uint16
	Mover  uint8 // the player to move
	Ended  bool
}

// tttLines are the eight winning lines.
var tttLines = [8]uint16{0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124}

const tttFull = 0o777

// Spec describes the game. The reward is +1 to a mover who completes a line, else 0: a draw is 0
// and ended, which is why ending is a flag of its own.
func (*TicTacToe) Spec() Spec {
	return Spec{
		ID: "TicTacToe-v0", Version: 1,
		Obs: []ArraySpec{{
			// board[row, column, 0] is the mover's stone, [.., 1] the opponent's.
			Name: "board", DType: Bool, Shape: []int{3, 3, 2}, Low: []float64{0}, High: []float64{1},
		}},
		NumActions: 9, NumPlayers: 2, RewardLow: -1, RewardHigh: 1,
	}
}

// Reset starts with an empty board. Nothing is random, so the seed isn't used.
func (*TicTacToe) Reset(s *TicTacToeState, _ uint64) { *s = TicTacToeState{} }

// Step puts the mover's stone on a free cell.
func (*TicTacToe) Step(s *TicTacToeState, action int32) Outcome {
	if s.Ended {
		return Outcome{Terminated: true}
	}
	me := s.Mover
	s.Stones[me] |= 1 << action
	s.Mover = 1 - me
	if tttWins(s.Stones[me]) {
		s.Ended = true
		return Outcome{Reward: 1, Terminated: true}
	}
	s.Ended = s.Stones[0]|s.Stones[1] == tttFull
	return Outcome{Terminated: s.Ended}
}

func tttWins(stones uint16) bool {
	for _, l := range tttLines {
		if stones&l == l {
			return true
		}
	}
	return false
}

// Pick draws among the free cells.
func (*TicTacToe) Pick(s *TicTacToeState, r uint64) int32 {
	free := uint64(tttFull &^ (s.Stones[0] | s.Stones[1]))
	if s.Ended || free == 0 {
		return -1
	}
	return int32(nthBit(free, nth(r, bits.OnesCount64(free))))
}

// Hash is of the stones and the mover.
func (*TicTacToe) Hash(s *TicTacToeState) uint64 {
	return HashKey(uint64(s.Stones[0])<<32 | uint64(s.Stones[1])<<16 | uint64(s.Mover))
}

// Observe writes the board as the mover sees it: his own stones first.
func (*TicTacToe) Observe(s *TicTacToeState, row Row) {
	board := row.Bool(0)
	mine, theirs := s.Stones[s.Mover], s.Stones[1-s.Mover]
	for i := range 9 {
		board[2*i] = mine>>i&1 == 1
		board[2*i+1] = theirs>>i&1 == 1
	}
}

// Mask allows the free cells; nothing after the end.
func (*TicTacToe) Mask(s *TicTacToeState, legal []bool) {
	taken := s.Stones[0] | s.Stones[1]
	if s.Ended {
		taken = tttFull
	}
	for i := range 9 {
		legal[i] = taken>>i&1 == 0
	}
}

// Legal is Mask for one action.
func (g *TicTacToe) Legal(s *TicTacToeState, action int32) bool { return !s.Ended && g.free(s, action) }

// ToPlay returns the mover.
func (*TicTacToe) ToPlay(s *TicTacToeState) int32 { return int32(s.Mover) }

// Symmetries lists the seven turns and reflections of the square.
func (*TicTacToe) Symmetries() []Symmetry { return squareSymmetries(3, 2) }

// Text draws the board with X for player 0.
func (*TicTacToe) Text(s *TicTacToeState) string {
	var b strings.Builder
	for i := range 9 {
		c := byte('.')
		switch {
		case s.Stones[0]>>i&1 == 1:
			c = 'X'
		case s.Stones[1]>>i&1 == 1:
			c = 'O'
		}
		b.WriteByte(c)
		if i%3 == 2 {
			b.WriteByte('\n')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// ActionName names a cell by its column letter and row number, as in chess notation.
func (*TicTacToe) ActionName(_ *TicTacToeState, a int32) string {
	return fmt.Sprintf("%c%d", 'a'+a%3, 3-a/3)
}

// Validate refuses positions that play can't reach: it guards decoding, not play.
func (*TicTacToe) Validate(s *TicTacToeState) error {
	if s.Mover > 1 || (s.Stones[0]|s.Stones[1])&^tttFull != 0 || s.Stones[0]&s.Stones[1] != 0 {
		return fmt.Errorf("impossible board %03o/%03o, mover %d", s.Stones[0], s.Stones[1], s.Mover)
	}
	full := s.Stones[0]|s.Stones[1] == tttFull
	if over := full || tttWins(s.Stones[0]) || tttWins(s.Stones[1]); over != s.Ended {
		return fmt.Errorf("ended is %v on the board %03o/%03o", s.Ended, s.Stones[0], s.Stones[1])
	}
	return nil
}

// BestActions marks the actions that keep the value of the position, by exhaustive search.
func (g *TicTacToe) BestActions(s *TicTacToeState, best []bool) {
	clear(best)
	if s.Ended {
		return
	}
	want := g.value(s)
	for a := range int32(9) {
		best[a] = g.free(s, a) && g.after(s, a) == want
	}
}

func (*TicTacToe) free(s *TicTacToeState, a int32) bool {
	return (s.Stones[0]|s.Stones[1])>>a&1 == 0
}

// value returns the value of an open position for its mover.
func (g *TicTacToe) value(s *TicTacToeState) int {
	v := -1
	for a := int32(0); a < 9 && v < 1; a++ {
		if g.free(s, a) {
			v = max(v, g.after(s, a))
		}
	}
	return v
}

// after returns the value, for the mover of s, of playing a.
func (g *TicTacToe) after(s *TicTacToeState, a int32) int {
	t := *s
	switch o := g.Step(&t, a); {
	case o.Reward > 0:
		return 1
	case o.Terminated:
		return 0
	}
	return -g.value(&t)
}
