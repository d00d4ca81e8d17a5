package native

import (
	"fmt"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/named"
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
		return nil, fmt.Errorf("%w: evaluator: %w; or a callable", errInvalid, err)
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
