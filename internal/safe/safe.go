// Package safe turns panics of code that isn't ours (environments, evaluators) into errors, so that
// one fault fails one request and nothing else.
package safe

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// PanicError is a recovered panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover stores a panic in *err, unless that holds an error already. Use it deferred.
func Recover(err *error) {
	v := recover()
	if v == nil || *err != nil {
		return
	}
	*err = NewPanic(v)
}

// Call runs f; a panic in it is an error like any other.
func Call(f func() error) (err error) {
	defer Recover(&err)
	return f()
}

// NewPanic describes a panic just recovered, with the stack of the goroutine it is called on.
func NewPanic(value any) *PanicError { return &PanicError{Value: value, Stack: debug.Stack()} }

// First keeps the first panic of several goroutines. The zero value is ready; safe for concurrent
// use.
type First struct {
	mu  sync.Mutex // guards err
	err *PanicError
}

// Recover keeps a panic, if it is the first. Use it deferred.
func (f *First) Recover() {
	v := recover()
	if v == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = NewPanic(v)
	}
}

// Take returns the panic that was kept, nil if none was, and forgets it.
func (f *First) Take() *PanicError {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.err
	f.err = nil
	return err
}
