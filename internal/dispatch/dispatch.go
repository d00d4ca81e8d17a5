// Package dispatch decides on which threads a batch runs: on its caller's, or in shards on workers.
package dispatch

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Runner spreads a batch over threads. pool.Workers is one.
type Runner interface {
	// Run calls f on shards contiguous parts of 0..n-1, possibly at the same time, and returns when
	// all are done.
	Run(n, shards int, f func(lo, hi int))
	// Size returns the number of threads.
	Size() int
}

// Mode says on which threads batches run.
type Mode string

// The ways to dispatch. They differ in speed, never in results.
const (
	// Auto measures what a state costs, and shards a batch when a shard takes longer than handing
	// it over does. It is the default.
	Auto Mode = "auto"
	// Inline runs everything on the calling thread.
	Inline Mode = "inline"
	// Threads always gives every thread a shard.
	Threads Mode = "threads"
)

// ShardNanos is the least work worth a shard of its own. Handing one to another thread and waiting
// for it took 8 to 12 us when measured on an idle machine, and several times that on a busy one.
const ShardNanos = 100_000

// Parse checks the name of a way to dispatch; "" means Auto.
func Parse(name string) (Mode, error) {
	switch d := Mode(name); d {
	case "":
		return Auto, nil
	case Auto, Inline, Threads:
		return d, nil
	}
	return "", fmt.Errorf("dispatch %q; want %q, %q or %q", name, Auto, Inline, Threads)
}

// Dispatcher decides how many shards a batch gets. Safe for concurrent use.
type Dispatcher struct {
	how    Mode
	runner Runner
	cost   atomic.Uint64 // bits of the float64 estimate of one state's nanoseconds; 0 at first
}

// New returns a Dispatcher; without a runner every batch runs on its caller's thread.
func New(how Mode, runner Runner) (*Dispatcher, error) {
	how, err := Parse(string(how))
	if err != nil {
		return nil, err
	}
	if runner == nil {
		how = Inline
	}
	return &Dispatcher{how: how, runner: runner}, nil
}

// Shards returns how many parts a batch of n is worth.
func (d *Dispatcher) Shards(n int) int {
	switch d.how {
	case Inline:
		return 1
	case Threads:
		return max(1, min(n, d.runner.Size()))
	default:
		work := float64(n) * d.Cost()
		return max(1, min(n, d.runner.Size(), int(work/ShardNanos)))
	}
}

// Run calls f over 0..n-1 in as many shards as pays.
func (d *Dispatcher) Run(n int, f func(lo, hi int)) {
	if shards := d.Shards(n); shards > 1 {
		d.runner.Run(n, shards, f)
		return
	}
	f(0, n)
}

// Cost returns the estimate of one state's nanoseconds, 0 while there is none.
func (d *Dispatcher) Cost() float64 { return math.Float64frombits(d.cost.Load()) }

// Learn notes that n states took this much time of one thread, without what handing them over took. The
// estimate is a moving average over about 8 batches.
func (d *Dispatcher) Learn(n int, took time.Duration) {
	cost := float64(took.Nanoseconds()) / float64(n)
	if old := d.Cost(); old > 0 {
		cost = old + (cost-old)/8
	}
	d.cost.Store(math.Float64bits(cost))
}
