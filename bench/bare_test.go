// Package bench measures azserve against peers; see bench.py. Here is the Go part: loops that do the
// least work that the same result takes, to measure the rest of the house by.
package bench

import (
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/stretchr/testify/require"
)

// BenchmarkBareTicTacToe forks 1,024 states one after the other: clone, step, observe, mask. No
// handle, no budget, no type erasure.
func BenchmarkBareTicTacToe(b *testing.B) {
	const n = 1024
	g, err := envs.NewTicTacToe(envs.TicTacToeConfig{})
	require.NoError(b, err)
	parents, children := make([]envs.TicTacToeState, n), make([]envs.TicTacToeState, n)
	obs := envs.NewArrays(g.Spec().Obs, n)
	mask, reward, done := make([]bool, 9*n), make([]float32, n), make([]bool, n)
	for b.Loop() {
		for i := range parents {
			children[i] = parents[i]
			out := g.Step(&children[i], 0)
			reward[i], done[i] = out.Reward, out.Terminated
			g.Observe(&children[i], envs.RowOf(obs, i))
			g.Mask(&children[i], mask[9*i:9*i+9])
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds()/1e6, "Mstates/s")
}
