// Package remote evaluates in other processes: evaluators that attach themselves over a connection, several for one
// model if there are. It knows nothing of how the connection is made; package api/server has the gRPC side.
//
// A batch goes to the evaluator with most room. One that dies, or takes too long, is given up, and what it had is
// evaluated by another: evaluations are pure, so a search ends as if nothing had happened. Answers are checked: a
// bad row fails the search that asked for it, and an evaluator whose answers are bad three times in a row is cut
// off.
package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// Errors of remote evaluation.
var (
	// ErrUnavailable is returned where no evaluator is attached, or none with the weights that a search began with.
	ErrUnavailable = errors.New("remote: no evaluator")
	// ErrFailed is returned for a batch whose evaluator said that it failed, or that answered in the wrong shape.
	ErrFailed = errors.New("remote: the evaluator failed")
	// ErrHello is returned for an evaluator that can't be.
	ErrHello = errors.New("remote: bad evaluator")
	// ErrCutOff is why an evaluator was cut off: too slow, or too often wrong.
	ErrCutOff = errors.New("remote: cut off")
	// ErrSlow is an ErrCutOff that may come again: the evaluator took too long.
	ErrSlow = fmt.Errorf("%w: too slow", ErrCutOff)
	// ErrGone is why an evaluator left.
	ErrGone = errors.New("remote: the evaluator has left")
)

// Config is a model's settings. The zero value of a field means its default.
type Config struct {
	Timeout time.Duration // of one batch, 5 s: an evaluator that takes longer is cut off
	Grace   time.Duration // how long a batch waits where no evaluator is attached; default 1 s
	Faults  int           // bad answers in a row after which an evaluator is cut off; default 3
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Grace <= 0 {
		c.Grace = time.Second
	}
	if c.Faults <= 0 {
		c.Faults = 3
	}
	return c
}

// Request is a batch on its way to an evaluator. The batch belongs to the caller of Send, for the call.
type Request struct {
	ID      uint64
	Version uint64 // of the weights to use
	Env     *envs.Env
	Batch   *evaluator.Batch
}

// Conn is the way to an evaluator. Its methods are called by one goroutine at a time.
type Conn interface {
	// Send sends a batch. An error means that the evaluator is lost, unless it is an ErrFailed, which is of this batch.
	Send(*Request) error
	// Cancel says that nobody waits for a batch any more.
	Cancel(id uint64) error
}

// Hello is how an evaluator introduces itself.
type Hello struct {
	Name     string
	MaxBatch int      // rows, at least 1
	InFlight int      // batches that it takes at a time; 0 means 2
	Versions []uint64 // of weights that it can answer under, the newest last; none: it has no versions
}

// Validate checks what an evaluator says of itself.
func (h *Hello) Validate() error {
	switch {
	case h.MaxBatch < 1 || h.MaxBatch > 1<<20:
		return fmt.Errorf("%w: max_batch=%d; want 1 to 1048576", ErrHello, h.MaxBatch)
	case h.InFlight < 0 || h.InFlight > 64:
		return fmt.Errorf("%w: in_flight=%d; want 1 to 64, or 0 for 2", ErrHello, h.InFlight)
	case len(h.Versions) > 64:
		return fmt.Errorf("%w: %d versions; want at most 64", ErrHello, len(h.Versions))
	}
	return nil
}

// Capacity is what the evaluators of a model take together.
type Capacity struct {
	Evaluators int
	Batches    int // at a time
	MaxBatch   int // rows of a batch that every one of them takes; 0 if there is none
}

// Stats counts what a model's evaluators did.
type Stats struct {
	Evaluators    int    // attached now
	Batches, Rows int64  // answered
	Failed        int64  // batches
	Retried       int64  // batches, because their evaluator was lost
	Lost, CutOff  int64  // evaluators
	Version       uint64 // of the newest weights
}
