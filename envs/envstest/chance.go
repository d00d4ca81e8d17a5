package envstest

import (
	"math"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/stretchr/testify/require"
)

// testChance requires that a step is a decision and one of its outcomes, drawn as often as its
// probability says.
func testChance(t *testing.T, env *envs.Env) {
	n := env.Spec().NumOutcomes
	if n == 0 {
		t.Skip("no chance")
	}
	const decided, happened = 1, 2
	want, got := make([]float64, n), make([]float64, n)
	draws := 0.0
	each(t, env, func(p *player) {
		chances := make([]float32, n)
		p.episode(func(action int32) {
			p.a.Chances([]int32{0}, chances)
			require.Zero(t, sum(chances), "nature has something to draw before the action")
			var out [1]envs.Outcome
			p.a.Decide([]int32{0}, []int32{decided}, []int32{action}, out[:])
			if out[0].Terminated {
				return
			}
			var turns [2]int32
			p.a.ToPlay([]int32{0, decided}, turns[:])
			require.Equal(t, turns[0], turns[1], "the mover of an afterstate")
			p.a.Chances([]int32{decided}, chances)
			require.InDelta(t, 1, sum(chances), 1e-5, "the probabilities' sum")
			p.step(0, happened, action)
			real, matches := faceAt(p, happened), []int{}
			for o, chance := range chances {
				if chance > 0 {
					p.a.Happen([]int32{decided}, []int32{happened}, []int32{int32(o)}, out[:])
					if faceAt(p, happened) == real {
						matches = append(matches, o)
					}
				}
			}
			require.NotEmpty(t, matches, "a step led to no outcome of its decision")
			if len(matches) == 1 && chances[matches[0]] < 1 { // outcomes that look alike can't be told apart
				draws++
				got[matches[0]]++
				for o, chance := range chances {
					want[o] += float64(chance)
				}
			}
		})
	})
	for o := range want {
		require.InDelta(t, want[o], got[o], 5*math.Sqrt(draws)+1, "outcome %d of %v draws", o, draws)
	}
}

func sum(x []float32) (s float32) {
	for _, v := range x {
		s += v
	}
	return s
}
