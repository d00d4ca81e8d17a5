package selfplay

import (
	"errors"
	"fmt"
	"math"
)

// ErrNoGames is returned for the Elo difference of no games.
var ErrNoGames = errors.New("selfplay: no games")

// Score is the result of a match, seen from the first player.
type Score struct {
	Wins, Draws, Losses int
	Distinct            int       // different games, by their moves
	Pairs               []float64 // score of each pair of games from one opening, 0 to 1
}

// Games returns how many were played.
func (s *Score) Games() int { return s.Wins + s.Draws + s.Losses }

// Rate returns (wins + draws/2) / games, NaN without games.
func (s *Score) Rate() float64 {
	return (float64(s.Wins) + float64(s.Draws)/2) / float64(s.Games())
}

// Interval returns the 95 % interval of the rate. The two games of an opening are not independent,
// so it comes from the spread of the pairs; with fewer than two pairs it is 0 to 1. Where all pairs
// are equal the rule of three bounds it.
func (s *Score) Interval() (low, high float64) {
	n := float64(len(s.Pairs))
	if n < 2 {
		return 0, 1
	}
	mean, spread := s.Rate(), 0.0
	for _, p := range s.Pairs {
		spread += (p - mean) * (p - mean)
	}
	half := 1.96 * math.Sqrt(spread/(n-1)/n)
	if spread == 0 {
		half = 3 / n
	}
	return max(0, mean-half), min(1, mean+half)
}

// Elo returns the rating difference 400*log10(s/(1-s)) of a score rate: infinite at 0 and 1.
func Elo(rate float64) float64 {
	switch {
	case rate <= 0:
		return math.Inf(-1)
	case rate >= 1:
		return math.Inf(1)
	}
	return 400 * math.Log10(rate/(1-rate))
}

// Elo returns the rating difference with its 95 % interval.
func (s *Score) Elo() (diff, low, high float64, err error) {
	if s.Games() == 0 {
		return 0, 0, 0, ErrNoGames
	}
	lo, hi := s.Interval()
	return Elo(s.Rate()), Elo(lo), Elo(hi), nil
}

func (s *Score) String() string {
	diff, low, high, err := s.Elo()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.1f %% (+%d =%d -%d, %d distinct games), Elo %s [%s, %s]", 100*s.Rate(), s.Wins,
		s.Draws, s.Losses, s.Distinct, eloText(diff), eloText(low), eloText(high))
}

func eloText(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "+inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	return fmt.Sprintf("%+.0f", x)
}
