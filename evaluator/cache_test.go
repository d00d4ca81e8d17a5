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
	require.NotEqual(t, c.Under(1), c.Under(2), "versions of weights")
	require.Equal(t, c.Version(), c.Under(0))
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

// A cache of so many bytes takes no more, and holds what fits into them.
func TestCacheBytes(t *testing.T) {
	const bytes = 1 << 20
	c, err := evaluator.NewCacheBytes(bytes, 7)
	require.NoError(t, err)
	kept := 0
	for pass := range 2 {
		for key := range uint64(20_000) {
			if pass == 0 {
				c.Put(key, 0, make([]float32, 7), 1)
			} else if _, ok := c.Get(key, 0, make([]float32, 7)); ok {
				kept++
			}
		}
	}
	require.Greater(t, kept, 15_000, "1 MiB / 44 bytes is 23,800 places; chance fills some sets twice")
	require.Less(t, kept*44, bytes)
	_, err = evaluator.NewCacheBytes(1000, 7)
	require.ErrorContains(t, err, "want at least 11264 bytes")
}
