//go:build !cgo

package onnx

import (
	"context"
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
)

// errBuild is why nothing works here.
var errBuild = fmt.Errorf("%w: this program was built without cgo (CGO_ENABLED=0); gorgonia models work", ErrLibrary)

// Model can't be made in this build.
type Model struct{}

// Library returns the error that says so.
func Library() (string, error) { return "", errBuild }

// Open returns the error that says so.
func Open(string, *envs.Env, Options) (*Model, error) { return nil, errBuild }

// New returns the error that says so.
func New([]byte, uint64, *envs.Env, Options) (*Model, error) { return nil, errBuild }

// Replace returns the error that says so.
func (*Model) Replace([]byte, uint64) error { return errBuild }

// Version is 0.
func (*Model) Version() uint64 { return 0 }

// Pin is itself.
func (m *Model) Pin() (evaluator.Evaluator, uint64, func()) { return m, 0, func() {} }

// Needs is nothing.
func (*Model) Needs() evaluator.Needs { return evaluator.Needs{} }

// Evaluate returns the error that says so.
func (*Model) Evaluate(context.Context, *evaluator.Batch, *evaluator.Output) error { return errBuild }

// Close does nothing.
func (*Model) Close() {}
