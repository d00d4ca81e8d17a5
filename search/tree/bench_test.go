package tree

import (
	"fmt"
	"testing"
)

// BenchmarkTree is the tree alone: no simulator, an evaluator that knows nothing.
func BenchmarkTree(b *testing.B) {
	for _, p := range []Policy{AlphaZero, MuZero, Gumbel} {
		for _, n := range []int{64, 800} {
			b.Run(fmt.Sprintf("%s/A=7/sims=%d", p, n), func(b *testing.B) {
				c := Default(p)
				c.NumSimulations = n
				params, err := NewParams(c)
				if err != nil {
					b.Fatal(err)
				}
				tr, leaf, v := &Tree{}, make([]Leaf, 1), &Evaluation{Discount: -1}
				b.ReportAllocs()
				for b.Loop() {
					tr.Reset(params, 7)
					tr.SetRoot(&RootInput{})
					for tr.Select(leaf) > 0 {
						v.Value = float32(uint32(leaf[0].Node)*2654435761>>22)/512 - 1
						tr.Apply(leaf[0], v)
					}
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds()/1e6, "Msims/s")
			})
		}
	}
}
