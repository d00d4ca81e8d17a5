package server

import (
	"context"
	"runtime"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
)

// Version is azserve's.
const Version = "0.1.0"

// adminService is azserve.v1.Admin.
type adminService struct {
	pb.UnimplementedAdminServer
	*Server
}

// Stats counts what the server does.
func (s *adminService) Stats(context.Context, *pb.StatsRequest) (*pb.StatsResponse, error) {
	return s.stats(), nil
}

func (s *Server) stats() *pb.StatsResponse {
	running, queued := s.admission.counts()
	open, states, expired := s.pools.counts()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return &pb.StatsResponse{
		Version: Version, Uptime: time.Since(s.began).Seconds(), Draining: s.draining.Load(), Running: int64(running),
		Queued: int64(queued), Refused: s.metrics.refused.Load(), Requests: s.metrics.answered.Load(),
		Failed: s.metrics.failed.Load(),
		Pools:  int64(open), Sessions: s.sessions.Load(), States: int64(states + s.benches.states()),
		Simulations: s.simulations.Load(), Expired: expired, Goroutines: int64(runtime.NumGoroutine()),
		HeapBytes: int64(memory.HeapAlloc),
	}
}

// Drain begins to drain, and doesn't wait for the end.
func (s *adminService) Drain(_ context.Context, req *pb.DrainRequest) (*pb.DrainResponse, error) {
	grace := s.cfg.Grace
	if !(req.Grace >= 0 && req.Grace <= 1e6) { // NaN too
		return nil, wire.Bad("grace", "is %v; want 0 or more seconds", req.Grace)
	}
	if req.Grace > 0 {
		grace = time.Duration(req.Grace * float64(time.Second))
	}
	s.drainFor(grace)
	return &pb.DrainResponse{}, nil
}
