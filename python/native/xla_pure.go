package native

import (
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
)

// A row of a pure environment's state: the state's own bytes, and at the end eight more, of which three are
// flags: the episode is over, by the rules or an illegal action, by a time limit.
const (
	pureTail       = 8
	tailOver       = 0
	tailTerminated = 1
	tailTruncated  = 2
)

func pureWidth(env *envs.Env) int { return (env.StateSize()+7)/8*8 + pureTail }

// pureCall does some rows of a call on states that are in the arrays themselves.
type pureCall struct {
	p       *nativePool
	before  []byte // nil: begin
	seeds   []uint64
	actions []int32

	state                 []byte
	obs, info             []envs.Array
	toPlay                []int32
	mask                  []bool
	terminated, truncated []bool
	rewards               []float32
}

// results takes the results: state, observation, info, to_play, mask, terminated, truncated, rewards.
func (c *pureCall) results(f *frame, n int) {
	spec := c.p.Env().Spec()
	c.state = out[byte](f, n*pureWidth(c.p.Env()))
	c.obs, c.info = f.arrays(spec.Obs, n), f.arrays(spec.Info, n)
	c.toPlay, c.mask = out[int32](f, n), out[bool](f, n*spec.NumActions)
	c.terminated, c.truncated = out[bool](f, n), out[bool](f, n)
	c.rewards = out[float32](f, n*spec.NumPlayers)
}

func (p *nativePool) pure() error {
	if !p.Env().Capabilities().Plain {
		return fmt.Errorf("%w: states of %s have pointers: they can't be bytes of an array", errInvalid, p.Env().Spec().ID)
	}
	p.xla.mu.Lock()
	defer p.xla.mu.Unlock()
	if p.xla.cost != nil {
		return nil
	}
	var err error
	p.xla.cost, err = dispatch.New(p.Config().Dispatch, p.Workers())
	p.xla.arenas.New = func() any { return p.Env().NewArena(0) }
	return err
}

// xlaInit: seeds [n] -> the results of pureCall.
func xlaInit(p *nativePool, f *frame) error {
	c := &pureCall{p: p, seeds: f.seeds(0)}
	return c.run(f, len(c.seeds))
}

// xlaPure: state [n, width], actions [n] -> the results of pureCall.
func xlaPure(p *nativePool, f *frame) error {
	n := f.count(0) / pureWidth(p.Env())
	if f.count(1) != n {
		return fmt.Errorf("%w: %d states, %d actions; want equally many", errInvalid, n, f.count(1))
	}
	c := &pureCall{p: p, before: in[byte](f, 0), actions: in[int32](f, 1)}
	return c.run(f, n)
}

func (c *pureCall) run(f *frame, n int) error {
	if err := c.p.pure(); err != nil {
		return err
	}
	c.results(f, n)
	c.p.xla.cost.Run(n, func(lo, hi int) { c.part(lo, hi) })
	return nil
}

// part does rows lo to hi-1.
func (c *pureCall) part(lo, hi int) {
	a := c.p.xla.arenas.Get().(envs.Arena)
	defer c.p.xla.arenas.Put(a)
	n := hi - lo
	a.Grow(n)
	slots := make([]int32, n)
	for i := range slots {
		slots[i] = int32(i)
	}
	w := pureWidth(c.p.Env())
	state := c.state[lo*w : hi*w]
	clear(c.terminated[lo:hi])
	clear(c.truncated[lo:hi])
	players := c.p.Env().Spec().NumPlayers
	clear(c.rewards[lo*players : hi*players])
	if c.before == nil {
		clear(state)
		a.Reset(slots, nil, c.seeds[lo:hi])
	} else {
		copy(state, c.before[lo*w:hi*w])
		a.Import(slots, state, w)
		c.step(a, slots, state, lo)
	}
	a.Export(slots, state, w)
	c.look(a, slots, lo)
}

// step applies actions; as pgx does, an illegal one ends the game and costs its player 1, which the others get,
// and nothing happens after the end.
func (c *pureCall) step(a envs.Arena, slots []int32, state []byte, lo int) {
	w, players := pureWidth(c.p.Env()), a.Spec().NumPlayers
	movers, results := make([]int32, len(slots)), make([]envs.Outcome, len(slots))
	a.ToPlay(slots, movers)
	actions, rewards := c.actions[lo:lo+len(slots)], c.rewards[lo*players:(lo+len(slots))*players]
	if c.allLive(a, slots, actions, state) {
		a.Step(slots, slots, actions, results)
		a.Rewards(slots, movers, results, rewards)
	} else {
		for i := range slots {
			c.stepOne(a, slots[i:i+1], actions[i:i+1], movers[i:i+1], results[i:i+1],
				rewards[i*players:(i+1)*players], state[i*w+w-pureTail:(i+1)*w])
		}
	}
	for i, o := range results {
		c.terminated[lo+i], c.truncated[lo+i] = o.Terminated, o.Truncated
		if o.Terminated || o.Truncated {
			tail := state[i*w+w-pureTail:]
			tail[tailOver], tail[tailTerminated], tail[tailTruncated] = 1, bit(o.Terminated), bit(o.Truncated)
		}
	}
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// allLive says that no episode is over and every action is legal.
func (c *pureCall) allLive(a envs.Arena, slots, actions []int32, state []byte) bool {
	w, n := pureWidth(c.p.Env()), uint32(a.Spec().NumActions)
	for i, action := range actions {
		if uint32(action) >= n || state[i*w+w-pureTail+tailOver] != 0 {
			return false
		}
	}
	return a.Check(slots, actions) < 0
}

// stepOne is step for one row.
func (c *pureCall) stepOne(
	a envs.Arena, slot, action, mover []int32, result []envs.Outcome, rewards []float32, tail []byte,
) {
	n := uint32(a.Spec().NumActions)
	switch {
	case tail[tailOver] != 0:
		result[0] = envs.Outcome{Terminated: tail[tailTerminated] != 0, Truncated: tail[tailTruncated] != 0}
	case uint32(action[0]) >= n || a.Check(slot, action) >= 0:
		result[0] = envs.Outcome{Terminated: true}
		for k := range rewards {
			rewards[k] = 1
		}
		rewards[mover[0]] = -1
	default:
		a.Step(slot, slot, action, result)
		a.Rewards(slot, mover, result, rewards)
	}
}

// look writes what the states look like; after the end every action is legal, as pgx has it, so that no row of
// a mask is empty.
func (c *pureCall) look(a envs.Arena, slots []int32, lo int) {
	hi, n := lo+len(slots), a.Spec().NumActions
	a.Observe(slots, c.obs, lo)
	a.Info(slots, c.info, lo)
	a.ToPlay(slots, c.toPlay[lo:hi])
	a.Mask(slots, c.mask[lo*n:hi*n])
	for row := lo; row < hi; row++ {
		if c.terminated[row] || c.truncated[row] {
			for k := range n {
				c.mask[row*n+k] = true
			}
		}
	}
}
