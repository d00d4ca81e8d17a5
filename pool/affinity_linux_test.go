package pool_test

import (
	"sync"
	"testing"
	"time"

	"github.com/azserve/azserve/pool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPinnedWorkers(t *testing.T) {
	w, err := pool.NewPinned(3, []int{0})
	require.NoError(t, err)
	defer w.Close()
	var mu sync.Mutex
	var cpus []int
	w.Run(4, 4, func(lo, _ int) {
		time.Sleep(20 * time.Millisecond) // so that each is on another thread; the first is the caller's
		mu.Lock()
		defer mu.Unlock()
		if lo > 0 {
			cpus = append(cpus, allowedCPUs())
		}
	})
	require.Equal(t, []int{1, 1, 1}, cpus, "each worker may use one CPU only")
	_, err = pool.NewPinned(1, []int{1023})
	require.ErrorIs(t, err, pool.ErrThreads)
	require.ErrorContains(t, err, "CPU 1023")
}

// allowedCPUs returns how many CPUs the calling thread may use.
func allowedCPUs() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return -1
	}
	return set.Count()
}
