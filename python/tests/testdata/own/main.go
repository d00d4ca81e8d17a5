// Command own is a program with one environment of its own, outside of azserve's module: built as a
// program it has azserve's command line, built with -buildmode=c-shared it is a library for Python.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/azserve/azserve/cli"
	"github.com/azserve/azserve/envs"
	_ "github.com/azserve/azserve/python/native" // the library's functions
)

func init() {
	envs.MustRegister("Counter-v0", envs.NewEntry("Counts its steps.", NewCounter))
}

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// CounterConfig holds the keywords.
type CounterConfig struct {
	Limit  int32   `json:"limit" default:"3" doc:"steps of an episode"`
	Ending string  `json:"ending" default:"\"terminate\"" doc:"\"terminate\", \"truncate\" or \"both\""`
	Sleep  float64 `json:"sleep" default:"0" doc:"seconds that action 1 takes"`
	Panics bool    `json:"panics" default:"false" doc:"action 2 panics"`
}

// Counter is the rules.
type Counter struct{ c CounterConfig }

// CounterState is plain data.
type CounterState struct {
	Steps, Echo int32
	Start       float32
	Random      uint64
}

// NewCounter checks the keywords.
func NewCounter(c CounterConfig) (*Counter, error) {
	if c.Limit < 1 {
		return nil, fmt.Errorf("%w: Counter-v0: limit=%d; want at least 1", envs.ErrKeyword, c.Limit)
	}
	return &Counter{c}, nil
}

// Spec describes the environment.
func (g *Counter) Spec() envs.Spec {
	zero, many := []float64{-1}, []float64{1e9}
	return envs.Spec{
		ID: "Counter-v0", Version: 1, NumActions: 10, NumPlayers: 1, RewardHigh: 1, AllLegal: true,
		Keywords:        fmt.Sprintf("limit=%d ending=%s sleep=%g panics=%v", g.c.Limit, g.c.Ending, g.c.Sleep, g.c.Panics),
		MaxEpisodeSteps: int(g.c.Limit),
		Obs: []envs.ArraySpec{
			{Name: "count", DType: envs.Int32, Low: zero, High: many},
			{Name: "echo", DType: envs.Int32, Low: zero, High: many},
			{Name: "start", DType: envs.Float32, Shape: []int{1}, Low: zero, High: many},
		},
		Info: []envs.ArraySpec{{Name: "twice", DType: envs.Int32, Low: zero, High: many}},
	}
}

// Reset starts from a seed.
func (g *Counter) Reset(s *CounterState, seed uint64) {
	*s = CounterState{Random: seed}
	g.Restart(s)
}

// Restart goes on with the random stream.
func (g *Counter) Restart(s *CounterState) {
	s.Random = s.Random*6364136223846793005 + 1442695040888963407
	s.Steps, s.Echo, s.Start = 0, -1, float32(s.Random>>40)/(1<<24)
}

// Step counts.
func (g *Counter) Step(s *CounterState, action int32) envs.Outcome {
	if s.Steps < g.c.Limit {
		switch {
		case action == 1:
			time.Sleep(time.Duration(g.c.Sleep * float64(time.Second)))
		case action == 2 && g.c.Panics:
			panic("boom")
		}
		s.Steps++
		s.Echo = action
		return g.outcome(s, 1)
	}
	return g.outcome(s, 0)
}

func (g *Counter) outcome(s *CounterState, reward float32) envs.Outcome {
	over := s.Steps >= g.c.Limit
	return envs.Outcome{
		Reward: reward, Terminated: over && g.c.Ending != "truncate", Truncated: over && g.c.Ending != "terminate",
	}
}

// Observe writes the numbers.
func (g *Counter) Observe(s *CounterState, row envs.Row) {
	row.Int32(0)[0], row.Int32(1)[0], row.Float32(2)[0] = s.Steps, s.Echo, s.Start
}

// Info doubles.
func (g *Counter) Info(s *CounterState, row envs.Row) { row.Int32(0)[0] = 2 * s.Steps }

// Mask tells the end.
func (g *Counter) Mask(s *CounterState, legal []bool) {
	for i := range legal {
		legal[i] = s.Steps < g.c.Limit
	}
}
