// Package fault says where an error is, for programs: messages say it for people.
package fault

import (
	"errors"
	"strconv"
)

// Row is the row of a call that an error is about. Wrap it with %w where the message names the row, so that it can
// be found by RowOf.
type Row int

func (r Row) Error() string { return "row " + strconv.Itoa(int(r)) }

// RowOf returns the row that an error is about, -1 if it is about none.
func RowOf(err error) int {
	if row, ok := errors.AsType[Row](err); ok {
		return int(row)
	}
	return -1
}
