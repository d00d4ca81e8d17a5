package envstest

import (
	"fmt"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/stretchr/testify/require"
)

// testHash requires that states with the same key look the same, allow the same and are the same player's
// turn, and that a clone has its original's key.
func testHash(t *testing.T, env *envs.Env) {
	if !env.Capabilities().Hashes {
		t.Skip("no Hash method")
	}
	seen := map[uint64]string{}
	each(t, env, func(p *player) {
		p.episode(func(int32) {
			var key [2]uint64
			require.NoError(t, p.a.Copy([]int32{1}, p.a, []int32{0}))
			p.a.Hash([]int32{0, 1}, key[:])
			require.Equal(t, key[0], key[1], "a clone has another key")
			face := faceAt(p, 0)
			if before, ok := seen[key[0]]; ok {
				require.Equal(t, before, face, "two positions have one key")
			}
			seen[key[0]] = face
		})
	})
	faces := map[string]bool{}
	for _, face := range seen {
		faces[face] = true
	}
	require.Greater(t, len(faces), 1, "every position has the same key")
}

// faceAt is all that an evaluator sees of a slot, and whose turn it is.
func faceAt(p *player, slot int32) string {
	obs := envs.NewArrays(p.env.Spec().Obs, 1)
	p.a.Observe([]int32{slot}, obs, 0)
	var turn [1]int32
	p.a.ToPlay([]int32{slot}, turn[:])
	return fmt.Sprint(obs, p.legal(slot), turn)
}
