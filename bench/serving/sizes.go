package main

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"
)

// sizes notes how large the messages of a connection's calls are.
type sizes struct {
	mu                  sync.Mutex // guards everything below
	in, out             int
	searchIn, searchOut int
}

type methodKey struct{}

// largest returns the bytes of the largest request and answer since it was asked last.
func (s *sizes) largest() (in, out int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, out = s.in, s.out
	s.in, s.out = 0, 0
	return in, out
}

// search returns those of the last search.
func (s *sizes) search() (in, out int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.searchIn, s.searchOut
}

func (*sizes) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

func (s *sizes) HandleRPC(ctx context.Context, x stats.RPCStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isSearch := ctx.Value(methodKey{}) == "/azserve.v1.Search/Run"
	switch x := x.(type) {
	case *stats.OutPayload:
		s.in = max(s.in, x.Length)
		if isSearch {
			s.searchIn = x.Length
		}
	case *stats.InPayload:
		s.out = max(s.out, x.Length)
		if isSearch {
			s.searchOut = x.Length
		}
	}
}

func (*sizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sizes) HandleConn(context.Context, stats.ConnStats)                       {}
