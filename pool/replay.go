package pool

import (
	"fmt"

	"github.com/azserve/azserve/internal/fault"
)

// episodeLog is what happened to an environment since its episode began, or since a state was put into it.
type episodeLog struct {
	start   int32   // slot of the first state, held
	held    bool    // start is valid
	begun   bool    // the episode is new: its first state isn't held yet
	actions []int32 // since then
}

// log notes jobs that were done. It is called by the thread that owns the environments.
func (p *Pool) log(sc *scratch, lo, hi int) {
	if p.logs == nil {
		return
	}
	for i := lo; i < hi; i++ {
		e := sc.env[i]
		if sc.kind[i] == jobStep {
			p.logs[e].actions = append(p.logs[e].actions, sc.action[i])
		} else {
			p.unlog(e)
		}
	}
}

// unlog forgets the actions: a new episode begins.
func (p *Pool) unlog(e int32) {
	if p.logs != nil {
		p.logs[e].actions, p.logs[e].begun = p.logs[e].actions[:0], true
	}
}

// startNewLogs holds the first states of episodes that just began. Call with the lock held.
func (p *Pool) startNewLogs(ids []int32) {
	for _, e := range ids {
		if p.logs[e].begun {
			p.startLog(e)
		}
	}
}

// startLog makes an environment's present state the start of its log. Call with the lock held.
func (p *Pool) startLog(e int32) {
	if p.logs == nil {
		return
	}
	l := &p.logs[e]
	if l.held {
		p.live.Drop(l.start)
	}
	l.start, l.held, l.begun, l.actions = p.live.Hold(e), true, false, l.actions[:0]
}

// dropLogs gives the states back.
func (p *Pool) dropLogs() {
	for i := range p.logs {
		if p.logs[i].held {
			p.live.Drop(p.logs[i].start)
		}
	}
	p.logs = nil
}

// Actions returns the actions of an environment's present episode, or since the last Restore. Only with
// Config.Record.
func (p *Pool) Actions(e int32) (actions []int32, err error) {
	err = p.recorded([]int32{e}, func() error {
		actions = append([]int32{}, p.logs[e].actions...)
		return nil
	})
	return actions, err
}

// Replay writes handles of the states that environments ids were in after steps[i] steps of their present
// episodes (counted from the last Restore, if there was one), made by stepping again from the start: equal
// bits. Each handle is to be released. Only with Config.Record.
func (p *Pool) Replay(ids, steps, out []int32) error {
	starts, actions := make([]int32, len(ids)), make([][]int32, len(ids))
	if len(steps) != len(ids) || len(out) != len(ids) {
		return fmt.Errorf("%w: %d env_id, %d steps, %d states; want equally many", ErrConfig, len(ids), len(steps),
			len(out))
	}
	err := p.recorded(ids, func() error {
		for i, e := range ids {
			if n := len(p.logs[e].actions); steps[i] < 0 || int(steps[i]) > n {
				return fmt.Errorf("%w: %w: step %d of env_id %d; want 0 to %d", ErrConfig, fault.RowError(i), steps[i], e, n)
			}
		}
		for i, e := range ids {
			starts[i] = p.live.HoldSlot(p.logs[e].start)
			actions[i] = append([]int32{}, p.logs[e].actions[:steps[i]]...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.live.Replay(starts, actions, out) // drops what was held
}

// recorded calls f with the lock held if there are logs and all environments are idle.
func (p *Pool) recorded(ids []int32, f func() error) error {
	if !p.cfg.Record {
		return fmt.Errorf("%w: actions are kept with record=true only", ErrConfig)
	}
	return p.idle(ids, false, f)
}
