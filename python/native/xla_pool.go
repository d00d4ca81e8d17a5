package native

import (
	"fmt"
	"slices"

	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
)

// xlaReset: handle, seeds [n] -> as xlaStep.
func xlaReset(p *nativePool, f *frame) error {
	if err := p.turn(f); err != nil {
		return err
	}
	if err := p.AsyncReset(nil, f.seeds(1), nil); err != nil {
		return err
	}
	return p.receive(f)
}

// xlaStep: handle, actions [n] -> handle, observation, info, reward, terminated, truncated, to_play, elapsed,
// mask, and rewards with several players.
func xlaStep(p *nativePool, f *frame) error {
	if err := p.turn(f); err != nil {
		return err
	}
	if err := p.Send(in[int32](f, 1), nil); err != nil {
		return err
	}
	return p.receive(f)
}

// receive writes a whole batch to the results.
func (p *nativePool) receive(f *frame) error {
	n, spec := p.Config().NumEnvs, p.Env().Spec()
	b := pool.Batch{
		Obs: f.arrays(spec.Obs, n), Info: f.arrays(spec.Info, n), Reward: out[float32](f, n),
		Terminated: out[bool](f, n), Truncated: out[bool](f, n), ToPlay: out[int32](f, n),
		Elapsed: out[int32](f, n), Mask: out[bool](f, n*spec.NumActions),
	}
	if spec.NumPlayers > 1 {
		b.Rewards = out[float32](f, n*spec.NumPlayers)
	}
	_, err := p.Recv(-1, &b)
	return err
}

// xlaSnapshot: handle -> handle, states [n].
func xlaSnapshot(p *nativePool, f *frame) error {
	if err := p.turn(f); err != nil {
		return err
	}
	n := p.Config().NumEnvs
	ids, states := make([]int32, n), out[int32](f, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	if err := p.Snapshot(ids, states); err != nil {
		return err
	}
	p.made(states)
	return nil
}

// xlaSimulate: states [n], actions [n] -> states, observation, info, reward, terminated, truncated, to_play,
// mask, mover, rewards. As pgx has it, an illegal action ends the game and costs its player 1, which the others
// get: a search that knows nothing of rules may try one. What its state becomes then doesn't matter.
func xlaSimulate(p *nativePool, f *frame) error {
	n, spec := f.count(0), p.Env().Spec()
	if f.count(1) != n {
		return fmt.Errorf("%w: %d states, %d actions; want equally many", errInvalid, n, f.count(1))
	}
	parents := in[int32](f, 0)
	actions, illegal, err := p.onlyLegal(parents, in[int32](f, 1))
	if err != nil {
		return err
	}
	steps := statestore.Steps{Children: out[int32](f, n)}
	steps.Obs, steps.Info = f.arrays(spec.Obs, n), f.arrays(spec.Info, n)
	steps.Reward, steps.Terminated, steps.Truncated = out[float32](f, n), out[bool](f, n), out[bool](f, n)
	steps.ToPlay, steps.Mask = out[int32](f, n), out[bool](f, n*spec.NumActions)
	steps.Movers, steps.Rewards = out[int32](f, n), out[float32](f, n*spec.NumPlayers)
	if err := p.Store().Simulate(parents, actions, &steps); err != nil {
		return err
	}
	for _, row := range illegal {
		steps.Reward[row], steps.Terminated[row], steps.Truncated[row] = -1, true, false
		for k := range spec.NumPlayers {
			steps.Rewards[row*spec.NumPlayers+k] = 1
		}
		steps.Rewards[row*spec.NumPlayers+int(steps.Movers[row])] = -1
	}
	p.made(steps.Children)
	return nil
}

// onlyLegal returns the actions with a legal one in place of each illegal one, and the rows of those.
func (p *nativePool) onlyLegal(states, actions []int32) ([]int32, []int, error) {
	n := p.Env().Spec().NumActions
	mask := make([]bool, len(states)*n)
	if err := p.Store().Read(states, statestore.View{Mask: mask}); err != nil {
		return nil, nil, err
	}
	var illegal []int
	out := clone(actions)
	for i, a := range actions {
		legal := mask[i*n : (i+1)*n]
		first := slices.Index(legal, true)
		switch {
		case first < 0: // the game is over: every action does nothing
			out[i] = 0
		case a < 0 || int(a) >= n || !legal[a] && !p.Env().Spec().AnyAction:
			out[i] = int32(first)
			illegal = append(illegal, i)
		}
	}
	return out, illegal, nil
}

// xlaObserve: states [n] -> observation, info, to_play, mask.
func xlaObserve(p *nativePool, f *frame) error {
	n, spec := f.count(0), p.Env().Spec()
	return p.Store().Read(in[int32](f, 0), statestore.View{
		Obs: f.arrays(spec.Obs, n), Info: f.arrays(spec.Info, n), ToPlay: out[int32](f, n),
		Mask: out[bool](f, n*spec.NumActions),
	})
}

// xlaRelease: states [n], whatever must be there before -> the number of states.
func xlaRelease(p *nativePool, f *frame) error {
	out[int32](f, 1)[0] = int32(f.count(0))
	return p.Store().Release(in[int32](f, 0))
}
