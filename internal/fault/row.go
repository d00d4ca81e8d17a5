// Package fault says where an error is, for programs: messages say it for people.
package fault

import (
	"errors"
	"strconv"
)

// RowError is the row of a call that an error is about. Wrap it with %w where the message names the row, so that it can
// be found by RowOf.
type RowError int

func (r RowError) Error() string { return "row " + strconv.Itoa(int(r)) }

// RowOf returns the row that an error is about, -1 if it is about none.
func RowOf(err error) int {
	if row, ok := errors.AsType[RowError](err); ok {
		return int(row)
	}
	return -1
}
