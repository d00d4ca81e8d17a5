package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/cgo"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
)

// nativeSearch is an open search.
type nativeSearch struct {
	*search.Search
	env *envs.Env
	ev  evaluator.Evaluator // nil where Python evaluates
}

// settings is a search's settings; what JSON doesn't name keeps the policy's default.
type settings struct {
	search.Config
	evaluator string
}

// decodeSettings reads settings for an environment.
func decodeSettings(data []byte, spec *envs.Spec) (out settings, err error) {
	var given map[string]json.RawMessage
	var first struct {
		Policy    tree.Policy `json:"policy"`
		Evaluator string      `json:"evaluator"`
	}
	if err := errors.Join(json.Unmarshal(data, &given), json.Unmarshal(data, &first)); err != nil {
		return out, fmt.Errorf("%w: %w", errInvalid, err)
	}
	delete(given, "evaluator")
	out = settings{search.Default(first.Policy, spec), first.Evaluator}
	return out, out.Apply(given)
}

// decodeSearch reads what run and open have in common.
func decodeSearch(a *C.azs_search) (p *nativePool, j settings, roots *search.Roots, err error) {
	if p, err = handleOf[*nativePool](a.pool, "pool"); err != nil {
		return nil, j, nil, err
	}
	if j, err = decodeSettings(text(a.config, a.config_len), p.Env().Spec()); err != nil {
		return nil, j, nil, err
	}
	if a.cache != 0 {
		if j.Cache, err = handleOf[*evaluator.Cache](a.cache, "cache"); err != nil {
			return nil, j, nil, err
		}
	}
	n := int(a.n)
	m := n * p.Env().Spec().NumActions
	// The search outlives this call: it gets copies.
	roots = &search.Roots{
		States: clone(slice[int32](a.states, n)), Seeds: clone(slice[uint64](a.seeds, n)),
		Invalid: clone(slice[bool](a.invalid, m)),
		Noise: search.Noise{
			Dirichlet: clone(slice[float32](a.dirichlet, m)), RootGumbel: clone(slice[float32](a.root_gumbel, m)),
			ActionGumbel: clone(slice[float32](a.action_gumbel, m)),
		},
		Simulations: clone(slice[int32](a.simulations, n)), Fast: clone(slice[bool](a.fast, n)),
	}
	for _, seconds := range slice[float64](a.time_limit, n) {
		roots.Deadlines = append(roots.Deadlines, time.Now().Add(time.Duration(seconds*float64(time.Second))))
	}
	if roots.Seeds == nil {
		roots.Seeds = search.Seeds(uint64(a.seed), n)
	}
	return p, j, roots, nil
}

func clone[T any](x []T) []T {
	if x == nil {
		return nil
	}
	return append(make([]T, 0, len(x)), x...)
}

//export azs_search_run
func azs_search_run(a *C.azs_search, r *C.azs_result) C.int32_t {
	return call(&a.status, func() error {
		p, j, roots, err := decodeSearch(a)
		if err != nil {
			return err
		}
		ev, err := p.models.evaluator(j.evaluator, p.Env())
		if err != nil {
			return err
		}
		out := resultOf(r, len(roots.States), p.Env().Spec().NumActions)
		ctx, stop := watch((*int32)(unsafe.Pointer(a.cancel)))
		defer stop()
		err = search.Run(ctx, p.Store(), p.Workers(), roots, ev, j.Config, out)
		putStats(r, out)
		return err
	})
}

// watch returns a context that ends soon after the caller writes 1 to a flag, and a function that ends
// the watching; it returns when nothing looks at the flag any more.
func watch(flag *int32) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	if flag == nil {
		return ctx, cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if atomic.LoadInt32(flag) != 0 {
					cancel()
				}
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}

// resultOf returns the caller's memory.
func resultOf(r *C.azs_result, n, actions int) *search.Result {
	return &search.Result{
		Action: slice[int32](r.action, n), Weights: slice[float32](r.action_weights, n*actions),
		Visits: slice[int32](r.visits, n*actions), QValues: slice[float32](r.qvalues, n*actions),
		Value: slice[float32](r.value, n), Raw: slice[float32](r.raw_value, n),
		Proven: slice[bool](r.proven, n),
	}
}

func putStats(r *C.azs_result, out *search.Result) {
	s := &out.Stats
	r.simulations, r.evaluations = C.int64_t(s.Simulations), C.int64_t(s.Evaluations)
	r.batches, r.max_depth = C.int64_t(s.Batches), C.int64_t(s.MaxDepth)
	r.room, r.cache_hits = C.int64_t(s.Room), C.int64_t(s.CacheHits)
	r.pruned, r.proven_rows = C.int64_t(s.Pruned), C.int64_t(s.Proven)
	r.version = C.uint64_t(out.Version)
}

//export azs_search_open
func azs_search_open(a *C.azs_search) C.int32_t {
	return call(&a.status, func() error {
		p, j, roots, err := decodeSearch(a)
		if err != nil {
			return err
		}
		needs := evaluator.Needs{Obs: true}
		var ev evaluator.Evaluator
		if j.evaluator != "" {
			if ev, err = p.models.evaluator(j.evaluator, p.Env()); err != nil {
				return err
			}
			needs = ev.Needs()
		}
		s, err := search.New(p.Store(), roots, j.Config, needs)
		if err != nil {
			return err
		}
		a.search = C.uint64_t(cgo.NewHandle(&nativeSearch{Search: s, env: p.Env(), ev: ev}))
		nodes, width := s.Shape()
		a.nodes, a.width = C.int64_t(nodes), C.int64_t(width)
		return nil
	})
}

//export azs_search_drive
func azs_search_drive(a *C.azs_search) C.int32_t {
	return callOn(&a.status, a.search, "search", func(s *nativeSearch) error {
		if s.ev == nil {
			return fmt.Errorf("%w: the search was made without evaluator=NAME: call select and expand", errInvalid)
		}
		ctx, stop := watch((*int32)(unsafe.Pointer(a.cancel)))
		defer stop()
		return s.Run(ctx, s.ev)
	})
}

//export azs_search_select
func azs_search_select(a *C.azs_step) C.int32_t {
	return callOn(&a.status, a.search, "search", func(s *nativeSearch) error {
		if s.ev != nil {
			return fmt.Errorf("%w: the search has an evaluator of its own: call run", errInvalid)
		}
		batch, err := s.Select()
		if err != nil {
			return err
		}
		n, spec := batch.N, s.env.Spec()
		a.n = C.int64_t(n)
		var memory [16]envs.Array
		obs := arrays(spec.Obs, &a.rows, &a.rows.obs, n, memory[:0])
		for k := range obs {
			for i := range n {
				obs[k].CopyRow(i, &batch.Obs[k], i)
			}
		}
		copy(slice[bool](a.chance, n), batch.Chance)
		mask := array[bool](&a.rows, a.rows.mask, n*spec.NumActions)
		if batch.Legal != nil {
			copy(mask, batch.Legal)
			return nil
		}
		for i := range mask {
			mask[i] = true
		}
		return nil
	})
}

//export azs_search_expand
func azs_search_expand(a *C.azs_step) C.int32_t {
	return callOn(&a.status, a.search, "search", func(s *nativeSearch) error {
		n := int(a.n)
		return s.Expand(slice[float32](a.logits, n*s.env.Spec().NumActions), slice[float32](a.value, n))
	})
}

//export azs_search_advance
func azs_search_advance(a *C.azs_step) C.int32_t {
	return callOn(&a.status, a.search, "search", func(s *nativeSearch) error {
		return s.Advance(slice[int32](a.actions, int(a.n)))
	})
}

//export azs_search_result
func azs_search_result(a *C.azs_result) C.int32_t {
	return callOn(&a.status, a.search, "search", func(s *nativeSearch) error {
		out := resultOf(a, s.Rows(), s.env.Spec().NumActions)
		if err := s.Result(out); err != nil {
			return err
		}
		putStats(a, out)
		return s.Err()
	})
}

//export azs_search_tree
func azs_search_tree(a *C.azs_tree) C.int32_t {
	return callOn(&a.status, a.search, "search", func(s *nativeSearch) error {
		if a.row < 0 || int(a.row) >= s.Rows() {
			return fmt.Errorf("%w: row %d; want 0 to %d", errInvalid, a.row, s.Rows()-1)
		}
		x := s.Tree(int(a.row)).Export()
		n, m := len(x.NodeVisits), len(x.ChildrenIndex)
		copy(slice[int32](a.node_visits, n), x.NodeVisits)
		copy(slice[int32](a.parents, n), x.Parents)
		copy(slice[int32](a.action_from_parent, n), x.ActionFromParent)
		copy(slice[float32](a.node_values, n), x.NodeValues)
		copy(slice[float32](a.raw_values, n), x.NodeRawValues)
		copy(slice[bool](a.terminal, n), x.Terminal)
		copy(slice[bool](a.chance, n), x.Chance)
		copy(slice[int32](a.children_index, m), x.ChildrenIndex)
		copy(slice[int32](a.children_visits, m), x.ChildrenVisits)
		copy(slice[float32](a.children_rewards, m), x.ChildrenRewards)
		copy(slice[float32](a.children_discounts, m), x.ChildrenDiscounts)
		copy(slice[float32](a.children_values, m), x.ChildrenValues)
		copy(slice[float32](a.children_prior_logits, m), x.ChildrenPriorLogits)
		return nil
	})
}

//export azs_seeds
func azs_seeds(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		var in struct {
			Seed uint64 `json:"seed"`
			N    int    `json:"n"`
		}
		if err := decode(a, &in); err != nil {
			return err
		}
		return reply(a, search.Seeds(in.Seed, in.N))
	})
}

//export azs_search_close
func azs_search_close(a *C.azs_text) C.int32_t {
	return callOn(&a.status, a.handle, "search", func(s *nativeSearch) error {
		s.Close()
		cgo.Handle(a.handle).Delete()
		return nil
	})
}
