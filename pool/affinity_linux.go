package pool

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// pinThread binds the calling goroutine to its thread for good, and the thread to a CPU.
func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("%w: CPU %d: %w", ErrThreads, cpu, err)
	}
	return nil
}
