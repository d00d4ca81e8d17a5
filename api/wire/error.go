package wire

import (
	"errors"
	"fmt"
	"strings"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/internal/fault"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Error is an error of a call, on either side of the wire.
type Error struct {
	Code       errcode.Code
	Message    string
	Path       string        // the field that it is about; empty if it is about none
	Row        int           // of that field; -1 if it is about none
	RetryAfter time.Duration // where somebody knows

	err error // what it was made of, on the side where it happened
}

func (e *Error) Error() string {
	if e.Path == "" || strings.HasPrefix(e.Message, e.Path) {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Unwrap returns the error that it was made of; on the other side of the wire what stands for its kind, so that
// errors.Is(err, statestore.ErrStale) is the same for a local and a remote state.
func (e *Error) Unwrap() error {
	if e.err != nil {
		return e.err
	}
	return errcode.Kinds(e.Code)
}

// Retryable says that the same call may succeed later.
func (e *Error) Retryable() bool {
	return e.Code == errcode.Overloaded || e.Code == errcode.Unavailable
}

// New returns an error of a kind about no field.
func New(code errcode.Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Row: -1}
}

// Bad returns an error about a field that can't be.
func Bad(path, format string, args ...any) *Error {
	e := New(errcode.InvalidArgument, format, args...)
	e.Path = path
	e.Message = path + " " + e.Message
	return e
}

// At says which field an error is about, unless it says so itself. A nil error stays nil.
func At(path string, err error) error {
	if err == nil {
		return nil
	}
	e := *From(err)
	if e.Path == "" {
		e.Path = path
	}
	return &e
}

// From returns any error as an Error: what it says of itself, with the row and the kind that are found in it.
func From(err error) *Error {
	if err == nil {
		return &Error{Row: -1}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if s, is := status.FromError(err); is { // of gRPC itself
		return ofStatus(s)
	}
	return &Error{Code: errcode.Of(err), Message: err.Error(), Row: fault.RowOf(err), err: err}
}

// grpcCodes are gRPC's codes for ours.
var grpcCodes = map[errcode.Code]codes.Code{
	errcode.InvalidArgument: codes.InvalidArgument, errcode.Keyword: codes.InvalidArgument,
	errcode.StaleState: codes.NotFound, errcode.ForeignState: codes.NotFound, errcode.Budget: codes.ResourceExhausted,
	errcode.Action: codes.InvalidArgument, errcode.EnvID: codes.InvalidArgument,
	errcode.EnvBusy: codes.FailedPrecondition, errcode.NothingInFlight: codes.FailedPrecondition,
	errcode.RecvTimeout: codes.DeadlineExceeded, errcode.Closed: codes.NotFound,
	errcode.EpisodeEnded: codes.FailedPrecondition, errcode.NotStarted: codes.FailedPrecondition,
	errcode.BadState: codes.InvalidArgument, errcode.Evaluator: codes.Internal, errcode.Panic: codes.Internal,
	errcode.UnknownEnv: codes.NotFound, errcode.Other: codes.Unknown, errcode.CallOrder: codes.FailedPrecondition,
	errcode.Unsupported: codes.Unimplemented, errcode.Unauthenticated: codes.Unauthenticated,
	errcode.Permission: codes.PermissionDenied, errcode.Overloaded: codes.ResourceExhausted,
	errcode.Unavailable: codes.Unavailable, errcode.UnknownModel: codes.NotFound,
	errcode.Deadline: codes.DeadlineExceeded, errcode.Cancelled: codes.Canceled,
	errcode.TooLarge: codes.ResourceExhausted,
}

// Message returns an error as a message.
func Message(err error) *pb.Error {
	e := From(err)
	return &pb.Error{
		Code: pb.ErrorCode(e.Code), Message: clip(e.Error(), longestText), Path: clip(e.Path, longestPath),
		Row: int32(e.Row), Retryable: e.Retryable(),
		RetryAfterMs: e.RetryAfter.Milliseconds(),
	}
}

// Texts travel twice in a status, in headers for which clients have little room (8 KiB in Python), and they repeat
// what was sent.
const (
	longestText = 1000
	longestPath = 200
)

// clip shortens a text to so many bytes, and to whole characters that are valid.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// FromMessage is the other way round.
func FromMessage(m *pb.Error) *Error {
	return &Error{
		Code: errcode.Code(m.Code), Message: m.Message, Path: m.Path, Row: int(m.Row),
		RetryAfter: time.Duration(m.RetryAfterMs) * time.Millisecond,
	}
}

// Status returns an error as gRPC sends it: with azserve.v1.Error among its details, and google.rpc.RetryInfo where
// it is known when to try again. A nil error stays nil.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is { // of gRPC itself
		return err
	}
	e := From(err)
	s := status.New(grpcCodes[e.Code], clip(e.Error(), longestText))
	if t, err := s.WithDetails(Message(e)); err == nil {
		s = t
	}
	if e.RetryAfter > 0 {
		if t, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}); err == nil {
			s = t
		}
	}
	return s.Err()
}

// ofGRPC are our codes for those that gRPC gives by itself.
var ofGRPC = map[codes.Code]errcode.Code{
	codes.Canceled: errcode.Cancelled, codes.DeadlineExceeded: errcode.Deadline, codes.Unavailable: errcode.Unavailable,
	codes.Unauthenticated: errcode.Unauthenticated, codes.PermissionDenied: errcode.Permission,
	codes.ResourceExhausted: errcode.TooLarge, codes.Unimplemented: errcode.Unsupported,
	codes.InvalidArgument: errcode.InvalidArgument,
}

// FromStatus returns what a call failed with. A nil error stays nil.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	return ofStatus(s)
}

func ofStatus(s *status.Status) *Error {
	for _, d := range s.Details() {
		if m, ok := d.(*pb.Error); ok {
			return FromMessage(m)
		}
	}
	code, ok := ofGRPC[s.Code()]
	if !ok {
		code = errcode.Other
	}
	e := New(code, "%s", s.Message())
	if code == errcode.TooLarge {
		e.Message += "; raise the limit on messages on both sides (--max-message; max_message)"
	}
	return e
}
