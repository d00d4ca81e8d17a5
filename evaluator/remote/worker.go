package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// Worker is one attached evaluator.
type Worker struct {
	hub   *Hub
	conn  Conn
	hello Hello

	sending sync.Mutex // held while conn is used; taken alone

	// guarded by Hub.mu
	taken    int // places
	asked    int // batches so far
	versions []uint64
	calls    map[uint64]*call
	faults   int // bad answers in a row
	err      error
	gone     chan struct{} // closed when it has left or was cut off; err says why
}

// call is a batch that waits for its answer.
type call struct{ done chan answer }

type answer struct {
	logits, values []float32
	err            error
}

// room is how many more batches it takes now. Call with Hub.mu held.
func (w *Worker) room() int { return w.hello.InFlight - w.taken }

// Gone is closed when the evaluator was cut off or has left.
func (w *Worker) Gone() <-chan struct{} { return w.gone }

// Err says why.
func (w *Worker) Err() error {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.err
}

// SetVersions says under which weights it can answer from now on, the newest last.
func (w *Worker) SetVersions(versions []uint64) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.setVersions(versions)
	w.hub.wake()
}

func (w *Worker) setVersions(versions []uint64) {
	if len(versions) == 0 {
		versions = []uint64{0}
	}
	w.versions = slices.Clone(versions)
	w.hub.version = versions[len(versions)-1]
}

// Detach ends it: what it was asked is asked of another.
func (w *Worker) Detach(err error) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.leave(err)
}

// leave takes it out of the model. Call with Hub.mu held.
func (w *Worker) leave(err error) {
	if w.err != nil {
		return
	}
	if err == nil {
		err = ErrGone
	}
	w.err = err
	w.hub.workers = slices.DeleteFunc(w.hub.workers, func(x *Worker) bool { return x == w })
	w.hub.stats.Lost++
	if errors.Is(err, ErrCutOff) {
		w.hub.stats.CutOff++
	}
	w.hub.settleVersion()
	close(w.gone)
	w.hub.announce()
}

// Answer takes the answer to a batch: logits [n, A] and values [n], which it keeps.
func (w *Worker) Answer(id uint64, logits, values []float32) {
	w.settle(id, answer{logits: logits, values: values})
}

// Fail takes the answer that there is none.
func (w *Worker) Fail(id uint64, message string) {
	w.settle(id, answer{err: fmt.Errorf("%w: %s", ErrFailed, message)})
}

// NoWeights takes the answer that the version that was asked for isn't kept any more.
func (w *Worker) NoWeights(id uint64) {
	w.settle(id, answer{err: fmt.Errorf("%w of model %s has the weights that were asked for any more", ErrUnavailable,
		w.hub.name)})
}

func (w *Worker) settle(id uint64, a answer) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	c := w.calls[id]
	if c == nil {
		if id > w.hub.lastID || id == 0 { // it was never asked; what was given up may still be answered
			w.fault(fmt.Sprintf("an answer to batch %d, which it was never sent", id))
		}
		return
	}
	delete(w.calls, id)
	c.done <- a
}

// fault counts a bad answer. Call with Hub.mu held.
func (w *Worker) fault(problem string) {
	if w.faults++; w.faults >= w.hub.cfg.Faults {
		w.leave(fmt.Errorf("%w: evaluator %s: %d bad answers in a row, the last: %s", ErrCutOff, w.hello.Name, w.faults,
			problem))
	}
}

// judge counts how a batch went.
func (w *Worker) judge(rows int, problem string) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if problem != "" {
		w.hub.stats.Failed++
		w.fault(problem)
		return
	}
	w.faults = 0
	w.hub.stats.Batches++
	w.hub.stats.Rows += int64(rows)
}

// errLost marks a batch that another evaluator may do.
var errLost = errors.New("remote: lost")

// ask has a batch evaluated, of a size that the evaluator takes.
func (w *Worker) ask(ctx context.Context, env *envs.Env, version uint64, in *evaluator.Batch,
	out *evaluator.Output) error {
	c := &call{done: make(chan answer, 1)}
	id, err := w.begin(c)
	if err != nil {
		return err
	}
	// The timer is for a connection that doesn't take the batch as well.
	timer := time.AfterFunc(w.hub.cfg.Timeout, func() {
		w.Detach(fmt.Errorf("%w: evaluator %s: no answer to a batch within %v", ErrSlow, w.hello.Name,
			w.hub.cfg.Timeout))
	})
	defer timer.Stop()
	if err := w.send(&Request{ID: id, Version: version, Env: env, Batch: in}); err != nil {
		if errors.Is(err, ErrFailed) { // of this batch alone
			w.forget(id)
			return err
		}
		w.Detach(err)
		return errLost
	}
	select {
	case a := <-c.done:
		return w.take(a, in.N, env.Spec().NumActions, out)
	case <-w.gone:
		return errLost
	case <-ctx.Done():
		w.abandon(id)
		return ctx.Err()
	}
}

func (w *Worker) send(r *Request) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.conn.Send(r)
}

// begin notes a batch that is about to be sent.
func (w *Worker) begin(c *call) (id uint64, err error) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.err != nil {
		return 0, errLost
	}
	w.hub.lastID++
	w.calls[w.hub.lastID] = c
	return w.hub.lastID, nil
}

func (w *Worker) forget(id uint64) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.calls, id)
}

// abandon forgets a batch that nobody waits for any more.
func (w *Worker) abandon(id uint64) {
	w.forget(id)
	w.sending.Lock()
	defer w.sending.Unlock()
	if err := w.conn.Cancel(id); err != nil {
		w.Detach(err)
	}
}

// take copies an answer.
func (w *Worker) take(a answer, n, actions int, out *evaluator.Output) error {
	switch {
	case a.err != nil:
		return a.err
	case len(a.logits) != n*actions || len(a.values) != n:
		return fmt.Errorf("%w: %d logits and %d values for %d rows of %d actions; want %d and %d", ErrFailed,
			len(a.logits),
			len(a.values), n, actions, n*actions, n)
	}
	copy(out.Logits, a.logits)
	copy(out.Value, a.values)
	return nil
}
