package native

import (
	"errors"

	"github.com/azserve/azserve/errcode"
)

// errInvalid is an argument that can't be.
var errInvalid = errors.New("azserve: bad argument")

// codeOf returns the error code of the interface; azserve._errors has a class for each.
func codeOf(err error) errcode.Code {
	var h handleError
	switch {
	case errors.Is(err, errHandle):
		return errcode.CallOrder
	case errors.As(err, &h):
		return errcode.Closed
	}
	if code := errcode.Of(err); code != errcode.Other {
		return code
	}
	if errors.Is(err, errInvalid) {
		return errcode.InvalidArgument
	}
	return errcode.Other
}
