package search_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

const pigTarget = 20

// pigOracle is the probability that the mover wins Pig to pigTarget, by value iteration: of the mover's
// points, the opponent's, and the turn's.
type pigOracle [pigTarget][pigTarget][pigTarget + 6]float64

func (p *pigOracle) at(mine, theirs, turn int) float64 {
	if mine+turn >= pigTarget {
		return 1
	}
	return p[mine][theirs][turn]
}

// roll and hold are the probabilities to win after the action; hold wants mine + turn below the target.
func (p *pigOracle) roll(mine, theirs, turn int) float64 {
	sum := 1 - p.at(theirs, mine, 0)
	for die := 2; die <= 6; die++ {
		sum += p.at(mine, theirs, turn+die)
	}
	return sum / 6
}

func (p *pigOracle) hold(mine, theirs, turn int) float64 { return 1 - p.at(theirs, mine+turn, 0) }

func newPigOracle() *pigOracle {
	p := &pigOracle{}
	for change := 1.0; change > 1e-10; {
		change = 0
		for mine := range p {
			for theirs := range p {
				for turn := range pigTarget - mine {
					best := p.roll(mine, theirs, turn)
					if turn > 0 {
						best = max(best, p.hold(mine, theirs, turn))
					}
					change = max(change, math.Abs(best-p[mine][theirs][turn]))
					p[mine][theirs][turn] = best
				}
			}
		}
	}
	return p
}

// evaluator answers with exact values, 2P - 1; of an afterstate too.
func (p *pigOracle) evaluator(t testing.TB) evaluator.Func {
	return func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		for i := range in.N {
			x := in.Obs[0].F32[i*4:]
			whole := func(share float32) int { return int(math.Round(float64(share) * pigTarget)) }
			mine, theirs, turn := whole(x[0]), whole(x[1]), whole(x[2])
			win := p.at(mine, theirs, turn)
			require.Equal(t, x[3] > 0, in.Chance[i], "afterstates are marked")
			switch x[3] {
			case 1:
				win = p.roll(mine, theirs, turn)
			case 2:
				win = p.hold(mine, theirs, turn)
			}
			out.Value[i] = float32(2*win - 1)
		}
		clear(out.Logits)
		return nil
	}
}

func pigRig(t testing.TB, ev evaluator.Evaluator) *rig {
	env, err := envs.Make("Pig-v0", envs.Keywords{"target": []byte("20")})
	require.NoError(t, err)
	return newRig(t, env, ev)
}

// step plays an action in one state and returns the state after it.
func (r *rig) step(state, action int32) int32 {
	r.t.Helper()
	out := statestore.Steps{Children: make([]int32, 1)}
	require.NoError(r.t, r.store.Simulate([]int32{state}, []int32{action}, &out))
	return out.Children[0]
}

// legal returns what may be played in a state.
func (r *rig) legal(state int32) []bool {
	mask := make([]bool, r.env.Spec().NumActions)
	require.NoError(r.t, r.store.Read([]int32{state}, statestore.View{Mask: mask}))
	return mask
}

// pigPositions walks through a game, rolling twice where that goes well, and returns its positions.
func pigPositions(r *rig, moves int) []int32 {
	out := r.start(1)
	for i := range moves {
		last := out[len(out)-1]
		action := int32(0)
		if mask := r.legal(last); !mask[0] || (i%3 == 2 && mask[1]) {
			action = 1
		}
		out = append(out, r.step(last, action))
	}
	return out
}

// The search's values are those of value iteration, and it rolls and holds as that does.
func TestPig(t *testing.T) {
	p := newPigOracle()
	require.InDelta(t, 0.615559, p.at(0, 0, 0), 1e-6, "the published value of the game to 20")
	r := pigRig(t, p.evaluator(t))
	states := pigPositions(r, 12)
	obs := envs.NewArrays(r.env.Spec().Obs, len(states))
	require.NoError(t, r.store.Read(states, statestore.View{Obs: obs}))
	for _, policy := range r.policies() {
		cfg := r.plain(policy, 1000)
		cfg.PbCInit = 0.1 // little exploration, so that the mean is near the value of the best play
		out := r.search(cfg, states...)
		for i := range states {
			x := obs[0].F32[i*4:]
			whole := func(share float32) int { return int(math.Round(float64(share) * pigTarget)) }
			mine, theirs, turn := whole(x[0]), whole(x[1]), whole(x[2])
			if mine+turn >= pigTarget {
				continue
			}
			if policy == tree.AlphaZero { // the others explore more, which is what their mean then is of
				require.InDelta(t, 2*p.at(mine, theirs, turn)-1, out.Value[i], 0.15, "row %d", i)
			}
			if turn == 0 {
				continue
			}
			roll, hold := p.roll(mine, theirs, turn), p.hold(mine, theirs, turn)
			if best := map[bool]int32{true: 0, false: 1}[roll > hold]; math.Abs(roll-hold) > 0.05 {
				require.Equal(t, best, out.Action[i], "%s at %d:%d, %d in this turn", policy, mine, theirs, turn)
			}
		}
	}
}

// With random playouts the value of the game comes out as well: same player again and again, and chance.
func TestPigRollouts(t *testing.T) {
	ev, err := evaluator.NewRollout(1, 1000)
	require.NoError(t, err)
	r := pigRig(t, ev)
	for _, policy := range []tree.Policy{tree.AlphaZero, tree.UCT, tree.Stochastic} {
		cfg := r.plain(policy, 30_000)
		out := r.search(cfg, r.start(1)[0])
		require.InDelta(t, 2*0.615559-1, out.Value[0], 0.1, policy)
		require.Equal(t, int32(0), out.Action[0])
	}
}

// tree searches a state and returns its tree.
func (r *rig) tree(cfg search.Config, state int32) *tree.Export {
	r.t.Helper()
	s, err := search.New(r.store, &search.Roots{States: []int32{state}, Seeds: []uint64{1}}, cfg, r.ev.Needs())
	require.NoError(r.t, err)
	defer s.Close()
	require.NoError(r.t, s.Run(context.Background(), r.ev))
	return s.Tree(0).Export()
}

// Only Stochastic evaluates chance nodes; the others visit outcomes in proportion to their chances.
func TestChanceNodes(t *testing.T) {
	p := newPigOracle()
	seen := 0
	r := pigRig(t, nil)
	r.ev = evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		for _, chance := range in.Chance[:in.N] {
			if chance {
				seen++
			}
		}
		return p.evaluator(t)(ctx, in, out)
	})
	for _, policy := range r.policies() {
		for _, leaves := range []int{1, 4} {
			cfg := r.plain(policy, 300)
			cfg.LeavesPerStep = leaves
			seen = 0
			x := r.tree(cfg, r.start(1)[0])
			require.Equal(t, policy == tree.Stochastic, seen > 0)
			for i, chance := range x.Chance {
				if !chance || x.Terminal[i] || x.NodeVisits[i] < 2 {
					continue
				}
				row := x.ChildrenVisits[i*6 : i*6+6]
				below := int32(0)
				for _, n := range row {
					below += n
				}
				want := below
				if policy == tree.Stochastic {
					want++
				}
				require.Equal(t, want, x.NodeVisits[i])
				if row[1] > 0 { // a roll: a fair die
					for _, n := range row {
						require.InDelta(t, float64(below)/6, n, 3+float64(leaves-1)/2)
					}
				}
			}
		}
	}
}

// The search goes the way that the environment goes: nature draws the same after Advance.
func TestAdvanceWithChance(t *testing.T) {
	r := pigRig(t, newPigOracle().evaluator(t))
	for _, policy := range r.policies() {
		cfg := r.plain(policy, 60)
		h := r.start(1)[0]
		s, err := search.New(r.store, &search.Roots{States: []int32{h}, Seeds: []uint64{1}}, cfg, evaluator.Needs{Obs: true})
		require.NoError(t, err)
		kept := 0
		for range 12 {
			runSearch(t, s, r.ev.(evaluator.Func))
			out := search.NewResult(1, 2)
			require.NoError(t, s.Result(out))
			if real := r.search(r.plain(tree.AlphaZero, 0), h); s.Tree(0).Started() {
				require.InDelta(t, real.Raw[0], out.Raw[0], 1e-6, "%s: the root is another position", policy)
			}
			h = r.step(h, out.Action[0])
			require.NoError(t, s.Advance(out.Action))
			if s.Tree(0).Started() {
				kept++
			}
			if !slices.Contains(r.legal(h), true) {
				break
			}
		}
		require.Positive(t, kept, "%s: nothing was ever kept", policy)
		s.Close()
	}
}

func TestStochasticNeedsChance(t *testing.T) {
	r := ticTacToe(t)
	_, err := search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, r.plain(tree.Stochastic, 8), evaluator.Needs{})
	require.ErrorIs(t, err, search.ErrConfig)
	require.ErrorContains(t, err, "TicTacToe-v0 has no chance")
	p := pigRig(t, evaluator.Uniform{})
	cfg := p.plain(tree.AlphaZero, 8)
	cfg.Solve = true
	_, err = search.New(p.store, &search.Roots{States: p.start(1), Seeds: []uint64{1}}, cfg, evaluator.Needs{})
	require.ErrorIs(t, err, search.ErrConfig)
}
