package native

/*
#include <stdint.h>
#include "../src/azserve/azserve.h"
*/
import "C"

import (
	"context"
	"fmt"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/azserve/azserve/search"
)

// models keeps the evaluators that a pool's searches named, so that a network is read once.
type models struct {
	mu   sync.Mutex // guards made and free
	made map[string]evaluator.Evaluator
	free []func()
}

// evaluator returns the evaluator that a text names.
func (m *models) evaluator(name string, env *envs.Env) (evaluator.Evaluator, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ev, ok := m.made[name]; ok {
		return ev, nil
	}
	ev, free, err := named.Open(name, env)
	if err != nil {
		return nil, fmt.Errorf("%w: evaluator %q: %w; or a callable", errInvalid, name, err)
	}
	if m.made == nil {
		m.made = map[string]evaluator.Evaluator{}
	}
	m.made[name], m.free = ev, append(m.free, free)
	return ev, nil
}

func (m *models) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, free := range m.free {
		free()
	}
}

//export azs_evaluate
func azs_evaluate(a *C.azs_evaluation) C.int32_t {
	return callOn(&a.status, a.pool, "pool", func(p *nativePool) error {
		ev, err := p.models.evaluator(string(text(a.name, a.name_len)), p.Env())
		if err != nil {
			return err
		}
		n := int(a.n)
		out := evaluator.Output{
			Logits: slice[float32](a.logits, n*p.Env().Spec().NumActions), Value: slice[float32](a.value, n),
		}
		seeds := search.Seeds(uint64(a.seed), n)
		version, err := search.Evaluate(context.Background(), p.Store(), slice[int32](a.states, n), seeds, ev, &out)
		a.version = C.uint64_t(version)
		return err
	})
}
