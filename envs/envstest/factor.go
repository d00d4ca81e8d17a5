package envstest

import (
	"slices"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/stretchr/testify/require"
)

// testFactors checks the laws of conditional masks against the flat mask, in states of random episodes.
func testFactors(t *testing.T, env *envs.Env) {
	f := env.Spec().Factorization
	if len(f.Sizes) == 0 {
		t.Skip("actions have no components")
	}
	each(t, env, func(p *player) {
		p.episode(func(int32) { checkFactors(t, p, &f) })
		checkFactors(t, p, &f)
	})
}

func checkFactors(t *testing.T, p *player, f *envs.Factorization) {
	legal := make([]bool, p.env.Spec().NumActions)
	p.a.Mask([]int32{0}, legal)
	// The leaves that are reached through conditional masks are the legal actions, no more and no fewer.
	reached := make([]bool, len(legal))
	var walk func(prefix []int32, action int)
	walk = func(prefix []int32, action int) {
		k := len(prefix)
		if k == len(f.Sizes) {
			reached[action] = true
			return
		}
		want := make([]bool, f.Sizes[k])
		f.Conditional(legal, prefix, want)
		got := conditional(p, f, prefix)
		require.Equal(t, want, got, "the values after the prefix %v", prefix)
		require.True(t, k == 0 || slices.Contains(got, true), "a prefix that was possible has no completion")
		for v, ok := range got {
			if ok {
				walk(append(slices.Clip(prefix), int32(v)), action+v*f.Strides()[k])
			}
		}
	}
	walk(nil, 0)
	require.Equal(t, legal, reached)
}

// conditional asks the arena for one prefix, in a row that is wider than needed.
func conditional(p *player, f *envs.Factorization, prefix []int32) []bool {
	width, size := f.Width()+2, f.Sizes[len(prefix)]
	mask := make([]bool, width)
	for i := range mask {
		mask[i] = true
	}
	in := &envs.Prefixes{Values: prefix, Stride: len(prefix), Lengths: []int32{int32(len(prefix))}}
	require.NoError(p.t, f.Check(in, 1))
	p.a.ConditionalMask([]int32{0}, in, mask, width)
	require.NotContains(p.t, mask[size:], true, "beyond the component")
	return mask[:size]
}

// testInfo requires that the info arrays are within their specification.
func testInfo(t *testing.T, env *envs.Env) {
	specs := env.Spec().Info
	info := envs.NewArrays(specs, 1)
	check := func(p *player) {
		p.a.Info([]int32{0}, info, 0)
		for k, spec := range specs {
			row := make([]float32, spec.Len())
			info[k].Floats(0, row)
			for i, v := range row {
				lo, hi := spec.Bounds(i)
				require.True(t, float64(v) >= lo && float64(v) <= hi, "%s[%d] is %g; want %g to %g", spec.Name, i, v, lo, hi)
			}
		}
	}
	each(t, env, func(p *player) {
		p.episode(func(int32) { check(p) })
		check(p)
	})
}

// testAnyAction takes any action in range where the rules say that they take it.
func testAnyAction(t *testing.T, env *envs.Env) {
	if !env.Spec().AnyAction {
		t.Skip("illegal actions are refused")
	}
	each(t, env, func(p *player) {
		for range maxSteps {
			o := p.step(0, 0, int32(p.rnd.IntN(env.Spec().NumActions)))
			require.True(t, o.Reward >= env.Spec().RewardLow && o.Reward <= env.Spec().RewardHigh)
			b := p.bytes(0)
			require.NoError(t, p.a.DecodeState(1, b))
			if o.Terminated || o.Truncated {
				break
			}
		}
	})
}

// testPicture requires that pictures have their size and show something.
func testPicture(t *testing.T, env *envs.Env) {
	p := newPlayer(t, env, 3)
	w, h := p.a.FrameSize()
	require.True(t, w > 0 && h > 0 && w <= 2000 && h <= 2000, "a picture of %d x %d pixels", w, h)
	p.step(0, 1, p.pick(0))
	frames := make([]uint8, 2*w*h*3)
	p.a.Paint([]int32{0, 1}, frames)
	first, second := frames[:w*h*3], frames[w*h*3:]
	require.Greater(t, len(slices.Compact(slices.Clone(first))), 1, "one colour only")
	require.NotEqual(t, first, second, "a step changes nothing in the picture")
	again := make([]uint8, w*h*3)
	p.a.Paint([]int32{0}, again)
	require.Equal(t, first, again, "one state, two pictures")
}
