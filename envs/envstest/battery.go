// Package envstest is the battery of tests that every environment must pass. An author calls Battery
// from a test of his own.
package envstest

import (
	"slices"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

const (
	episodes = 20
	maxSteps = 2000 // an episode is left there
)

// Battery plays random episodes of an environment and checks the contract of package envs.
func Battery(t *testing.T, env *envs.Env) {
	t.Helper()
	t.Run("play", func(t *testing.T) { testPlay(t, env) })
	t.Run("clones are isolated", func(t *testing.T) { testIsolation(t, env) })
	t.Run("same seed and actions, same bits", func(t *testing.T) { testDeterminism(t, env) })
	t.Run("bytes", func(t *testing.T) { testBytes(t, env) })
	t.Run("damaged bytes", func(t *testing.T) { testDamage(t, env) })
	t.Run("symmetries", func(t *testing.T) { testSymmetries(t, env) })
	t.Run("batch equals one by one", func(t *testing.T) { testBatch(t, env) })
	t.Run("pick", func(t *testing.T) { testPick(t, env) })
	t.Run("hash", func(t *testing.T) { testHash(t, env) })
	t.Run("chance", func(t *testing.T) { testChance(t, env) })
	t.Run("action components", func(t *testing.T) { testFactors(t, env) })
	t.Run("info", func(t *testing.T) { testInfo(t, env) })
	t.Run("every action", func(t *testing.T) { testAnyAction(t, env) })
	t.Run("picture", func(t *testing.T) { testPicture(t, env) })
	t.Run("text", func(t *testing.T) { testText(t, env) })
}

// player plays random legal actions in slot 0 of an arena; slot 1 and up are for the test.
type player struct {
	t    *testing.T
	env  *envs.Env
	a    envs.Arena
	rnd  rng.Stream
	mask []bool
	last envs.Outcome
}

func newPlayer(t *testing.T, env *envs.Env, seed uint64) *player {
	p := &player{t: t, env: env, a: env.NewArena(8), rnd: rng.New(seed, 1)}
	p.mask = make([]bool, env.Spec().NumActions)
	p.a.Reset([]int32{0}, nil, []uint64{seed})
	return p
}

// legal lists the legal actions of a slot.
func (p *player) legal(slot int32) []int32 {
	p.a.Mask([]int32{slot}, p.mask)
	var out []int32
	for a, ok := range p.mask {
		if ok {
			out = append(out, int32(a))
		}
	}
	return out
}

func (p *player) pick(slot int32) int32 {
	l := p.legal(slot)
	require.NotEmpty(p.t, l, "an open state has no legal action:\n%s", p.a.Text(slot))
	return l[p.rnd.IntN(len(l))]
}

func (p *player) step(from, to, action int32) envs.Outcome {
	var out [1]envs.Outcome
	p.a.Step([]int32{from}, []int32{to}, []int32{action}, out[:])
	return out[0]
}

// episode plays one episode in slot 0, calling visit in each open state.
func (p *player) episode(visit func(action int32)) {
	for range maxSteps {
		action := p.pick(0)
		visit(action)
		p.last = p.step(0, 0, action)
		if p.last.Terminated || p.last.Truncated {
			return
		}
	}
}

func (p *player) bytes(slot int32) []byte { return p.a.AppendState(nil, slot) }

func each(t *testing.T, env *envs.Env, f func(p *player)) {
	for seed := range uint64(episodes) {
		f(newPlayer(t, env, seed))
	}
}

func testPlay(t *testing.T, env *envs.Env) {
	spec := env.Spec()
	each(t, env, func(p *player) {
		steps := 0
		p.episode(func(action int32) {
			steps++
			checkObs(t, env, p.a, 0)
			var turn [1]int32
			p.a.ToPlay([]int32{0}, turn[:])
			require.True(t, turn[0] >= 0 && int(turn[0]) < spec.NumPlayers, "player %d moves", turn[0])
			require.Equal(t, -1, p.a.Check([]int32{0}, []int32{action}), "mask and Check disagree")
			for a, ok := range p.mask {
				bad := p.a.Check([]int32{0}, []int32{int32(a)}) >= 0
				require.Equal(t, !ok && !spec.AnyAction, bad, "mask and Check disagree on action %d", a)
			}
		})
		require.True(t, p.last.Reward >= spec.RewardLow && p.last.Reward <= spec.RewardHigh,
			"reward %g outside of the specification", p.last.Reward)
		if spec.MaxEpisodeSteps > 0 {
			require.LessOrEqual(t, steps, spec.MaxEpisodeSteps)
		}
		if p.last.Terminated || p.last.Truncated {
			checkEnded(t, p)
		}
	})
}

// checkEnded requires that the state in slot 0 stays as it ended.
func checkEnded(t *testing.T, p *player) {
	require.Empty(t, p.legal(0), "an ended state has legal actions")
	checkObs(t, p.env, p.a, 0)
	before := p.bytes(0)
	want := envs.Outcome{Terminated: p.last.Terminated, Truncated: p.last.Truncated}
	for a := range int32(p.env.Spec().NumActions) {
		require.Equal(t, want, p.step(0, 0, a), "action %d in an ended state", a)
		require.Equal(t, -1, p.a.Check([]int32{0}, []int32{a}))
	}
	require.Equal(t, before, p.bytes(0), "an ended state changed")
}

// checkObs requires that the observation of a slot is within its specification.
func checkObs(t *testing.T, env *envs.Env, a envs.Arena, slot int32) {
	specs := env.Spec().Obs
	obs := envs.NewArrays(specs, 1)
	a.Observe([]int32{slot}, obs, 0)
	for k, spec := range specs {
		row := make([]float32, spec.Len())
		obs[k].Floats(0, row)
		for i, v := range row {
			lo, hi := spec.Bounds(i)
			// A state that just ended may lie beyond the bounds, as Gymnasium's CartPole does.
			if slot == 0 && a.Check([]int32{0}, []int32{0}) == -1 && !hasLegal(a, env) {
				continue
			}
			require.True(t, float64(v) >= lo && float64(v) <= hi,
				"%s[%d] is %g; want %g to %g", spec.Name, i, v, lo, hi)
		}
	}
}

func hasLegal(a envs.Arena, env *envs.Env) bool {
	mask := make([]bool, env.Spec().NumActions)
	a.Mask([]int32{0}, mask)
	return slices.Contains(mask, true)
}

func testIsolation(t *testing.T, env *envs.Env) {
	each(t, env, func(p *player) {
		p.episode(func(action int32) {
			before := p.bytes(0)
			other := p.pick(0)
			p.step(0, 1, action)
			child := p.bytes(1)
			p.step(0, 2, other)
			require.Equal(t, before, p.bytes(0), "stepping a clone changed its parent")
			require.Equal(t, child, p.bytes(1), "stepping one clone changed another")
			require.NoError(t, p.a.Copy([]int32{3}, p.a, []int32{0}))
			p.step(3, 3, action)
			require.Equal(t, child, p.bytes(3), "a copy steps otherwise than its original")
		})
	})
}

func testDeterminism(t *testing.T, env *envs.Env) {
	run := func(seed uint64) (out [][]byte) {
		p := newPlayer(t, env, seed)
		p.episode(func(int32) { out = append(out, p.bytes(0)) })
		p.a.Restart([]int32{0}, nil, []uint64{seed + 1})
		return append(out, p.bytes(0))
	}
	for seed := range uint64(episodes) {
		require.Equal(t, run(seed), run(seed))
	}
}

func testBytes(t *testing.T, env *envs.Env) {
	each(t, env, func(p *player) {
		p.episode(func(action int32) {
			b := p.bytes(0)
			require.NoError(t, p.a.DecodeState(1, b))
			require.Equal(t, b, p.bytes(1), "bytes don't round-trip")
			p.step(0, 2, action)
			p.step(1, 3, action)
			require.Equal(t, p.bytes(2), p.bytes(3), "a decoded state steps otherwise")
		})
	})
}

func testDamage(t *testing.T, env *envs.Env) {
	p := newPlayer(t, env, 1)
	b := p.bytes(0)
	for i := range b {
		damaged := append([]byte(nil), b...)
		damaged[i] ^= 1 << (i % 8)
		require.ErrorIs(t, p.a.DecodeState(1, damaged), envs.ErrBadState, "byte %d flipped", i)
		require.ErrorIs(t, p.a.DecodeState(1, b[:i]), envs.ErrBadState, "cut after %d bytes", i)
	}
}

func testSymmetries(t *testing.T, env *envs.Env) {
	specs, n := env.Spec().Obs, env.Spec().NumActions
	for _, sym := range env.Symmetries() {
		requirePermutation(t, sym.Actions, n)
		each(t, env, func(p *player) {
			// slot 1 plays the transformed actions of slot 0: the transformed position must show.
			p.a.Reset([]int32{1}, nil, []uint64{0})
			p.a.Reset([]int32{0}, nil, []uint64{0})
			inverse := invert(sym.Actions)
			p.episode(func(action int32) {
				obs := envs.NewArrays(specs, 2)
				p.a.Observe([]int32{0, 1}, obs, 0)
				for k := range specs {
					requireSymmetric(t, sym, k, &obs[k])
				}
				masks := make([]bool, 2*n)
				p.a.Mask([]int32{0, 1}, masks)
				turned := make([]bool, n)
				envs.Apply(sym.Actions, masks[:n], turned)
				require.Equal(t, turned, masks[n:], "%s: masks", sym.Name)
				p.step(1, 1, int32(inverse[action]))
			})
		})
	}
}

func requireSymmetric(t *testing.T, sym envs.Symmetry, k int, a *envs.Array) {
	n := a.Size()
	var in, got, want = make([]float32, n), make([]float32, n), make([]float32, n)
	a.Floats(0, in)
	a.Floats(1, got)
	envs.Apply(sym.Obs[k], in, want)
	require.Equal(t, want, got, "%s: observation", sym.Name)
}

func requirePermutation(t *testing.T, p []int, n int) {
	require.Len(t, p, n)
	seen := make([]bool, n)
	for _, i := range p {
		require.False(t, seen[i], "%v is no permutation", p)
		seen[i] = true
	}
}

func invert(p []int) []int {
	out := make([]int, len(p))
	for i, j := range p {
		out[j] = i
	}
	return out
}

func testBatch(t *testing.T, env *envs.Env) {
	const n = 300 // more than one chunk of any batched rules
	a := env.NewArena(2 * n)
	slots, seeds := make([]int32, 2*n), make([]uint64, 2*n)
	for i := range slots {
		slots[i], seeds[i] = int32(i), uint64(i%n)
	}
	indices := make([]int32, 2*n)
	a.Reset(slots, indices, seeds)
	rnd, mask := rng.New(7), make([]bool, env.Spec().NumActions)
	actions, out := make([]int32, n), make([]envs.Outcome, n)
	for range 30 {
		for i := range actions {
			a.Mask(slots[i:i+1], mask)
			actions[i] = randomLegal(&rnd, mask)
		}
		a.Step(slots[:n], slots[:n], actions, out)
		for i := range n {
			one := make([]envs.Outcome, 1)
			a.Step(slots[n+i:n+i+1], slots[n+i:n+i+1], actions[i:i+1], one)
			require.Equal(t, one[0], out[i])
			require.Equal(t, a.AppendState(nil, slots[i]), a.AppendState(nil, slots[n+i]))
		}
	}
}

// randomLegal picks a legal action, 0 if there is none.
func randomLegal(rnd *rng.Stream, mask []bool) int32 {
	var legal []int32
	for a, ok := range mask {
		if ok {
			legal = append(legal, int32(a))
		}
	}
	if len(legal) == 0 {
		return 0
	}
	return legal[rnd.IntN(len(legal))]
}

func testText(t *testing.T, env *envs.Env) {
	p := newPlayer(t, env, 3)
	seen := map[string]bool{}
	for _, a := range p.legal(0) {
		seen[p.a.ActionName(0, a)] = true
	}
	require.Len(t, seen, len(p.legal(0)), "two actions have the same name")
	require.NotEmpty(t, p.a.Text(0))
}
