//go:build !linux

package pool

import "fmt"

// pinThread can't bind threads to CPUs on this system.
func pinThread(cpu int) error {
	return fmt.Errorf("%w: CPU %d: threads can be pinned on Linux only", ErrThreads, cpu)
}
