package main

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime/cgo"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
)

// nativePool is a pool with the memory of its calls.
type nativePool struct {
	*pool.Pool
	models models
}

// specJSON describes an environment to Python.
type specJSON struct {
	ID              string         `json:"id"`
	Version         int            `json:"version"`
	Keywords        string         `json:"keywords"`
	Obs             []arrayJSON    `json:"obs"`
	NumActions      int            `json:"num_actions"`
	NumPlayers      int            `json:"num_players"`
	NumOutcomes     int            `json:"num_outcomes"`
	RewardRange     [2]float32     `json:"reward_range"`
	MaxEpisodeSteps int            `json:"max_episode_steps"`
	Masks           bool           `json:"masks"`
	KeywordDocs     []envs.Keyword `json:"keyword_docs"`
	NumThreads      int            `json:"num_threads,omitempty"`
}

type arrayJSON struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Shape []int    `json:"shape"`
	Low   []string `json:"low"`
	High  []string `json:"high"`
}

func specOf(env *envs.Env) specJSON {
	s := env.Spec()
	out := specJSON{
		ID: s.ID, Version: s.Version, Keywords: s.Keywords, NumActions: s.NumActions,
		NumPlayers: s.NumPlayers, NumOutcomes: s.NumOutcomes, RewardRange: [2]float32{s.RewardLow, s.RewardHigh},
		MaxEpisodeSteps: s.MaxEpisodeSteps, Masks: env.Capabilities().Masks,
	}
	for _, a := range s.Obs {
		j := arrayJSON{Name: a.Name, DType: a.DType.String(), Shape: append([]int{}, a.Shape...)}
		for i := range a.Low {
			j.Low = append(j.Low, fmt.Sprint(a.Low[i]))
		}
		for i := range a.High {
			j.High = append(j.High, fmt.Sprint(a.High[i]))
		}
		out.Obs = append(out.Obs, j)
	}
	if e, err := envs.Lookup(s.ID); err == nil {
		out.KeywordDocs = e.Keywords
	}
	return out
}

//export azs_list
func azs_list(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		b, err := json.Marshal(envs.IDs())
		put(a, b)
		return err
	})
}

// openJSON is what opens a pool, or describes an environment.
type openJSON struct {
	ID        string        `json:"id"`
	Keywords  envs.Keywords `json:"keywords"`
	NumEnvs   int           `json:"num_envs"`
	BatchSize int           `json:"batch_size"`
	Seeds     []uint64      `json:"seeds"`
	Threads   int           `json:"num_threads"`
	Dispatch  string        `json:"dispatch"`
	Autoreset string        `json:"autoreset"`
	MaxStates int           `json:"max_states"`
	MaxBytes  int64         `json:"max_bytes"`
}

func decodeOpen(a *C.azs_text) (o openJSON, env *envs.Env, err error) {
	if err := json.Unmarshal(text(a.in, a.in_len), &o); err != nil {
		return o, nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	env, err = envs.Make(o.ID, o.Keywords)
	return o, env, err
}

//export azs_spec
func azs_spec(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		_, env, err := decodeOpen(a)
		if err != nil {
			return err
		}
		b, err := json.Marshal(specOf(env))
		put(a, b)
		return err
	})
}

//export azs_pool_open
func azs_pool_open(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		o, env, err := decodeOpen(a)
		if err != nil {
			return err
		}
		mode, err := dispatch.Parse(o.Dispatch)
		if err != nil {
			return fmt.Errorf("%w: %w", errInvalid, err)
		}
		if n := len(env.Spec().Obs); n > len(C.azs_rows{}.obs) {
			return fmt.Errorf("%w: %s has %d observation arrays; want at most %d", errInvalid, o.ID, n,
				len(C.azs_rows{}.obs))
		}
		p, err := pool.New(env, pool.Config{
			NumEnvs: o.NumEnvs, BatchSize: o.BatchSize, Seeds: o.Seeds, NumThreads: o.Threads,
			Dispatch: mode, Autoreset: pool.Autoreset(o.Autoreset), MaxStates: o.MaxStates, MaxBytes: o.MaxBytes,
		})
		if err != nil {
			return err
		}
		s := specOf(env)
		s.NumThreads = p.NumThreads()
		b, err := json.Marshal(s)
		if err != nil {
			p.Close()
			return err
		}
		if len(b) > int(a.out_cap) {
			p.Close()
			put(a, b)
			return nil
		}
		put(a, b)
		a.handle = C.uint64_t(cgo.NewHandle(&nativePool{Pool: p}))
		return nil
	})
}

//export azs_pool_stats
func azs_pool_stats(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.handle, "pool")
		if err != nil {
			return err
		}
		s := p.Store().Stats()
		b, err := json.Marshal(map[string]any{
			"live_states": s.Live, "states": s.States, "reserved_states": s.Reserved, "searches": s.Blocks,
			"peak_states": s.Peak, "max_states": s.Limit, "bytes": s.Bytes,
		})
		put(a, b)
		return err
	})
}

//export azs_pool_close
func azs_pool_close(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.handle, "pool")
		if err != nil {
			return err
		}
		p.Close()
		p.models.close()
		cgo.Handle(a.handle).Delete()
		return nil
	})
}

//export azs_pool_reset
func azs_pool_reset(a *C.azs_send) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		return p.AsyncReset(slice[uint64](a.seeds, int(a.n)))
	})
}

//export azs_pool_send
func azs_pool_send(a *C.azs_send) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		n := int(a.n)
		return p.Send(slice[int32](a.actions, n), slice[int32](a.ids, n))
	})
}

// slicesAt is how long a recv without a timeout waits before it returns to Python, which looks for
// signals and calls again.
const slicesAt = 200 * time.Millisecond

//export azs_pool_recv
func azs_pool_recv(a *C.azs_recv) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		timeout := time.Duration(float64(a.timeout) * float64(time.Second))
		switch {
		case a.timeout >= 0:
		case p.Quick():
			timeout = -1
		default:
			timeout = slicesAt
		}
		c := p.Config()
		rows := c.BatchSize
		var obs [16]envs.Array
		b := pool.Batch{
			EnvID: array[int32](a.rows.env_id, rows), Obs: observations(p.Env().Spec(), &a.rows, rows, obs[:0]),
			Mask:   array[bool](a.rows.mask, rows*p.Env().Spec().NumActions),
			Reward: array[float32](a.rows.reward, rows), Terminated: array[bool](a.rows.terminated, rows),
			Truncated: array[bool](a.rows.truncated, rows), ToPlay: array[int32](a.rows.to_play, rows),
			Elapsed: array[int32](a.rows.elapsed, rows),
		}
		n, err := p.Recv(timeout, &b)
		a.n, a.done = C.int64_t(n), C.int64_t(b.Done)
		return err
	})
}

// observations returns the caller's arrays for n rows.
func observations(spec *envs.Spec, rows *C.azs_rows, n int, out []envs.Array) []envs.Array {
	for k := range spec.Obs {
		s := &spec.Obs[k]
		size := s.Len()
		at, count := rows.obs[k], n*size
		var x envs.Array
		switch s.DType {
		case envs.Float32:
			x.F32 = array[float32](at, count)
		case envs.Float64:
			x.F64 = array[float64](at, count)
		case envs.Int32:
			x.I32 = array[int32](at, count)
		case envs.Uint8:
			x.U8 = array[uint8](at, count)
		case envs.Bool:
			x.Bool = array[bool](at, count)
		}
		out = append(out, x.WithSize(size))
	}
	return out
}

//export azs_pool_final
func azs_pool_final(a *C.azs_recv) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		n := int(a.n)
		return p.FinalObs(slice[int32](a.states, n), observations(p.Env().Spec(), &a.rows, n, nil))
	})
}

//export azs_pool_snapshot
func azs_pool_snapshot(a *C.azs_send) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		n := int(a.n)
		return p.Snapshot(slice[int32](a.ids, n), slice[int32](a.states, n))
	})
}

//export azs_pool_restore
func azs_pool_restore(a *C.azs_send) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		n := int(a.n)
		return p.Restore(slice[int32](a.ids, n), slice[int32](a.states, n))
	})
}

//export azs_pool_release
func azs_pool_release(a *C.azs_send) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		return p.Store().Release(slice[int32](a.states, int(a.n)))
	})
}

//export azs_pool_simulate
func azs_pool_simulate(a *C.azs_recv) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		n, spec := int(a.n), p.Env().Spec()
		out := statestore.Steps{
			Children: array[int32](a.rows.child, n), Reward: array[float32](a.rows.reward, n),
			Terminated: array[bool](a.rows.terminated, n), Truncated: array[bool](a.rows.truncated, n),
			View: statestore.View{
				Obs:    observations(spec, &a.rows, n, nil),
				Mask:   array[bool](a.rows.mask, n*spec.NumActions),
				ToPlay: array[int32](a.rows.to_play, n),
			},
		}
		return p.Store().Simulate(slice[int32](a.states, n), slice[int32](a.actions, n), &out)
	})
}

//export azs_pool_dump
func azs_pool_dump(a *C.azs_blobs) C.int32_t {
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
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
	return call(&a.status, func() error {
		p, err := handleOf[*nativePool](a.pool, "pool")
		if err != nil {
			return err
		}
		n := int(a.n)
		data, offsets := slice[byte](a.data, int(a.data_len)), slice[int64](a.offsets, n+1)
		blobs := make([][]byte, n)
		for i := range blobs {
			blobs[i] = data[offsets[i]:offsets[i+1]]
		}
		return p.Store().Load(blobs, slice[int32](a.states, n))
	})
}
