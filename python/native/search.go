package main

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/cgo"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
)

// nativeSearch is an open search with the states it waits for.
type nativeSearch struct {
	*search.Search
	env   *envs.Env
	batch *evaluator.Batch
}

// searchJSON is a search's settings; what is missing keeps the policy's default.
type searchJSON struct {
	Policy            string   `json:"policy"`
	Evaluator         string   `json:"evaluator"`
	NumSimulations    *int     `json:"num_simulations"`
	MaxDepth          *int     `json:"max_depth"`
	LeavesPerStep     *int     `json:"leaves_per_step"`
	PbCInit           *float32 `json:"pb_c_init"`
	PbCBase           *float32 `json:"pb_c_base"`
	QTransform        *string  `json:"qtransform"`
	Epsilon           *float32 `json:"epsilon"`
	MinValue          *float32 `json:"min_value"`
	MaxValue          *float32 `json:"max_value"`
	ValueScale        *float32 `json:"value_scale"`
	MaxvisitInit      *float32 `json:"maxvisit_init"`
	RescaleValues     *bool    `json:"rescale_values"`
	UseMixedValue     *bool    `json:"use_mixed_value"`
	FPUReduction      *float32 `json:"fpu_reduction"`
	MaxNumConsidered  *int     `json:"max_num_considered_actions"`
	DirichletFraction *float32 `json:"dirichlet_fraction"`
	DirichletAlpha    *float32 `json:"dirichlet_alpha"`
	Temperature       *float32 `json:"temperature"`
	GumbelScale       *float32 `json:"gumbel_scale"`
	Discount          *float32 `json:"discount"`
	KeepTree          *bool    `json:"keep_tree"`
	Solve             *bool    `json:"solve"`
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// config returns the settings for an environment.
func (j *searchJSON) config(spec *envs.Spec) search.Config {
	c := search.Default(tree.Policy(j.Policy), spec)
	set(&c.NumSimulations, j.NumSimulations)
	set(&c.MaxDepth, j.MaxDepth)
	set(&c.LeavesPerStep, j.LeavesPerStep)
	set(&c.PbCInit, j.PbCInit)
	set(&c.PbCBase, j.PbCBase)
	set((*string)(&c.QTransform), j.QTransform)
	set(&c.Epsilon, j.Epsilon)
	set(&c.MinValue, j.MinValue)
	set(&c.MaxValue, j.MaxValue)
	set(&c.ValueScale, j.ValueScale)
	set(&c.MaxvisitInit, j.MaxvisitInit)
	set(&c.RescaleValues, j.RescaleValues)
	set(&c.UseMixedValue, j.UseMixedValue)
	set(&c.FPUReduction, j.FPUReduction)
	set(&c.MaxNumConsidered, j.MaxNumConsidered)
	set(&c.DirichletFraction, j.DirichletFraction)
	set(&c.DirichletAlpha, j.DirichletAlpha)
	set(&c.Temperature, j.Temperature)
	set(&c.GumbelScale, j.GumbelScale)
	set(&c.Discount, j.Discount)
	set(&c.KeepLogits, j.KeepTree)
	set(&c.Solve, j.Solve)
	return c
}

// decodeSearch reads what run and open have in common.
func decodeSearch(a *C.azs_search) (p *nativePool, j searchJSON, roots *search.Roots, err error) {
	if p, err = handleOf[*nativePool](a.pool, "pool"); err != nil {
		return nil, j, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text(a.config, a.config_len)))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return nil, j, nil, fmt.Errorf("%w: %w", errInvalid, err)
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
		ev, err := p.models.evaluator(j.Evaluator, p.Env())
		if err != nil {
			return err
		}
		out := resultOf(r, len(roots.States), p.Env().Spec().NumActions)
		cfg := j.config(p.Env().Spec())
		ctx, stop := watch((*int32)(unsafe.Pointer(a.cancel)))
		defer stop()
		err = search.Run(ctx, p.Store(), p.Workers(), roots, ev, cfg, out)
		putStats(r, &out.Stats)
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

func putStats(r *C.azs_result, s *search.Stats) {
	r.simulations, r.evaluations = C.int64_t(s.Simulations), C.int64_t(s.Evaluations)
	r.batches, r.max_depth = C.int64_t(s.Batches), C.int64_t(s.MaxDepth)
}

//export azs_search_open
func azs_search_open(a *C.azs_search) C.int32_t {
	return call(&a.status, func() error {
		p, j, roots, err := decodeSearch(a)
		if err != nil {
			return err
		}
		s, err := search.New(p.Store(), roots, j.config(p.Env().Spec()), evaluator.Needs{Obs: true})
		if err != nil {
			return err
		}
		a.search = C.uint64_t(cgo.NewHandle(&nativeSearch{Search: s, env: p.Env()}))
		return nil
	})
}

//export azs_search_select
func azs_search_select(a *C.azs_step) C.int32_t {
	return call(&a.status, func() error {
		s, err := handleOf[*nativeSearch](a.search, "search")
		if err != nil {
			return err
		}
		if s.batch, err = s.Select(); err != nil {
			return err
		}
		a.n = C.int64_t(s.batch.N)
		n, spec := s.batch.N, s.env.Spec()
		var memory [16]envs.Array
		obs := observations(spec, &a.rows, n, memory[:0])
		for k := range obs {
			for i := range n {
				obs[k].CopyRow(i, &s.batch.Obs[k], i)
			}
		}
		mask := array[bool](a.rows.mask, n*spec.NumActions)
		if s.batch.Legal != nil {
			copy(mask, s.batch.Legal)
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
	return call(&a.status, func() error {
		s, err := handleOf[*nativeSearch](a.search, "search")
		if err != nil {
			return err
		}
		n := int(a.n)
		return s.Expand(slice[float32](a.logits, n*s.env.Spec().NumActions), slice[float32](a.value, n))
	})
}

//export azs_search_advance
func azs_search_advance(a *C.azs_step) C.int32_t {
	return call(&a.status, func() error {
		s, err := handleOf[*nativeSearch](a.search, "search")
		if err != nil {
			return err
		}
		return s.Advance(slice[int32](a.actions, int(a.n)))
	})
}

//export azs_search_result
func azs_search_result(a *C.azs_result) C.int32_t {
	return call(&a.status, func() error {
		s, err := handleOf[*nativeSearch](a.search, "search")
		if err != nil {
			return err
		}
		out := resultOf(a, s.Rows(), s.env.Spec().NumActions)
		if err := s.Result(out); err != nil {
			return err
		}
		putStats(a, &out.Stats)
		return s.Err()
	})
}

//export azs_search_tree
func azs_search_tree(a *C.azs_tree) C.int32_t {
	return call(&a.status, func() error {
		s, err := handleOf[*nativeSearch](a.search, "search")
		if err != nil {
			return err
		}
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
		copy(slice[int32](a.children_index, m), x.ChildrenIndex)
		copy(slice[int32](a.children_visits, m), x.ChildrenVisits)
		copy(slice[float32](a.children_rewards, m), x.ChildrenRewards)
		copy(slice[float32](a.children_discounts, m), x.ChildrenDiscounts)
		copy(slice[float32](a.children_values, m), x.ChildrenValues)
		copy(slice[float32](a.children_prior_logits, m), x.ChildrenPriorLogits)
		return nil
	})
}

//export azs_search_close
func azs_search_close(a *C.azs_text) C.int32_t {
	return call(&a.status, func() error {
		s, err := handleOf[*nativeSearch](a.handle, "search")
		if err != nil {
			return err
		}
		s.Close()
		cgo.Handle(a.handle).Delete()
		return nil
	})
}

// models keeps the evaluators that a pool's searches named, so that a network is read once.
type models struct {
	mu   sync.Mutex // guards nets and made
	made map[string]evaluator.Evaluator
	nets []*gorgonia.Net
}

// evaluator returns the evaluator that a text names.
func (m *models) evaluator(name string, env *envs.Env) (evaluator.Evaluator, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ev, ok := m.made[name]; ok {
		return ev, nil
	}
	ev, err := m.build(name, env)
	if err != nil {
		return nil, err
	}
	if m.made == nil {
		m.made = map[string]evaluator.Evaluator{}
	}
	m.made[name] = ev
	return ev, nil
}

func (m *models) build(name string, env *envs.Env) (evaluator.Evaluator, error) {
	switch name {
	case "uniform":
		return evaluator.Uniform{}, nil
	case "rollout":
		return evaluator.NewRollout(1, 10_000)
	case "table":
		return evaluator.NewTable(env)
	}
	path, ok := strings.CutPrefix(name, "gorgonia:")
	if !ok {
		return nil, fmt.Errorf("%w: evaluator %q; want a callable, \"uniform\", \"rollout\", \"table\" or "+
			"\"gorgonia:PATH\"", errInvalid, name)
	}
	net, err := gorgonia.Load(path)
	if err != nil {
		return nil, err
	}
	m.nets = append(m.nets, net)
	return net.Evaluator(env)
}

func (m *models) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nets {
		n.Close()
	}
}
