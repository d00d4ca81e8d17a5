package pool

import (
	"errors"
	"fmt"

	"github.com/azserve/azserve/internal/dispatch"
)

// ErrConfig is the kind of every error about a pool's settings.
var ErrConfig = errors.New("pool: bad setting")

// Autoreset says what happens to an environment whose episode has ended (Gymnasium's names).
type Autoreset string

// The autoreset modes.
const (
	// SameStep starts the next episode within the step that ended the last one: the observation is
	// the new episode's first, and FinalObs has the last one of the old. It is the default.
	SameStep Autoreset = "same_step"
	// NextStep returns the last observation; the environment's next action is ignored and starts
	// the next episode, with reward 0.
	NextStep Autoreset = "next_step"
	// Disabled returns the last observation; sending another action is ErrEnded until Reset.
	Disabled Autoreset = "disabled"
)

// Config is a pool's settings.
type Config struct {
	NumEnvs    int      // at least 1
	BatchSize  int      // rows a Recv waits for; 0 means NumEnvs
	Seeds      []uint64 // [NumEnvs] one an environment, or empty: 0, 1, 2, ...
	NumThreads int      // 0 means as Threads says
	Dispatch   dispatch.Mode
	Autoreset  Autoreset // "" means SameStep
	CPUs       []int     // worker t is pinned to CPUs[t % len]; empty: the system decides
	Record     bool      // keep the actions of each episode, for Replay
	MaxStates  int       // budget of states; see statestore.Config. The environments' own come on top, to 2^24 in all
	MaxBytes   int64
}

// withDefaults returns a copy with the defaults filled in.
func (c Config) withDefaults() Config {
	if c.BatchSize == 0 {
		c.BatchSize = c.NumEnvs
	}
	if c.Autoreset == "" {
		c.Autoreset = SameStep
	}
	if len(c.Seeds) == 0 {
		c.Seeds = make([]uint64, max(c.NumEnvs, 0))
		for i := range c.Seeds {
			c.Seeds[i] = uint64(i)
		}
	}
	return c
}

// validate reports the first fault.
func (c *Config) validate() error {
	switch {
	case c.NumEnvs < 1 || c.NumEnvs > 1<<22:
		return fmt.Errorf("%w: num_envs=%d; want 1 to %d", ErrConfig, c.NumEnvs, 1<<22)
	case c.BatchSize < 1 || c.BatchSize > c.NumEnvs:
		return fmt.Errorf("%w: batch_size=%d; want 1 to num_envs=%d", ErrConfig, c.BatchSize, c.NumEnvs)
	case len(c.Seeds) != c.NumEnvs:
		return fmt.Errorf("%w: %d seeds; want num_envs=%d", ErrConfig, len(c.Seeds), c.NumEnvs)
	}
	switch c.Autoreset {
	case SameStep, NextStep, Disabled:
		return nil
	}
	return fmt.Errorf("%w: autoreset=%q; want %q, %q or %q", ErrConfig, c.Autoreset, SameStep, NextStep,
		Disabled)
}
