package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
#include "xla.h"
*/
import "C"

import (
	"context"
	"fmt"
	"runtime/cgo"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
)

// jitSearch is a search that a compiled program drives.
type jitSearch struct {
	*nativeSearch
	batch *evaluator.Batch // what the last call asked about
	turns uint32           // calls so far
	most  int              // rows of a batch
}

// request reads the arguments of a search: states [n], seed [1].
func (p *nativePool) request(f *frame) (settings, *search.Roots, error) {
	j, err := decodeSettings(text(f.a.config, f.a.config_len), p.Env().Spec())
	if err != nil {
		return j, nil, err
	}
	n := f.count(0)
	return j, &search.Roots{States: clone(in[int32](f, 0)), Seeds: search.Seeds(f.seeds(1)[0], n)}, nil
}

// xlaSearch: states [n], seed [1] -> as xlaResult: the whole search, with the evaluator that the settings name.
func xlaSearch(p *nativePool, f *frame) error {
	j, roots, err := p.request(f)
	if err != nil {
		return err
	}
	ev, err := p.models.evaluator(j.evaluator, p.Env())
	if err != nil {
		return err
	}
	res := f.result(len(roots.States), p.Env().Spec().NumActions)
	return search.Run(context.Background(), p.Store(), p.Workers(), roots, ev, j.Config, res)
}

// result takes the results: action, action_weights, visits, qvalues, value, raw_value.
func (f *frame) result(n, actions int) *search.Result {
	return &search.Result{
		Action: out[int32](f, n), Weights: out[float32](f, n*actions), Visits: out[int32](f, n*actions),
		QValues: out[float32](f, n*actions), Value: out[float32](f, n), Raw: out[float32](f, n),
	}
}

// xlaOpen: states [n], seed [1] -> as xlaNext.
func xlaOpen(p *nativePool, f *frame) error {
	j, roots, err := p.request(f)
	if err != nil {
		return err
	}
	s, err := search.New(p.Store(), roots, j.Config, evaluator.Needs{Obs: true})
	if err != nil {
		return err
	}
	leaves := max(j.LeavesPerStep, 1)
	js := &jitSearch{nativeSearch: &nativeSearch{Search: s, env: p.Env()}, most: len(roots.States) * leaves}
	h := uint64(cgo.NewHandle(js))
	return js.leaves(f, [4]uint32{uint32(h >> 32), uint32(h), 0, 0})
}

// jitSearchOf returns the search of the handle in argument 0, which must be the last one.
func jitSearchOf(f *frame) (*jitSearch, [4]uint32, error) {
	h := [4]uint32(in[uint32](f, 0))
	s, err := handleOf[*jitSearch](C.uint64_t(uint64(h[0])<<32|uint64(h[1])), "search")
	if err == nil && h[2] != s.turns {
		err = fmt.Errorf("%w: call %d of %d", errHandle, h[2], s.turns)
	}
	return s, h, err
}

// xlaNext: handle, logits [most, A], value [most] -> handle, observation [most, ...], mask [most, A], the number
// of rows that count; 0 when the search is done.
func xlaNext(p *nativePool, f *frame) error {
	s, h, err := jitSearchOf(f)
	if err != nil {
		return err
	}
	n, a := s.batch.N, p.Env().Spec().NumActions
	if err := s.Expand(in[float32](f, 1)[:n*a], in[float32](f, 2)[:n]); err != nil {
		return err
	}
	return s.leaves(f, h)
}

// leaves selects, and writes the states to evaluate.
func (s *jitSearch) leaves(f *frame, h [4]uint32) (err error) {
	s.turns++
	h[2] = s.turns
	copy(out[uint32](f, 4), h[:])
	if s.batch, err = s.Select(); err != nil {
		return err
	}
	spec := s.env.Spec()
	obs, mask := f.arrays(spec.Obs, s.most), out[bool](f, s.most*spec.NumActions)
	n := s.batch.N
	for k := range obs {
		for i := range s.most {
			obs[k].CopyRow(i, &s.batch.Obs[k], min(i, max(n-1, 0)))
		}
	}
	for i := range mask {
		mask[i] = true
	}
	copy(mask, s.batch.Legal)
	out[int32](f, 1)[0] = int32(n)
	return nil
}

// xlaResult: handle -> action, action_weights, visits, qvalues, value, raw_value. It ends the search.
func xlaResult(p *nativePool, f *frame) error {
	s, h, err := jitSearchOf(f)
	if err != nil {
		return err
	}
	defer func() {
		s.Close()
		cgo.Handle(uint64(h[0])<<32 | uint64(h[1])).Delete()
	}()
	if err := s.Result(f.result(s.Rows(), p.Env().Spec().NumActions)); err != nil {
		return err
	}
	return s.Err()
}
