package envs

import (
	"fmt"

	"github.com/azserve/azserve/internal/rng"
)

// Pig is the dice game for two: roll as often as you dare, a 1 loses what the turn brought; hold to keep
// it. Who first keeps target points wins. It is the example of rules with chance ([Chancer]), and of a
// player who moves again and again.
type Pig struct{ target int32 }

// PigConfig holds the keywords.
type PigConfig struct {
	Target int `json:"target" default:"100" doc:"points that win, 2 to 1000"`
}

// The actions and the outcomes: a roll has six, a hold only the first.
const (
	pigRoll = 0
	pigHold = 1
	pigDie  = 6
)

// PigState is a position. Fields are exported only so that tests may set up positions.
type PigState struct {
	Kept    [2]int32 // points of player 0 and player 1
	Turn    int32    // points of this turn, not kept yet
	Mover   uint8
	Pending uint8 // in an afterstate the action + 1, else 0
	Ended   bool
	Dice    rng.Stream
}

// NewPig checks the keywords and returns the rules.
func NewPig(c PigConfig) (*Pig, error) {
	if err := inRange("Pig-v0", "target", c.Target, 2, 1000); err != nil {
		return nil, err
	}
	return &Pig{int32(c.Target)}, nil
}

// Spec describes the game. The observation is the points of the mover, of the opponent, and of the turn,
// as shares of the target, and whether the die is in the air.
func (g *Pig) Spec() Spec {
	return Spec{
		ID: "Pig-v0", Version: 1, Keywords: fmt.Sprintf("target=%d", g.target),
		Obs: []ArraySpec{{
			Name: "points", DType: Float32, Shape: []int{4}, Low: []float64{0}, High: []float64{4},
		}},
		NumActions: 2, NumPlayers: 2, NumOutcomes: pigDie, RewardLow: 0, RewardHigh: 1,
	}
}

// Reset starts at 0 to 0.
func (g *Pig) Reset(s *PigState, seed uint64) { *s = PigState{Dice: rng.New(seed)} }

// Step decides, and rolls the state's own die.
func (g *Pig) Step(s *PigState, action int32) Outcome {
	if s.Ended {
		return Outcome{Terminated: true}
	}
	out := g.Decide(s, action)
	if out.Terminated {
		return out
	}
	var chances [pigDie]float32
	g.Chances(s, chances[:])
	return g.Happen(s, drawOutcome(chances[:], &s.Dice))
}

// Decide picks the die up, or keeps the turn's points.
func (g *Pig) Decide(s *PigState, action int32) Outcome {
	s.Pending = uint8(action) + 1
	if action == pigHold && s.Kept[s.Mover]+s.Turn >= g.target {
		s.Kept[s.Mover] += s.Turn
		s.Turn, s.Pending, s.Ended = 0, 0, true
		return Outcome{Reward: 1, Terminated: true}
	}
	return Outcome{}
}

// Chances is a fair die after a roll, and the one thing that happens after a hold.
func (g *Pig) Chances(s *PigState, chances []float32) {
	clear(chances)
	switch s.Pending {
	case pigRoll + 1:
		for o := range chances {
			chances[o] = 1. / pigDie
		}
	case pigHold + 1:
		chances[0] = 1
	}
}

// Happen shows the die: outcome 0 is a 1.
func (g *Pig) Happen(s *PigState, outcome int32) Outcome {
	held := s.Pending == pigHold+1
	s.Pending = 0
	switch {
	case held:
		s.Kept[s.Mover] += s.Turn
		s.Turn, s.Mover = 0, 1-s.Mover
	case outcome == 0:
		s.Turn, s.Mover = 0, 1-s.Mover
	default:
		s.Turn += outcome + 1
	}
	return Outcome{}
}

// Observe writes the points as the mover sees them.
func (g *Pig) Observe(s *PigState, row Row) {
	x, scale := row.Float32(0), 1/float32(g.target)
	x[0], x[1] = float32(s.Kept[s.Mover])*scale, float32(s.Kept[1-s.Mover])*scale
	x[2], x[3] = min(float32(s.Turn)*scale, 2), float32(s.Pending)
}

// Mask allows to hold once the turn has brought something.
func (g *Pig) Mask(s *PigState, legal []bool) {
	legal[pigRoll] = !s.Ended && s.Kept[s.Mover]+s.Turn < g.target
	legal[pigHold] = !s.Ended && s.Turn > 0
}

// ToPlay returns the mover.
func (g *Pig) ToPlay(s *PigState) int32 { return int32(s.Mover) }

// Hash is of everything but the dice to come.
func (g *Pig) Hash(s *PigState) uint64 {
	flags := uint64(s.Mover)<<1 | uint64(s.Pending)<<2
	if s.Ended {
		flags |= 1
	}
	return HashKey(uint64(s.Kept[0])<<32|uint64(s.Kept[1]), uint64(s.Turn)<<32|flags)
}

// Text shows the points.
func (g *Pig) Text(s *PigState) string {
	return fmt.Sprintf("player 0: %d, player 1: %d of %d; player %d to move, %d in this turn\n", s.Kept[0], s.Kept[1],
		g.target, s.Mover, s.Turn)
}

// ActionName is roll or hold.
func (g *Pig) ActionName(_ *PigState, action int32) string {
	return [...]string{"roll", "hold"}[action]
}

// Validate refuses points that no game has.
func (g *Pig) Validate(s *PigState) error {
	won := 0
	for _, kept := range s.Kept {
		if kept < 0 || kept >= g.target+pigDie {
			return fmt.Errorf("%d points; want 0 to %d", kept, g.target+pigDie-1)
		}
		if kept >= g.target {
			won++
		}
	}
	if s.Turn < 0 || s.Turn >= g.target+pigDie || s.Mover > 1 || s.Pending != 0 || s.Ended != (won == 1) {
		return fmt.Errorf("impossible state: turn=%d mover=%d pending=%d ended=%v", s.Turn, s.Mover, s.Pending, s.Ended)
	}
	return nil
}
