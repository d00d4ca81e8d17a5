//go:build cgo

package onnx

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// Model is an ONNX model as an evaluator. Its weights change when its file does, or with Replace; a search
// keeps those that it began with (evaluator.Pinner). Safe for concurrent use.
type Model struct {
	env  *envs.Env
	opts Options

	mu      sync.Mutex // guards current, its refs, and closed
	current *session
	closed  bool

	file watch
}

// watch is what is known of the file.
type watch struct {
	path string     // "": there is none
	mu   sync.Mutex // guards the rest; taken before Model.mu
	last time.Time  // when it was looked at
	info os.FileInfo
}

// Open reads a model from a file, and checks that it fits the environment.
func Open(path string, env *envs.Env, o Options) (*Model, error) {
	m := &Model{env: env, opts: o, file: watch{path: path, last: time.Now()}}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	m.file.info = info
	if m.current, err = m.read(); err != nil {
		return nil, err
	}
	return m, nil
}

// New makes a model of the bytes of a file.
func New(data []byte, version uint64, env *envs.Env, o Options) (*Model, error) {
	m := &Model{env: env, opts: o}
	var err error
	if m.current, err = open("model", data, version, env, &m.opts); err != nil {
		return nil, err
	}
	return m, nil
}

// fileVersion is the first 8 bytes of the file's SHA-256: the same wherever the same file is read.
func fileVersion(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrModel, err)
	}
	hash := sha256.Sum256(data)
	return binary.BigEndian.Uint64(hash[:]), nil
}

// Replace changes the weights for all that begins from now on.
func (m *Model) Replace(data []byte, version uint64) error {
	s, err := open("model", data, version, m.env, &m.opts)
	if err != nil {
		return err
	}
	return m.swap(s)
}

// swap makes a session the current one. The old one ends with its last user.
func (m *Model) swap(s *session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = s.session.Destroy()
		return ErrClosed
	}
	m.drop(m.current)
	m.current = s
	return nil
}

// drop gives one use of a session back. Call with mu held.
func (m *Model) drop(s *session) {
	if s.refs--; s.refs == 0 {
		_ = s.session.Destroy()
	}
}

// look reads the file again if it has changed. One caller does it while others go on with what there is.
func (m *Model) look() {
	w, interval := &m.file, m.opts.Reload
	if interval == 0 {
		interval = time.Second
	}
	if w.path == "" || interval < 0 || !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if time.Since(w.last) < interval {
		return
	}
	w.last = time.Now()
	info, err := os.Stat(w.path)
	if err != nil { // it may be about to be replaced
		return
	}
	if info.Size() == w.info.Size() && info.ModTime().Equal(w.info.ModTime()) && os.SameFile(info, w.info) {
		return
	}
	w.info = info
	version := uint64(0)
	s, err := m.read()
	if err == nil {
		version, err = s.version, m.swap(s)
	}
	if m.opts.OnReload != nil {
		m.opts.OnReload(version, err)
	}
}

// read opens the file. Weights beside it are found by its path, so it can't be opened from its bytes; if it is
// replaced meanwhile, it is opened again, so that the version is that of the weights.
func (m *Model) read() (*session, error) {
	for tries := 3; ; tries-- {
		version, err := fileVersion(m.file.path)
		if err != nil {
			return nil, err
		}
		s, err := open(m.file.path, nil, version, m.env, &m.opts)
		if err != nil {
			return nil, err
		}
		after, err := fileVersion(m.file.path)
		if err == nil && after == version {
			return s, nil
		}
		_ = s.session.Destroy()
		if tries == 1 {
			return nil, fmt.Errorf("%w: %s: it changes all the time", ErrModel, m.file.path)
		}
	}
}

// Version returns the version of the weights: of a file, the first 8 bytes of its SHA-256.
func (m *Model) Version() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.version
}

// Pin keeps the weights as they are.
func (m *Model) Pin() (evaluator.Evaluator, uint64, func()) {
	m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return closed{}, 0, func() {}
	}
	s := m.current
	s.refs++
	return s, s.version, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.drop(s)
	}
}

// Needs is the observations.
func (*Model) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

// Evaluate runs the model with the newest weights.
func (m *Model) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	ev, _, release := m.Pin()
	defer release()
	return ev.Evaluate(ctx, in, out)
}

// Close frees the weights as soon as nobody uses them. A second call does nothing.
func (m *Model) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.drop(m.current)
	}
}

// closed is what a closed model evaluates with.
type closed struct{}

func (closed) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

func (closed) Evaluate(context.Context, *evaluator.Batch, *evaluator.Output) error { return ErrClosed }
