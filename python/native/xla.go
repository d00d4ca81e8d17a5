package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
#include "xla.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"github.com/azserve/azserve/errcode"
	"sync"
	"unsafe"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/statestore"
)

// errHandle is a handle of a pool or search that was used before: its call would be done twice.
var errHandle = errors.New("azserve: stale handle: use the one that the last call returned")

// XLA's error codes.
const (
	xlaInvalid      = 3
	xlaExhausted    = 8
	xlaPrecondition = 9
	xlaInternal     = 13
)

// xlaPool is what a pool keeps for calls from XLA.
type xlaPool struct {
	mu         sync.Mutex // guards what follows
	generation uint64     // calls so far: what the next handle must say
	scopes     [][]int32  // states that calls made, innermost scope last
	cost       *dispatch.Dispatcher
	arenas     sync.Pool // envs.Arena
}

// xlaOps are the calls, by the numbers of xla.h.
var xlaOps = [C.AZS_XLA_OPS]func(p *nativePool, f *frame) error{
	C.AZS_XLA_RESET: xlaReset, C.AZS_XLA_STEP: xlaStep, C.AZS_XLA_SNAPSHOT: xlaSnapshot,
	C.AZS_XLA_SIMULATE: xlaSimulate, C.AZS_XLA_OBSERVE: xlaObserve, C.AZS_XLA_RELEASE: xlaRelease,
	C.AZS_XLA_INIT: xlaInit, C.AZS_XLA_PURE: xlaPure, C.AZS_XLA_OPEN: xlaOpen, C.AZS_XLA_NEXT: xlaNext,
	C.AZS_XLA_RESULT: xlaResult, C.AZS_XLA_SEARCH: xlaSearch,
}

//export azs_xla_call
func azs_xla_call(op C.int32_t, a *C.azs_xla) C.int32_t {
	err := safe.Call(func() error {
		p, err := handleOf[*nativePool](C.uint64_t(a.pool), "pool")
		if err != nil {
			return err
		}
		return xlaOps[op](p, &frame{a: a})
	})
	if err == nil {
		return 0
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(&a.message[0])), len(a.message))
	out[copy(out[:len(out)-1], err.Error())] = 0
	switch codeOf(err) {
	case errcode.Panic, errcode.Other:
		return xlaInternal
	case errcode.Budget:
		return xlaExhausted
	case errcode.StaleState, errcode.ForeignState, errcode.EnvBusy, errcode.NothingInFlight, errcode.Closed,
		errcode.EpisodeEnded, errcode.NotStarted, errcode.CallOrder:
		return xlaPrecondition
	default:
		return xlaInvalid
	}
}

// frame is a call; results are taken in their order.
type frame struct {
	a    *C.azs_xla
	next int
}

// in returns argument i.
func in[T any](f *frame, i int) []T { return unsafe.Slice((*T)(f.a.args[i]), int(f.a.counts[i])) }

// count returns the number of elements of argument i.
func (f *frame) count(i int) int { return int(f.a.counts[i]) }

// out returns the next result, of n elements.
func out[T any](f *frame, n int) []T {
	at := f.a.rets[f.next]
	f.next++
	return unsafe.Slice((*T)(at), n)
}

// arrays returns the next results, n rows of each specification.
func (f *frame) arrays(specs []envs.ArraySpec, n int) []envs.Array {
	list := make([]envs.Array, len(specs))
	for k := range specs {
		s := &specs[k]
		size := s.Len()
		switch s.DType {
		case envs.Float32:
			list[k].F32 = out[float32](f, n*size)
		case envs.Float64:
			list[k].F64 = out[float64](f, n*size)
		case envs.Int32:
			list[k].I32 = out[int32](f, n*size)
		case envs.Uint8:
			list[k].U8 = out[uint8](f, n*size)
		case envs.Bool:
			list[k].Bool = out[bool](f, n*size)
		}
		list[k] = list[k].WithSize(size)
	}
	return list
}

// seeds returns the 64-bit seeds that argument i holds as pairs of 32 bits.
func (f *frame) seeds(i int) []uint64 {
	pairs := in[uint32](f, i)
	seeds := make([]uint64, len(pairs)/2)
	for k := range seeds {
		seeds[k] = uint64(pairs[2*k])<<32 | uint64(pairs[2*k+1])
	}
	return seeds
}

// anyGeneration marks a handle that isn't checked: the call has a side effect, and XLA keeps its order.
const anyGeneration = ^uint64(0)

// turn checks the handle in argument 0 and writes the next one to the next result.
func (p *nativePool) turn(f *frame) error {
	h, next := in[uint32](f, 0), out[uint32](f, 4)
	given := uint64(h[1])<<32 | uint64(h[2])
	p.xla.mu.Lock()
	defer p.xla.mu.Unlock()
	if given != anyGeneration && given != p.xla.generation {
		return fmt.Errorf("%w: call %d of %d", errHandle, given, p.xla.generation)
	}
	p.xla.generation++
	copy(next, h)
	if given != anyGeneration {
		next[1], next[2] = uint32(p.xla.generation>>32), uint32(p.xla.generation)
	}
	return nil
}

// made notes states that a call made, for the innermost scope.
func (p *nativePool) made(handles []int32) {
	p.xla.mu.Lock()
	defer p.xla.mu.Unlock()
	if n := len(p.xla.scopes); n > 0 {
		p.xla.scopes[n-1] = append(p.xla.scopes[n-1], handles...)
	}
}

//export azs_xla_generation
func azs_xla_generation(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "pool", func(p *nativePool) error {
		p.xla.mu.Lock()
		defer p.xla.mu.Unlock()
		return reply(a, p.xla.generation)
	})
}

//export azs_xla_scope
func azs_xla_scope(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "pool", func(p *nativePool) error {
		var args struct {
			Open bool `json:"open"`
		}
		if err := decode(a, &args); err != nil {
			return err
		}
		p.xla.mu.Lock()
		defer p.xla.mu.Unlock()
		n := len(p.xla.scopes)
		if args.Open {
			p.xla.scopes = append(p.xla.scopes, nil)
			return nil
		}
		if n == 0 {
			return fmt.Errorf("%w: no scope is open", errInvalid)
		}
		left := p.xla.scopes[n-1]
		p.xla.scopes = p.xla.scopes[:n-1]
		for _, h := range left {
			// What was released by hand meanwhile is left alone.
			if err := p.Store().Release([]int32{h}); err != nil && !errors.Is(err, statestore.ErrStale) {
				return err
			}
		}
		return nil
	})
}
