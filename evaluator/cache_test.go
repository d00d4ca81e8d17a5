package evaluator_test

import (
	"sync"
	"testing"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	c, err := evaluator.NewCache(1<<12, 3)
	require.NoError(t, err)
	var logits [3]float32
	_, ok := c.Get(7, 0, logits[:])
	require.False(t, ok)
	c.Put(7, 0, []float32{1, 2, 3}, 0.5)
	c.Put(8, 0, nil, -0.5)
	v, ok := c.Get(7, 0, logits[:])
	require.True(t, ok)
	require.Equal(t, float32(0.5), v)
	require.Equal(t, [3]float32{1, 2, 3}, logits)
	v, ok = c.Get(8, 0, logits[:])
	require.True(t, ok)
	require.Equal(t, float32(-0.5), v)
	require.Equal(t, [3]float32{}, logits)
	c.Forget()
	require.Equal(t, uint64(1), c.Version())
	_, ok = c.Get(7, c.Version(), logits[:])
	require.False(t, ok, "after Forget")
	_, err = evaluator.NewCache(0, 3)
	require.Error(t, err)
}

// A cache of many threads never gives an answer that belongs to another key, keeps what is in use, and
// drops the rest.
func TestCacheUnderLoad(t *testing.T) {
	c, err := evaluator.NewCache(1000, 2)
	require.NoError(t, err)
	var wait sync.WaitGroup
	hits := make([]int, 4)
	for w := range hits {
		wait.Go(func() {
			r := rng.New(uint64(w))
			var logits [2]float32
			for range 50_000 {
				key := uint64(r.IntN(4000))
				if r.IntN(2) == 0 {
					key = uint64(r.IntN(100)) // asked for often
				}
				v, ok := c.Get(key, 0, logits[:])
				if ok {
					hits[w]++
					if v != float32(key) || logits != [2]float32{float32(key), -float32(key)} {
						t.Errorf("key %d has the answer %v, %v", key, v, logits)
					}
					continue
				}
				c.Put(key, 0, []float32{float32(key), -float32(key)}, float32(key))
			}
		})
	}
	wait.Wait()
	for _, h := range hits {
		require.Greater(t, h, 25_000) // the hundred, and a quarter of the others
	}
}
