package pool

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// Timing of steps: environments that cost microseconds are timed at every step, cheaper ones in one batch
// of many, so that the clock never costs more than a few per cent.
const (
	timedNanos = 2000 // steps from this cost on are timed one by one
	timedEvery = 128  // of cheaper ones, one batch in so many
)

// A histogram's buckets: four an octave, from 64 ns to over a minute.
const (
	bucketShift  = 2
	bucketLowest = 6
	buckets      = (37 - bucketLowest) << bucketShift
)

// timing holds a histogram of the time of a step for each environment. Its entries belong to the thread
// that owns the environment, as the pool's other rows do.
type timing struct {
	hist  [][buckets]uint16
	turns []uint8 // of each environment; its own, so that no thread waits for another
}

func newTiming(n int) timing {
	return timing{hist: make([][buckets]uint16, n), turns: make([]uint8, n)}
}

// due says that the next batch, which begins with environment e, is to be timed step by step.
func (t *timing) due(e int32, cost float64) bool {
	t.turns[e]++
	return cost >= timedNanos || t.turns[e]%timedEvery == 0
}

// note adds a step. When a bucket is full all are halved, so that old steps count less and less.
func (t *timing) note(e int32, took time.Duration) {
	h := &t.hist[e]
	b := bucketOf(took)
	if h[b]++; h[b] == 1<<15 {
		for i := range h {
			h[i] /= 2
		}
	}
}

func bucketOf(took time.Duration) int {
	n := uint64(max(took.Nanoseconds(), 1<<bucketLowest))
	octave := bits.Len64(n) - 1
	part := int(n>>(octave-bucketShift)) & (1<<bucketShift - 1)
	return min((octave-bucketLowest)<<bucketShift+part, buckets-1)
}

// middle returns the middle of a bucket.
func middle(b int) time.Duration {
	octave, part := b>>bucketShift+bucketLowest, b&(1<<bucketShift-1)
	return time.Duration((float64(part) + 4.5) * float64(uint64(1)<<octave) / 4)
}

// quantile returns the time that a share q of an environment's steps took at most; 0 if none was timed.
func quantile(h *[buckets]uint16, q float64) time.Duration {
	total := 0
	for _, n := range h {
		total += int(n)
	}
	left := int(q*float64(total)) + 1
	for b, n := range h {
		if left -= int(n); left <= 0 {
			return middle(b)
		}
	}
	return 0
}

// Timing is how long steps of environments take. Environments that take less than 2 us are timed in one
// batch of 128.
type Timing struct {
	P50, P99   []time.Duration // [NumEnvs], to about a tenth; 0 while nothing was timed
	Stragglers []int32         // environments whose P50 is over three times the pool's median and 10 us, slowest first
}

// What makes a straggler: so many times the median, and no less than this.
const (
	straggling      = 3
	stragglingNanos = 10_000
)

// Timing returns how long steps take. What is in flight is left out.
func (p *Pool) Timing() Timing {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.timing.hist)
	t := Timing{P50: make([]time.Duration, n), P99: make([]time.Duration, n)}
	var known []time.Duration
	for e := range p.timing.hist {
		if p.status[e] == inFlight {
			continue
		}
		t.P50[e], t.P99[e] = quantile(&p.timing.hist[e], 0.5), quantile(&p.timing.hist[e], 0.99)
		if t.P50[e] > 0 {
			known = append(known, t.P50[e])
		}
	}
	if len(known) == 0 {
		return t
	}
	slices.Sort(known)
	limit := max(straggling*known[len(known)/2], stragglingNanos)
	for e, d := range t.P50 {
		if d > limit {
			t.Stragglers = append(t.Stragglers, int32(e))
		}
	}
	slices.SortFunc(t.Stragglers, func(a, b int32) int { return cmp.Compare(t.P50[b], t.P50[a]) })
	return t
}
