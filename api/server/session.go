package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/search"
)

// session is an open search of a client.
type session struct {
	s       *Server
	client  *identity
	stream  pb.Search_SessionServer
	job     *job
	search  *search.Search
	waiting int         // rows that Select gave and Expand has not answered
	stop    atomic.Bool // the run that is going on shall end
}

// Session answers the requests of a stream, one after the other.
func (s *searchService) Session(stream pb.Search_SessionServer) error {
	defer s.sessions.Add(-1)
	if n := s.sessions.Add(1); n > int64(s.cfg.MaxSessions) {
		return wire.New(errcode.Overloaded, "%d sessions are open, the most that may be; try again later", n-1)
	}
	x := &session{s: s.Server, client: identityOf(stream.Context()), stream: stream}
	defer x.close()
	return serveRequests(s.Server, stream, s.cfg.SessionIdle, x.notice, x.answer)
}

// notice takes a stop, which is for the run that is going on, or for the one that waits to be answered.
func (x *session) notice(req *pb.SessionRequest) bool {
	if req.GetStop() != nil {
		x.stop.Store(true)
		return false
	}
	if req.GetRun() != nil { // a stop that comes from now on is for this run
		x.stop.Store(false)
	}
	return true
}

func (x *session) close() {
	if x.search != nil {
		x.search.Close()
	}
	if x.job != nil {
		x.job.free()
	}
}

// answer does what a request asks. An error goes into the answer; if the search has not begun it ends the session.
func (x *session) answer(req *pb.SessionRequest) error {
	x.s.work.Add(1)
	defer x.s.work.Add(-1)
	var out *pb.SessionResponse
	err := safe.Call(func() (err error) {
		out, err = x.do(x.stream.Context(), req)
		return err
	})
	if err != nil {
		if x.search == nil {
			return err
		}
		out = &pb.SessionResponse{Answer: &pb.SessionResponse_Error{Error: wire.Message(err)}}
	}
	return x.stream.Send(out)
}

func (x *session) do(ctx context.Context, req *pb.SessionRequest) (*pb.SessionResponse, error) {
	if b := req.GetBegin(); (b != nil) == (x.search != nil) {
		if b != nil {
			return nil, wire.Bad("begin", "came twice; want one session a search")
		}
		return nil, wire.Bad("begin", "isn't set; want it first")
	}
	done := &pb.SessionResponse{Answer: &pb.SessionResponse_Done{Done: &pb.Done{}}}
	switch call := req.Call.(type) {
	case *pb.SessionRequest_Begin:
		return x.begin(ctx, call.Begin)
	case *pb.SessionRequest_Run:
		return x.run(ctx, call.Run)
	case *pb.SessionRequest_Advance:
		actions, err := wire.Rows[int32]("advance.actions", call.Advance.Actions)
		if err == nil {
			err = wire.At("advance.actions", x.search.Advance(actions))
		}
		return done, err
	case *pb.SessionRequest_Result:
		return x.result(false)
	case *pb.SessionRequest_Select:
		return x.selectLeaves()
	case *pb.SessionRequest_Expand:
		return done, x.expand(call.Expand)
	}
	return nil, wire.Bad("call", "isn't set; want one of a session's calls")
}

func (x *session) begin(ctx context.Context, b *pb.Begin) (*pb.SessionResponse, error) {
	job, err := x.s.newJob(ctx, x.client, b.Search, b.Ask)
	if err != nil {
		return nil, err
	}
	x.job = job
	needs := evaluator.Needs{Obs: true}
	if job.use != nil {
		needs = job.use.ev.Needs()
	}
	made, err := search.New(job.store, &job.Roots, job.cfg, needs)
	if err != nil {
		return nil, err
	}
	x.search = made
	nodes, width := made.Shape()
	return &pb.SessionResponse{Answer: &pb.SessionResponse_Begun{Begun: &pb.Begun{
		Rows: int32(made.Rows()), Nodes: int64(nodes), Width: int64(width),
	}}}, nil
}

// run goes on to the end, or until it is stopped, and reports at times.
func (x *session) run(ctx context.Context, r *pb.RunSearch) (*pb.SessionResponse, error) {
	if x.job.use == nil {
		return nil, wire.Bad("run", "can't be: the session began with ask; want select and expand")
	}
	// Reports are sent beside the run: one that the client doesn't read keeps neither the search nor its place.
	reports, sent := make(chan *pb.SessionResponse, 1), make(chan error, 1)
	go func() { sent <- x.sendAll(reports) }()
	err := x.goOn(ctx, time.Duration(r.ReportEveryMs)*time.Millisecond, reports)
	close(reports)
	if err := errors.Join(err, <-sent); err != nil {
		return nil, err
	}
	return x.result(false)
}

func (x *session) sendAll(reports <-chan *pb.SessionResponse) (err error) {
	for m := range reports {
		if err == nil {
			err = x.stream.Send(m)
		}
	}
	return err
}

// goOn searches to the end. It leaves a report out if the last one is still on its way.
func (x *session) goOn(ctx context.Context, every time.Duration, reports chan<- *pb.SessionResponse) error {
	done, err := x.s.admit(ctx)
	if err != nil {
		return err
	}
	defer done()
	ev, version, release := evaluator.Pin(x.job.use.ev)
	defer release()
	defer evaluator.Enter(ev)()
	x.search.Pinned(version)
	before := x.search.Stats().Simulations
	defer func() { x.s.simulations.Add(int64(max(0, x.search.Stats().Simulations-before))) }()
	for last := time.Now(); !x.stop.Load(); {
		more, err := x.search.Round(ctx, ev)
		if err != nil || !more {
			return err
		}
		if now := time.Now(); every > 0 && now.Sub(last) >= every && len(reports) == 0 {
			last = now
			report, err := x.result(true)
			if err != nil {
				return err
			}
			reports <- report // there is room: nobody else puts any in
		}
	}
	return nil
}

// result is what the search says now. Rows that were given up are among the errors of the answer.
func (x *session) result(partial bool) (*pb.SessionResponse, error) {
	out := newResult(x.job)
	if err := x.search.Result(out); err != nil {
		return nil, err
	}
	m := response(x.job, out)
	m.Partial = partial
	if x.job.cfg.KeepLogits && !partial {
		m.Tree = treeTensors(x.search)
	}
	return &pb.SessionResponse{Answer: &pb.SessionResponse_Result{Result: m}}, nil
}

func (x *session) selectLeaves() (*pb.SessionResponse, error) {
	if x.job.use != nil {
		return nil, wire.Bad("select", "can't be: the session began with a model; want run")
	}
	batch, err := x.search.Select()
	if err != nil {
		return nil, err
	}
	n, spec := batch.N, x.job.env.Spec()
	x.waiting = n
	leaves := &pb.Leaves{}
	if n > 0 {
		leaves.Obs = wire.Arrays(spec.Obs, batch.Obs, n)
		legal := batch.Legal
		if legal == nil {
			legal = allTrue(n * spec.NumActions)
		}
		leaves.ActionMask = wire.Of(legal[:n*spec.NumActions], n, spec.NumActions)
		if batch.Chance != nil {
			leaves.Chance = wire.Vector(batch.Chance[:n])
		}
	}
	return &pb.SessionResponse{Answer: &pb.SessionResponse_Leaves{Leaves: leaves}}, nil
}

func (x *session) expand(e *pb.Expand) error {
	logits, err := wire.Read[float32]("expand.prior_logits", e.PriorLogits, x.waiting, x.job.env.Spec().NumActions)
	if err != nil {
		return err
	}
	values, err := wire.Read[float32]("expand.value", e.Value, x.waiting)
	if err != nil {
		return err
	}
	return wire.At("expand", x.search.Expand(logits, values))
}

func allTrue(n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
	}
	return out
}
