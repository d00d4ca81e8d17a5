package native

import (
	"fmt"
	"strings"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
)

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
