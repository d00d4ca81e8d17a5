package vecmath

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExp(t *testing.T) {
	for x := float32(-87.2); x < 88; x += 0.00371 {
		want := math.Exp(float64(x))
		require.InEpsilon(t, want, float64(Exp(x)), 2.5e-7, "exp(%v)", x)
	}
	require.Zero(t, Exp(NegInf))
	require.Zero(t, Exp(-1000))
	require.True(t, math.IsNaN(float64(Exp(float32(math.NaN())))))
	require.Equal(t, float32(1), Exp(0))
}

func TestSoftmax(t *testing.T) {
	x := []float32{0, NegInf, float32(math.Log(3))}
	Softmax(x, x)
	require.InDeltaSlice(t, []float32{.25, 0, .75}, x, 1e-6)
	none := []float32{NegInf, NegInf}
	Softmax(none, none)
	require.Equal(t, []float32{0, 0}, none)
	require.InDelta(t, math.Log(4), LogSumExp([]float32{0, float32(math.Log(3))}), 1e-6)
	require.Equal(t, 1, ArgMax([]float32{0, 2, 2}))
}
