package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
)

// nativePool is a pool with the memory of its calls.
type nativePool struct {
	*pool.Pool
	models models
	tmp    sync.Pool // *arrayLists
	xla    xlaPool
}

// arrayLists is memory for lists of a call's arrays.
type arrayLists struct{ obs, info, finalObs, finalInfo [maxArrays]envs.Array }

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
	AnyAction       bool           `json:"any_action"`
	Info            []arrayJSON    `json:"info"`
	ComponentNames  []string       `json:"component_names"`
	ComponentSizes  []int          `json:"component_sizes"`
	FrameSize       [2]int         `json:"frame_size"`
	PureWidth       int            `json:"pure_width"` // bytes of a pure state; 0 where there is none
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
		MaxEpisodeSteps: s.MaxEpisodeSteps, Masks: env.Capabilities().Masks && !s.AllLegal, AnyAction: s.AnyAction,
		Obs: arraysJSON(s.Obs), Info: arraysJSON(s.Info), ComponentNames: s.Factorization.Names,
		ComponentSizes: s.Factorization.Sizes,
	}
	if env.Capabilities().Plain {
		out.PureWidth = pureWidth(env)
	}
	out.FrameSize[0], out.FrameSize[1] = env.NewArena(0).FrameSize()
	if e, err := envs.Lookup(s.ID); err == nil {
		out.KeywordDocs = e.Keywords
	}
	return out
}

func arraysJSON(specs []envs.ArraySpec) []arrayJSON {
	out := []arrayJSON{}
	for _, a := range specs {
		j := arrayJSON{Name: a.Name, DType: a.DType.String(), Shape: append([]int{}, a.Shape...)}
		for i := range a.Low {
			j.Low = append(j.Low, fmt.Sprint(a.Low[i]))
		}
		for i := range a.High {
			j.High = append(j.High, fmt.Sprint(a.High[i]))
		}
		out = append(out, j)
	}
	return out
}

//export azs_list
func azs_list(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		return reply(a, envs.IDs())
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
	CPUs      []int         `json:"cpus"`
	Record    bool          `json:"record"`
}

func decodeOpen(a *C.azs_text) (o openJSON, env *envs.Env, err error) {
	if err := decode(a, &o); err != nil {
		return o, nil, err
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
		return reply(a, specOf(env))
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
		if n := max(len(env.Spec().Obs), len(env.Spec().Info)); n > maxArrays {
			return fmt.Errorf("%w: %s has %d observation or info arrays; want at most %d", errInvalid, o.ID, n, maxArrays)
		}
		p, err := pool.New(env, pool.Config{
			NumEnvs: o.NumEnvs, BatchSize: o.BatchSize, Seeds: o.Seeds, NumThreads: o.Threads,
			Dispatch: mode, Autoreset: pool.Autoreset(o.Autoreset), MaxStates: o.MaxStates, MaxBytes: o.MaxBytes,
			CPUs: o.CPUs, Record: o.Record,
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
		np := &nativePool{Pool: p}
		np.tmp.New = func() any { return &arrayLists{} }
		a.handle = C.uint64_t(cgo.NewHandle(np))
		return nil
	})
}

//export azs_pool_stats
func azs_pool_stats(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "pool", func(p *nativePool) error {
		s := p.Store().Stats()
		return reply(a, map[string]any{
			"live_states": s.Live, "states": s.States, "reserved_states": s.Reserved, "searches": s.Blocks,
			"peak_states": s.Peak, "max_states": s.Limit, "bytes": s.Bytes,
		})
	})
}

//export azs_pool_close
func azs_pool_close(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "pool", func(p *nativePool) error {
		p.Close()
		p.models.close()
		cgo.Handle(a.handle).Delete()
		return nil
	})
}

//export azs_pool_reset
func azs_pool_reset(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		return p.AsyncReset(slice[int32](a.ids, n), slice[uint64](a.seeds, n), slice[bool](a.seeded, n))
	})
}

//export azs_pool_send
func azs_pool_send(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		return p.Send(slice[int32](a.actions, n), slice[int32](a.ids, n))
	})
}

// slicesAt is how long a recv without a timeout waits before it returns to Python, which looks for
// signals and calls again.
const slicesAt = 200 * time.Millisecond

//export azs_pool_recv
func azs_pool_recv(a *C.azs_recv) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		return p.recv(a)
	})
}

//export azs_pool_step
func azs_pool_step(a *C.azs_recv, s *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(s.n)
		if err := p.Send(slice[int32](s.actions, n), slice[int32](s.ids, n)); err != nil {
			return err
		}
		return p.recv(a)
	})
}

func (p *nativePool) recv(a *C.azs_recv) error {
	timeout := time.Duration(float64(a.timeout) * float64(time.Second))
	switch {
	case a.timeout >= 0:
	case p.Quick():
		timeout = -1
	default:
		timeout = slicesAt
	}
	r, rows, spec := &a.rows, p.Config().BatchSize, p.Env().Spec()
	m := p.tmp.Get().(*arrayLists)
	defer p.tmp.Put(m)
	b := pool.Batch{
		EnvID: array[int32](r, r.env_id, rows), Obs: arrays(spec.Obs, r, &r.obs, rows, m.obs[:0]),
		Info: arrays(spec.Info, r, &r.info, rows, m.info[:0]), Mask: array[bool](r, r.mask, rows*spec.NumActions),
		Rewards: array[float32](r, r.rewards, rows*spec.NumPlayers),
		Reward:  array[float32](r, r.reward, rows), Terminated: array[bool](r, r.terminated, rows),
		Truncated: array[bool](r, r.truncated, rows), ToPlay: array[int32](r, r.to_play, rows),
		Elapsed: array[int32](r, r.elapsed, rows), Over: array[bool](r, r.over, rows),
		Failed:    array[bool](r, r.failed, rows),
		Final:     arrays(spec.Obs, r, &r.final_obs, rows, m.finalObs[:0]),
		FinalInfo: arrays(spec.Info, r, &r.final_info, rows, m.finalInfo[:0]),
	}
	n, err := p.Recv(timeout, &b)
	a.n, a.done = C.int64_t(n), C.int64_t(b.Done)
	return err
}

// array returns n elements of a caller's array, nil where he wants none.
func array[T any](r *C.azs_rows, offset C.int64_t, n int) []T {
	if offset < 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Add(unsafe.Pointer(r.base), int(offset))), n)
}

// maxArrays is the most observation or info arrays of an environment.
const maxArrays = 16

// arrays returns the caller's arrays for n rows; nil if he gave none.
func arrays(
	specs []envs.ArraySpec, r *C.azs_rows, offsets *[maxArrays]C.int64_t, n int, out []envs.Array,
) []envs.Array {
	if len(specs) == 0 || offsets[0] < 0 {
		return nil
	}
	for k := range specs {
		s := &specs[k]
		size := s.Len()
		at, count := offsets[k], n*size
		var x envs.Array
		switch s.DType {
		case envs.Float32:
			x.F32 = array[float32](r, at, count)
		case envs.Float64:
			x.F64 = array[float64](r, at, count)
		case envs.Int32:
			x.I32 = array[int32](r, at, count)
		case envs.Uint8:
			x.U8 = array[uint8](r, at, count)
		case envs.Bool:
			x.Bool = array[bool](r, at, count)
		}
		out = append(out, x.WithSize(size))
	}
	return out
}

//export azs_pool_snapshot
func azs_pool_snapshot(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		return p.Snapshot(slice[int32](a.ids, n), slice[int32](a.states, n))
	})
}

//export azs_pool_restore
func azs_pool_restore(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		n := int(a.n)
		return p.Restore(slice[int32](a.ids, n), slice[int32](a.states, n))
	})
}

//export azs_pool_release
func azs_pool_release(a *C.azs_send) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		return p.Store().Release(slice[int32](a.states, int(a.n)))
	})
}

//export azs_pool_simulate
func azs_pool_simulate(a *C.azs_recv) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		r, n, spec := &a.rows, int(a.n), p.Env().Spec()
		m := p.tmp.Get().(*arrayLists)
		defer p.tmp.Put(m)
		out := statestore.Steps{
			Children: array[int32](r, r.child, n), Reward: array[float32](r, r.reward, n),
			Rewards:    array[float32](r, r.rewards, n*spec.NumPlayers),
			Terminated: array[bool](r, r.terminated, n), Truncated: array[bool](r, r.truncated, n),
			Over: array[bool](r, r.over, n),
			View: p.view(a, n, m),
		}
		return p.Store().Simulate(slice[int32](a.states, n), slice[int32](a.actions, n), &out)
	})
}

//export azs_pool_observe
func azs_pool_observe(a *C.azs_recv) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		m := p.tmp.Get().(*arrayLists)
		defer p.tmp.Put(m)
		n := int(a.n)
		view := p.view(a, n, m)
		return p.Read(slice[int32](a.ids, n), slice[int32](a.states, n), func(handles []int32) error {
			return p.Store().Read(handles, view)
		})
	})
}

// view returns the caller's arrays for what n states look like.
func (p *nativePool) view(a *C.azs_recv, n int, m *arrayLists) statestore.View {
	r, spec := &a.rows, p.Env().Spec()
	return statestore.View{
		Obs: arrays(spec.Obs, r, &r.obs, n, m.obs[:0]), Info: arrays(spec.Info, r, &r.info, n, m.info[:0]),
		Mask: array[bool](r, r.mask, n*spec.NumActions), ToPlay: array[int32](r, r.to_play, n),
	}
}
