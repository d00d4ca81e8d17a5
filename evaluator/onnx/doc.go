// Package onnx evaluates with models in ONNX files, by ONNX Runtime, whose library is found when the program
// runs (see [Library]): AZSERVE_ONNXRUNTIME, beside the program, in a Python package, or the system's.
//
// What a model must have, checked when it is opened:
//
//   - inputs that are observation arrays of the environment, by the arrays' names, or by any name if there is just
//     one array; what a model doesn't read it need not have. [batch, shape...] or [batch, all elements], of type
//     float32 or of the array's own;
//   - if it likes, an input action_mask [batch, A] of type bool or float32;
//   - the outputs prior_logits [batch, A] and value [batch] or [batch, 1], both float32, in any order; two
//     outputs of other names are told apart by their shapes. The value is from the view of the player to move.
//
// The batch must be dynamic. A file that changes is read again within a second: searches that begin later have
// the new weights, those that go on keep the old ones.
package onnx

import (
	"errors"
	"time"
)

// Errors of this package.
var (
	ErrLibrary = errors.New("onnx: no ONNX Runtime") // says how to get it
	ErrModel   = errors.New("onnx: bad model")       // names the model, and what it should be
	ErrClosed  = errors.New("onnx: closed")
)

// Install is the command that brings ONNX Runtime.
const Install = "pip install onnxruntime (in the .venv beside the program)"

// Variable names the library's file.
const Variable = "AZSERVE_ONNXRUNTIME"

// Options are settings of a model; the zero value is the default.
type Options struct {
	// Threads of one evaluation; 0 means 1. Several evaluations may go on at the same time anyway.
	Threads int
	// Reload is how often the file is looked at; 0 means every second, negative never.
	Reload time.Duration
	// OnReload is told what came of reading a changed file: its version, or an error, after which the old
	// weights stay. It may be nil.
	OnReload func(version uint64, err error)
}
