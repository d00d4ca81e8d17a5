package server

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator/remote"
	"github.com/azserve/azserve/internal/safe"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// workMethods are the calls that wait for their turn.
var workMethods = map[string]bool{"/azserve.v1.Search/Run": true, "/azserve.v1.Models/Evaluate": true}

// needed are the roles that methods need; others need roleClient.
var needed = map[string]role{
	"/azserve.v1.Models/Attach": roleEvaluator, "/azserve.v1.Models/LoadModel": roleAdmin,
	"/azserve.v1.Models/Activate": roleAdmin, "/azserve.v1.Admin/Drain": roleAdmin, "/azserve.v1.Admin/Stats": roleAll,
}

// tap looks at every call before anything of it is read: who it is, whether he may, and whether there is room. What
// is refused here costs almost nothing, which is what keeps a server going that gets eight times what it can do.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	method := info.FullMethodName
	if strings.HasPrefix(method, "/grpc.health.v1.") {
		return ctx, nil
	}
	id, err := s.identify(ctx, info.Header)
	if err == nil {
		err = s.may(id, method)
	}
	if err != nil {
		s.metrics.refuse(method, err)
		return nil, wire.Status(err)
	}
	return context.WithValue(ctx, identityKey{}, id), nil
}

func (s *Server) identify(ctx context.Context, header metadata.MD) (*identity, error) {
	if s.cfg.Tokens == nil {
		return peerIdentity(ctx), nil
	}
	var token string
	if values := header.Get("authorization"); len(values) == 1 {
		token = strings.TrimPrefix(values[0], "Bearer ")
	}
	id, problem := s.cfg.Tokens.find(token)
	if problem != nil {
		s.cfg.Log.Error("the tokens can't be read again; the old ones hold", "error", problem)
	}
	if id == nil {
		return nil, wire.New(errcode.Unauthenticated, "no valid token; give one (connect(..., token=...))")
	}
	return id, nil
}

func (s *Server) may(id *identity, method string) error {
	want := needed[method]
	switch {
	case want == roleAll && id.roles != 0: // anybody with a token
	case want == 0 && id.roles&roleClient == 0, want != 0 && id.roles&want != want:
		return wire.New(errcode.Permission, "%s may not call %s", id.name, method)
	}
	if s.draining.Load() && !strings.HasPrefix(method, "/azserve.v1.Admin/") {
		return errDraining()
	}
	if id.limit != nil && !id.limit.Allow() {
		e := wire.New(errcode.Overloaded, "%s has used up its %g calls a second; try again later", id.name,
			float64(id.limit.Limit()))
		e.RetryAfter = time.Duration(float64(time.Second) / float64(id.limit.Limit()))
		return e
	}
	if workMethods[method] {
		return s.admission.full(id.name)
	}
	return nil
}

// unary is around every call with one answer.
func (s *Server) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	s.work.Add(1)
	defer s.work.Add(-1)
	end := s.begin(ctx, info.FullMethod)
	var answer any
	err := safe.Call(func() (err error) {
		if workMethods[info.FullMethod] {
			done, err := s.admit(ctx)
			if err != nil {
				return err
			}
			defer done()
		}
		answer, err = handle(ctx, req)
		return err
	})
	if err == nil {
		err = ctx.Err() // nobody reads an answer after the deadline
	}
	if errors.Is(err, remote.ErrUnavailable) { // it was waited for already, so clients need not try again at once
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "-1"))
	}
	return answer, end(err)
}

// admit waits for the caller's turn.
func (s *Server) admit(ctx context.Context) (done func(), err error) {
	ctx, span := s.tracer.Start(ctx, "azserve.queue")
	defer span.End()
	began := time.Now()
	done, err = s.admission.enter(ctx, identityOf(ctx).name)
	s.metrics.queue.Observe(time.Since(began).Seconds())
	return done, err
}

// stream is around every call that is a stream. Those that do work count each request of theirs.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	end := s.begin(ss.Context(), info.FullMethod)
	return end(safe.Call(func() error { return handle(srv, ss) }))
}

// begin notes a call; end notes how it ended, and returns what goes over the wire.
func (s *Server) begin(ctx context.Context, method string) (end func(error) error) {
	began := time.Now()
	return func(err error) error {
		took := time.Since(began)
		out := wire.Status(err)
		s.metrics.finish(method, err, took)
		level := slog.LevelDebug
		attrs := []any{"method", method, "client", identityOf(ctx).name, "seconds", took.Seconds()}
		if err != nil {
			if !expected(err) {
				level = slog.LevelWarn
			}
			attrs = append(attrs, "code", status.Code(out).String(), "error", err.Error())
			if p := panicOf(err); p != "" {
				level = slog.LevelError
				attrs = append(attrs, "stack", p)
			}
		}
		s.cfg.Log.Log(ctx, level, "call", attrs...)
		return out
	}
}

// expected says that an error is everyday life: callers who leave, and what is refused.
func expected(err error) bool {
	switch wire.From(err).Code {
	case errcode.Cancelled, errcode.Deadline, errcode.Overloaded, errcode.Unavailable, errcode.InvalidArgument:
		return true
	default:
		return false
	}
}

func panicOf(err error) string {
	if p, ok := errors.AsType[*safe.PanicError](err); ok {
		return string(p.Stack)
	}
	return ""
}

// connections gives every connection a name: the callers of one are one client where there are no tokens.
type connections struct{ last atomic.Int64 }

type connectionKey struct{}

func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, "connection-"+strconv.FormatInt(c.last.Add(1), 10))
}

func (*connections) HandleConn(context.Context, stats.ConnStats)                     {}
func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (*connections) HandleRPC(context.Context, stats.RPCStats)                       {}

func connectionOf(ctx context.Context) string {
	name, _ := ctx.Value(connectionKey{}).(string)
	return name
}
