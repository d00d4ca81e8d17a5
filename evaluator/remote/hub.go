package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// Hub is the evaluators of one model. Safe for concurrent use.
type Hub struct {
	name string
	cfg  Config

	mu        sync.Mutex // guards everything below, and the fields of workers and calls that say so
	workers   []*Worker
	changed   chan struct{} // closed, and made anew, when a place may have become free
	version   uint64        // of the newest weights
	lastID    uint64
	listeners map[int]func(Capacity)
	listening int
	stats     Stats
	closed    bool
}

// NewHub makes a model without evaluators.
func NewHub(name string, cfg Config) *Hub {
	return &Hub{name: name, cfg: cfg.withDefaults(), changed: make(chan struct{}), listeners: map[int]func(Capacity){}}
}

// Name returns the model's name.
func (h *Hub) Name() string { return h.name }

// Timeout returns how long an evaluator may take for a batch.
func (h *Hub) Timeout() time.Duration { return h.cfg.Timeout }

// Stats returns what was done so far.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.Evaluators, s.Version = len(h.workers), h.version
	return s
}

// Listen calls f with what the evaluators take together, now and at every change, until stop.
func (h *Hub) Listen(f func(Capacity)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listening++
	at := h.listening
	h.listeners[at] = f
	f(h.capacity())
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, at)
	}
}

// capacity is what the evaluators take. Call with mu held.
func (h *Hub) capacity() Capacity {
	c := Capacity{Evaluators: len(h.workers)}
	for _, w := range h.workers {
		c.Batches += w.hello.InFlight
		if c.MaxBatch == 0 || w.hello.MaxBatch < c.MaxBatch {
			c.MaxBatch = w.hello.MaxBatch
		}
	}
	return c
}

// Ready waits until an evaluator is attached, for the grace time at most.
func (h *Hub) Ready(ctx context.Context) error {
	timer := time.NewTimer(h.cfg.Grace)
	defer timer.Stop()
	for {
		h.mu.Lock()
		ready, changed := len(h.workers) > 0, h.changed
		h.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("%w of model %s is attached; attach one (azserve.serve_evaluator)", ErrUnavailable, h.name)
		}
	}
}

// wake tells everybody who waits to look again. Call with mu held.
func (h *Hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Attach adds an evaluator. Its connection's reader calls Answer, Fail and SetVersions, and Detach at the end.
func (h *Hub) Attach(conn Conn, hello Hello) (*Worker, error) {
	if err := hello.Validate(); err != nil {
		return nil, err
	}
	if hello.InFlight == 0 {
		hello.InFlight = 2
	}
	w := &Worker{hub: h, conn: conn, hello: hello, calls: map[uint64]*call{}, gone: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, evaluator.ErrClosed
	}
	newest := h.version
	h.workers = append(h.workers, w)
	w.setVersions(hello.Versions)
	if newest > h.version && h.has(newest) { // one that is behind doesn't take the others back
		h.version = newest
	}
	h.announce()
	return w, nil
}

// has says whether an evaluator has weights of a version. Call with mu held.
func (h *Hub) has(version uint64) bool {
	return slices.ContainsFunc(h.workers, func(w *Worker) bool { return slices.Contains(w.versions, version) })
}

// settleVersion sees to it that searches begin with weights that somebody has. Call with mu held.
func (h *Hub) settleVersion() {
	if h.has(h.version) || len(h.workers) == 0 {
		return
	}
	h.version = 0
	for _, w := range h.workers {
		h.version = max(h.version, w.versions[len(w.versions)-1])
	}
}

// announce tells the listeners, and those who wait, that the evaluators have changed. Call with mu held.
func (h *Hub) announce() {
	c := h.capacity()
	for _, f := range h.listeners {
		f(c)
	}
	h.wake()
}

// Close cuts all evaluators off.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, w := range slices.Clone(h.workers) {
		w.leave(evaluator.ErrClosed)
	}
}

// Evaluator returns the model as an evaluator of an environment; a search that pins it keeps its weights.
func (h *Hub) Evaluator(env *envs.Env) evaluator.Evaluator { return &model{hub: h, env: env} }

// acquire takes a place of the evaluator that has most room.
func (h *Hub) acquire(ctx context.Context, version uint64) (*Worker, error) {
	var grace <-chan time.Time
	for {
		w, some, any, changed := h.take(version)
		switch {
		case w != nil:
			return w, nil
		case any && !some:
			return nil, fmt.Errorf("%w of model %s has the weights of version %d any more", ErrUnavailable, h.name, version)
		case !any && grace == nil:
			timer := time.NewTimer(h.cfg.Grace)
			defer timer.Stop()
			grace = timer.C
		case any:
			grace = nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-grace:
			return nil, fmt.Errorf("%w of model %s is attached any more", ErrUnavailable, h.name)
		}
	}
}

// take returns a place if there is a free one, and whether some evaluator has the weights, or there is any.
func (h *Hub) take(version uint64) (best *Worker, some, any bool, changed chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		if !slices.Contains(w.versions, version) {
			continue
		}
		some = true
		if room := w.room(); room > 0 && (best == nil || room > best.room() ||
			room == best.room() && w.asked < best.asked) {
			best = w
		}
	}
	if best != nil {
		best.taken++
		best.asked++
	}
	return best, some, len(h.workers) > 0, h.changed
}

// release gives a place back.
func (h *Hub) release(w *Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.taken--
	h.wake()
}
