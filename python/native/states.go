package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"github.com/azserve/azserve/envs"
)

//export azs_pool_replay
func azs_pool_replay(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		return p.Replay(slice[int32](a.ids, n), slice[int32](a.actions, n), slice[int32](a.states, n))
	})
}

//export azs_pool_actions
func azs_pool_actions(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "pool", func(p *nativePool) error {
		var in struct {
			EnvID int32 `json:"env_id"`
		}
		if err := decode(a, &in); err != nil {
			return err
		}
		actions, err := p.Actions(in.EnvID)
		if err != nil {
			return err
		}
		return reply(a, actions)
	})
}

//export azs_pool_hash
func azs_pool_hash(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		return p.Store().Hash(slice[int32](a.states, n), slice[uint64](a.keys, n))
	})
}

//export azs_pool_mask
func azs_pool_mask(a *C.azs_mask) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n, width := int(a.n), int(a.width)
		prefixes := &envs.Prefixes{
			Values: slice[int32](a.prefix, n*int(a.stride)), Stride: int(a.stride), Lengths: slice[int32](a.lengths, n),
		}
		mask := slice[bool](a.mask, n*width)
		return p.Read(slice[int32](a.ids, n), slice[int32](a.states, n), func(handles []int32) error {
			return p.Store().ConditionalMask(handles, prefixes, mask, width)
		})
	})
}

//export azs_pool_paint
func azs_pool_paint(a *C.azs_paint) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		w, h := p.Store().FrameSize()
		a.width, a.height = C.int64_t(w), C.int64_t(h)
		n := int(a.n)
		if a.frames == nil {
			return nil
		}
		frames := slice[uint8](a.frames, n*w*h*3)
		return p.Read(slice[int32](a.ids, n), slice[int32](a.states, n), func(handles []int32) error {
			return p.Store().Paint(handles, frames)
		})
	})
}

//export azs_pool_text
func azs_pool_text(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "pool", func(p *nativePool) error {
		var in struct {
			State int32 `json:"state"`
		}
		if err := decode(a, &in); err != nil {
			return err
		}
		drawing, err := p.Store().Text(in.State)
		if err != nil {
			return err
		}
		return reply(a, drawing)
	})
}

//export azs_pool_timing
func azs_pool_timing(a *C.azs_timing) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n, t := p.Config().NumEnvs, p.Timing()
		p50, p99 := slice[float64](a.p50, n), slice[float64](a.p99, n)
		for e := range n {
			p50[e], p99[e] = t.P50[e].Seconds(), t.P99[e].Seconds()
		}
		a.count = C.int64_t(copy(slice[int32](a.stragglers, n), t.Stragglers))
		a.pending = C.int64_t(p.Pending())
		return nil
	})
}

//export azs_pool_dump
func azs_pool_dump(a *C.azs_blobs) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		blobs, err := p.Store().Dump(slice[int32](a.states, n))
		if err != nil {
			return err
		}
		total := 0
		offsets := slice[int64](a.offsets, n+1)
		for i, b := range blobs {
			offsets[i] = int64(total)
			total += len(b)
		}
		offsets[n] = int64(total)
		a.data_len = C.int64_t(total)
		if total > int(a.data_cap) {
			return nil
		}
		data := slice[byte](a.data, total)
		for i, b := range blobs {
			copy(data[offsets[i]:], b)
		}
		return nil
	})
}

//export azs_pool_load
func azs_pool_load(a *C.azs_blobs) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		data, offsets := slice[byte](a.data, int(a.data_len)), slice[int64](a.offsets, n+1)
		blobs := make([][]byte, n)
		for i := range blobs {
			blobs[i] = data[offsets[i]:offsets[i+1]]
		}
		return p.Store().Load(blobs, slice[int32](a.states, n))
	})
}
