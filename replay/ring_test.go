package replay_test

import (
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/replay"
	"github.com/stretchr/testify/require"
)

// spec has an array of every type.
func spec() *envs.Spec {
	s := &envs.Spec{ID: "X-v0", NumActions: 2}
	for _, d := range []envs.DType{envs.Float32, envs.Float64, envs.Int32, envs.Uint8, envs.Bool} {
		s.Obs = append(s.Obs, envs.ArraySpec{Name: d.String(), DType: d, Shape: []int{3}})
	}
	return s
}

func filled(t testing.TB, capacity, n int) *replay.Ring {
	r, err := replay.NewRing(spec(), capacity)
	require.NoError(t, err)
	obs := envs.NewArrays(spec().Obs, 1)
	for i := range n {
		for j := range 3 {
			obs[0].F32[j], obs[1].F64[j], obs[2].I32[j] = float32(i+j), float64(i-j), int32(i*j)
			obs[3].U8[j], obs[4].Bool[j] = uint8(i+j), (i+j)%2 == 0
		}
		r.Add(&replay.Position{
			Obs: obs, Policy: []float32{float32(i), 1}, Legal: []bool{i%2 == 0, true}, Value: float32(-i),
		})
	}
	return r
}

func content(r *replay.Ring) (out []any) {
	for i := range r.Len() {
		p := r.At(i)
		out = append(out, append([]float32(nil), p.Policy...), append([]bool(nil), p.Legal...), p.Value,
			p.Obs[0].F32[3*p.Row], p.Obs[1].F64[3*p.Row+1], p.Obs[2].I32[3*p.Row+2], p.Obs[3].U8[3*p.Row],
			p.Obs[4].Bool[3*p.Row+2])
	}
	return out
}

func TestOldestIsReplaced(t *testing.T) {
	r := filled(t, 4, 6)
	require.Equal(t, 4, r.Len())
	require.Equal(t, 6, r.Total())
	for i := range 4 {
		require.Equal(t, float32(i-5), r.At(i).Value)
	}
}

func TestSaveAndRestore(t *testing.T) {
	for _, n := range []int{0, 1, 4, 6} {
		old := filled(t, 4, n)
		b, err := old.Bytes()
		require.NoError(t, err)
		for _, capacity := range []int{4, 2, 9} {
			r := filled(t, capacity, 3)
			require.NoError(t, r.Restore(b))
			require.Equal(t, n, r.Total())
			want := content(old)
			if k := 8 * capacity; len(want) > k {
				want = want[:k]
			}
			require.Equal(t, want, content(r))
		}
	}
}

func TestDamage(t *testing.T) {
	b, err := filled(t, 4, 3).Bytes()
	require.NoError(t, err)
	r := filled(t, 4, 3)
	for i := range b {
		require.ErrorIs(t, r.Restore(b[:i]), replay.ErrFile)
		bad := append([]byte(nil), b...)
		bad[i] ^= 1
		require.ErrorIs(t, r.Restore(bad), replay.ErrFile)
		require.Zero(t, r.Len())
	}
	other := spec()
	other.Keywords = "size=2"
	foreign, err := replay.NewRing(other, 4)
	require.NoError(t, err)
	require.ErrorContains(t, foreign.Restore(b), "another environment")
}

func FuzzRestore(f *testing.F) {
	b, err := filled(f, 4, 3).Bytes()
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := filled(t, 4, 0)
		if r.Restore(b) == nil {
			content(r)
		}
	})
}
