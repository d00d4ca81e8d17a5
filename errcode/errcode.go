// Package errcode numbers the kinds of errors for callers in other languages and on other machines: the C interface
// (python/native), the gRPC interface (azserve.v1.ErrorCode) and Python's exception classes have the same numbers. A
// number is never given another meaning.
package errcode

import (
	"context"
	"errors"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/azserve/azserve/evaluator/onnx"
	"github.com/azserve/azserve/evaluator/remote"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/statestore"
)

// Code is a kind of error.
type Code int32

// The kinds. azserve/v1/error.proto says what they mean.
const (
	None Code = iota
	InvalidArgument
	Keyword
	StaleState
	ForeignState
	Budget
	Action
	EnvID
	EnvBusy
	NothingInFlight
	RecvTimeout
	Closed
	EpisodeEnded
	NotStarted
	BadState
	Evaluator
	Panic
	UnknownEnv
	Other
	CallOrder
	Unsupported
	Unauthenticated
	Permission
	Overloaded
	Unavailable
	UnknownModel
	Deadline
	Cancelled
	TooLarge
)

// kinds are the codes of errors, the first that fits.
var kinds = []struct {
	code Code
	err  error
}{
	{StaleState, statestore.ErrStale}, {ForeignState, statestore.ErrForeign}, {Budget, statestore.ErrBudget},
	{Action, statestore.ErrAction}, {Action, search.ErrAction}, {EnvID, pool.ErrEnvID}, {EnvBusy, pool.ErrBusy},
	{NothingInFlight, pool.ErrNothing}, {RecvTimeout, pool.ErrTimeout}, {Closed, pool.ErrClosed},
	{Closed, statestore.ErrClosed}, {Closed, search.ErrClosed}, {EpisodeEnded, pool.ErrEnded},
	{NotStarted, pool.ErrNotStarted}, {BadState, envs.ErrBadState},
	{Overloaded, evaluator.ErrBusy}, {Unavailable, remote.ErrUnavailable}, {Unavailable, evaluator.ErrClosed},
	{Evaluator, search.ErrEvaluator}, {Evaluator, remote.ErrFailed},
	{InvalidArgument, remote.ErrHello},
	{UnknownEnv, envs.ErrUnknownEnv}, {Keyword, envs.ErrKeyword}, {CallOrder, search.ErrOrder},
	{InvalidArgument, pool.ErrConfig}, {InvalidArgument, pool.ErrThreads}, {InvalidArgument, search.ErrConfig},
	{InvalidArgument, evaluator.ErrEnv}, {InvalidArgument, evaluator.ErrSymmetry}, {InvalidArgument, named.ErrName},
	{InvalidArgument, gorgonia.ErrModel}, {InvalidArgument, gorgonia.ErrConfig}, {InvalidArgument, onnx.ErrModel},
	{Unsupported, envs.ErrNoFactors}, {InvalidArgument, envs.ErrPrefix},
	{Deadline, context.DeadlineExceeded}, {Cancelled, context.Canceled},
}

// Of returns the kind of an error.
func Of(err error) Code {
	if err == nil {
		return None
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.code
		}
	}
	if _, ok := errors.AsType[*safe.PanicError](err); ok {
		return Panic
	}
	return Other
}

// Kinds returns an error that stands for a code: all that Of knows it by; nil where there are none.
func Kinds(code Code) error {
	var all []error
	for _, k := range kinds {
		if k.code == code {
			all = append(all, k.err)
		}
	}
	return errors.Join(all...)
}
