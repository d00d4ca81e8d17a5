package envstest

import (
	"math"
	"math/bits"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/stretchr/testify/require"
)

// testPick requires that drawn actions are those that the mask has, by their number.
func testPick(t *testing.T, env *envs.Env) {
	each(t, env, func(p *player) {
		check := func() {
			legal := p.legal(0)
			for _, r := range []uint64{0, math.MaxUint64, p.rnd.Uint64()} {
				want := int32(-1)
				if len(legal) > 0 {
					nth, _ := bits.Mul64(r, uint64(len(legal)))
					want = legal[nth]
				}
				var got [1]int32
				p.a.Pick([]int32{0}, []uint64{r}, got[:])
				require.Equal(t, want, got[0], "%s", p.a.Text(0))
			}
		}
		p.episode(func(int32) { check() })
		check()
	})
}
