package native

import (
	"errors"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/statestore"
)

// codes are the error codes of the interface, the first that fits; azserve._errors has a class for
// each. A code is never given another meaning.
var codes = []struct {
	code int
	err  error
}{
	{3, statestore.ErrStale}, {4, statestore.ErrForeign}, {5, statestore.ErrBudget},
	{6, statestore.ErrAction}, {6, search.ErrAction}, {7, pool.ErrEnvID}, {8, pool.ErrBusy}, {9, pool.ErrNothing},
	{10, pool.ErrTimeout}, {11, pool.ErrClosed}, {11, statestore.ErrClosed}, {11, search.ErrClosed},
	{12, pool.ErrEnded}, {13, pool.ErrNotStarted}, {14, envs.ErrBadState}, {15, search.ErrEvaluator},
	{17, envs.ErrUnknownEnv}, {2, envs.ErrKeyword}, {19, search.ErrOrder}, {1, pool.ErrConfig},
	{1, pool.ErrThreads}, {1, search.ErrConfig}, {1, evaluator.ErrEnv}, {1, gorgonia.ErrModel},
	{1, gorgonia.ErrConfig}, {1, errInvalid}, {19, errHandle}, {20, envs.ErrNoFactors}, {1, envs.ErrPrefix},
}

// Codes without a sentinel.
const (
	codePanic  = 16
	codeOther  = 18
	codeClosed = 11
)

// errInvalid is an argument that can't be.
var errInvalid = errors.New("azserve: bad argument")

func codeOf(err error) int {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	var p *safe.PanicError
	var h handleError
	switch {
	case errors.As(err, &p):
		return codePanic
	case errors.As(err, &h):
		return codeClosed
	}
	return codeOther
}
