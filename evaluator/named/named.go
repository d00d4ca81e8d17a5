// Package named makes evaluators from texts, as users type them:
//
//	uniform                equal logits, value 0
//	rollout                a random playout a state
//	table                  the tables of a Table-v0
//	gorgonia:PATH          a network in a folder (see azserve train)
//	onnx:PATH              an ONNX file
//	PATH                   either of these: a folder, or a file whose name ends in .onnx
//
// A model may have settings behind its path, as in a URL:
//
//	?symmetry=random       random or average: use the symmetries of the board
//	?threads=2             onnx: threads of one evaluation
package named

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/onnx"
)

// ErrName is the kind of every error about an evaluator's name.
var ErrName = errors.New("evaluator: bad name")

// Known lists the forms of a name, for messages and help.
const Known = `uniform, rollout, table, gorgonia:FOLDER, onnx:FILE, FOLDER or FILE.onnx`

// Open makes the evaluator that a text names, for an environment. close frees it.
func Open(text string, env *envs.Env) (ev evaluator.Evaluator, close func(), err error) {
	nothing := func() {}
	switch text {
	case "uniform":
		return evaluator.Uniform{}, nothing, nil
	case "rollout":
		ev, err := evaluator.NewRollout(1, 10_000)
		return ev, nothing, err
	case "table":
		ev, err := evaluator.NewTable(env)
		if err != nil {
			return nil, nil, err
		}
		return ev, nothing, nil
	}
	m, err := parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %q: %w", ErrName, text, err)
	}
	if ev, close, err = m.open(env); err != nil {
		return nil, nil, err
	}
	ev = evaluator.NewChecked(text, ev, env.Spec())
	if m.symmetry != "" {
		if ev, err = evaluator.NewSymmetry(ev, env, m.symmetry); err != nil {
			close()
			return nil, nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	return ev, close, nil
}

// model is the parts of a name.
type model struct {
	kind, path string
	symmetry   evaluator.SymmetryMode
	threads    int
}

func parse(text string) (*model, error) {
	path, settings, _ := strings.Cut(text, "?")
	m := &model{path: path}
	kind, rest, ok := strings.Cut(path, ":")
	switch {
	case ok && (kind == "gorgonia" || kind == "onnx"):
		m.kind, m.path = kind, rest
	case strings.HasSuffix(path, ".onnx"):
		m.kind = "onnx"
	default:
		m.kind = "gorgonia"
	}
	if m.path == "" {
		return nil, fmt.Errorf("no path; want %s", Known)
	}
	values, err := url.ParseQuery(settings)
	if err != nil {
		return nil, err
	}
	for name := range values {
		value := values.Get(name)
		switch {
		case name == "symmetry":
			m.symmetry = evaluator.SymmetryMode(value)
		case name == "threads" && m.kind == "onnx":
			if m.threads, err = strconv.Atoi(value); err != nil || m.threads < 1 {
				return nil, fmt.Errorf("threads=%s; want a whole number from 1 on", value)
			}
		default:
			return nil, fmt.Errorf("setting %q; want symmetry, or threads of an onnx model", name)
		}
	}
	return m, nil
}

func (m *model) open(env *envs.Env) (evaluator.Evaluator, func(), error) {
	if m.kind == "onnx" {
		o, err := onnx.Open(m.path, env, onnx.Options{Threads: m.threads})
		if err != nil {
			return nil, nil, err
		}
		return o, o.Close, nil
	}
	net, err := gorgonia.Load(m.path)
	if err != nil {
		return nil, nil, fmt.Errorf("model %s: %w (known: %s)", m.path, err, Known)
	}
	ev, err := net.Evaluator(env)
	if err != nil {
		net.Close()
		return nil, nil, err
	}
	return ev, net.Close, nil
}
