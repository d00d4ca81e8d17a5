// Package native is the Go side of the Python package: the functions that a C library exports. It holds
// conversions only: every exported function decodes its block of arguments, makes one call, and
// encodes what came. The interface is python/src/azserve/azserve.h.
//
// A program imports it for its exports alone and is built with -buildmode=c-shared; python/libazserve is
// the one that the package ships. One with environments of its own registers them in an init function,
// since a library's main is never called:
//
//	import _ "github.com/azserve/azserve/python/native"
//
//	func init() { envs.MustRegister("Mine-v0", envs.NewEntry("What it is.", NewMine)) }
//
//	func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
package native

/*
#cgo CFLAGS: -std=c11
#include <stdint.h>
#include <stdlib.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime/cgo"
	"unsafe"

	"github.com/azserve/azserve/internal/safe"
)

// abiVersion changes with every change of azserve.h; Python refuses another one.
const abiVersion = 5

//export azs_abi_version
func azs_abi_version() C.int32_t { return abiVersion }

// finish encodes a call's error into its status and returns the code. Deferred with the address of
// the error, after safe.Recover.
func finish(s *C.azs_status, err error) C.int32_t {
	s.code = 0
	if err == nil {
		return 0
	}
	s.code = C.int32_t(codeOf(err))
	if s.message != nil && s.message_cap > 0 {
		out := unsafe.Slice((*byte)(unsafe.Pointer(s.message)), int(s.message_cap))
		n := copy(out[:len(out)-1], err.Error())
		out[n] = 0
	}
	return s.code
}

// call runs f, a panic being an error like any other.
func call(s *C.azs_status, f func() error) C.int32_t {
	return finish(s, safe.Call(f))
}

// callOn is call with the object behind a number that Python holds.
func callOn[T any](s *C.azs_status, h C.uint64_t, what string, f func(T) error) C.int32_t {
	return call(s, func() error {
		obj, err := handleOf[T](h, what)
		if err != nil {
			return err
		}
		return f(obj)
	})
}

// handleOf returns the object behind a number that Python holds.
func handleOf[T any](h C.uint64_t, what string) (obj T, err error) {
	defer func() {
		if recover() != nil { // cgo.Handle panics on a number it never gave
			err = handleError{what}
		}
	}()
	obj, ok := cgo.Handle(h).Value().(T)
	if !ok {
		return obj, handleError{what}
	}
	return obj, nil
}

// handleError is a number that is no open object of its kind.
type handleError struct{ what string }

func (e handleError) Error() string { return "not an open " + e.what + " (closed already?)" }

// decode reads the JSON that Python sent.
func decode(a *C.azs_text, v any) error {
	if err := json.Unmarshal(text(a.in, a.in_len), v); err != nil {
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	return nil
}

// reply puts v as JSON where Python reads it.
func reply(a *C.azs_text, v any) error {
	b, err := json.Marshal(v)
	put(a, b)
	return err
}

// slice returns n elements at a C pointer, nil at NULL.
func slice[T, P any](p *P, n int) []T {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(p)), n)
}

// text returns the bytes of a caller's string.
func text(p *C.char, n C.int64_t) []byte { return slice[byte](p, int(n)) }

// put writes text to the caller's buffer, or only its length if there is no room.
func put(a *C.azs_text, b []byte) {
	a.out_len = C.int64_t(len(b))
	if len(b) <= int(a.out_cap) {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(a.out)), int(a.out_cap)), b)
	}
}
