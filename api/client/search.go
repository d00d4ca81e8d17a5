package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
)

// Env names an environment; the zero value is the server's default.
type Env struct {
	ID       string
	Keywords envs.Keywords
}

func (e Env) ref() *pb.EnvRef {
	return &pb.EnvRef{Id: e.ID, Keywords: wire.Keywords(e.Keywords)}
}

// States are what a call is about: exactly one of the three kinds.
type States struct {
	Env   Env      // of Bytes and Games
	Bytes [][]byte // as Dump returns them
	Games []Game

	Pool *Pool
	IDs  []int32 // of the pool
}

// Game is a position by the way to it.
type Game struct {
	Seed    uint64
	Actions []int32
}

func (s *States) games() *pb.Games {
	m := &pb.Games{}
	for _, g := range s.Games {
		m.Games = append(m.Games, &pb.Game{Seed: g.Seed, Actions: g.Actions})
	}
	return m
}

func (s *States) poolStates() *pb.PoolStates {
	return &pb.PoolStates{Pool: s.Pool.id, StateId: wire.Vector(s.IDs)}
}

// Request is a search.
type Request struct {
	States
	Model  string         // the evaluator; "" is the server's default
	Config *search.Config // nil: Gumbel with its defaults; Cache isn't sent
	Seed   uint64         // row i draws from the stream (seed, i)
	Roots  search.Roots   // without States; Seeds are in place of Seed
}

func (r *Request) message() (m *pb.SearchRequest, err error) {
	m = &pb.SearchRequest{Model: r.Model, Seed: r.Seed}
	n := max(len(r.Bytes), len(r.Games), len(r.IDs))
	switch {
	case r.Pool != nil:
		m.Roots = &pb.SearchRequest_PoolStates{PoolStates: r.poolStates()}
	case r.Games != nil:
		m.Env, m.Roots = r.Env.ref(), &pb.SearchRequest_Moves{Moves: r.games()}
	default:
		m.Env, m.Roots = r.Env.ref(), &pb.SearchRequest_States{States: &pb.StateBytes{States: r.Bytes}}
	}
	if r.Config != nil {
		if m.Settings, err = wire.Settings(r.Config); err != nil {
			return nil, err
		}
	}
	x := &r.Roots
	if x.Seeds != nil {
		m.Seeds = wire.Vector(x.Seeds)
	}
	m.InvalidActions, m.Simulations, m.Fast = rows(x.Invalid, n), rows(x.Simulations, n), rows(x.Fast, n)
	m.DirichletNoise, m.RootGumbel = rows(x.Noise.Dirichlet, n), rows(x.Noise.RootGumbel, n)
	m.ActionGumbel = rows(x.Noise.ActionGumbel, n)
	if x.Deadlines != nil {
		limits := make([]float64, n)
		for i, t := range x.Deadlines {
			limits[i] = max(1e-6, time.Until(t).Seconds())
		}
		m.TimeLimit = wire.Vector(limits)
	}
	return m, nil
}

// rows returns values of n rows as a tensor, of one dimension if there is one a row; nil stays nil.
func rows[T wire.Element](x []T, n int) *pb.Tensor {
	switch {
	case x == nil:
		return nil
	case len(x) == n || n == 0:
		return wire.Vector(x)
	}
	return wire.Of(x, n, len(x)/n)
}

// Search searches states. As search.Run, it returns an error that names the first row that was given up, with the
// answers of the others.
func (c *Client) Search(ctx context.Context, r *Request) (*search.Result, error) {
	req, err := r.message()
	if err != nil {
		return nil, err
	}
	m, err := c.search.Run(ctx, req)
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	return result(m)
}

// result reads an answer.
func result(m *pb.SearchResponse) (*search.Result, error) {
	n, s := int(m.GetAction().GetShape()[0]), m.GetStats()
	a := 0
	if shape := m.GetVisits().GetShape(); len(shape) == 2 {
		a = int(shape[1])
	}
	r := &search.Result{Version: m.Version, Stats: search.Stats{
		Simulations: int(s.GetSimulations()), Evaluations: int(s.GetEvaluations()), Batches: int(s.GetBatches()),
		Room: int(s.GetRoom()), CacheHits: int(s.GetCacheHits()), MaxDepth: int(s.GetMaxDepth()),
		Pruned: int(s.GetPruned()), Proven: int(s.GetProvenRows()),
	}}
	var errs [7]error
	r.Action, errs[0] = wire.Read[int32]("action", m.Action, n)
	r.Weights, errs[1] = wire.Read[float32]("action_weights", m.ActionWeights, n, a)
	r.Visits, errs[2] = wire.Read[int32]("visits", m.Visits, n, a)
	r.QValues, errs[3] = wire.Read[float32]("qvalues", m.Qvalues, n, a)
	r.Value, errs[4] = wire.Read[float32]("value", m.Value, n)
	r.Raw, errs[5] = wire.Read[float32]("raw_value", m.RawValue, n)
	r.Proven, errs[6] = wire.Read[bool]("proven", m.Proven, n)
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("client: bad answer: %w", err)
		}
	}
	if len(m.Errors) == 0 {
		return r, nil
	}
	r.Errors = make([]error, n)
	for _, e := range m.Errors {
		if e.Row >= 0 && int(e.Row) < n {
			r.Errors[e.Row] = wire.FromMessage(e)
		}
	}
	return r, wire.FromMessage(m.Errors[0])
}

// Evaluate asks a model about states, without a search: logits [n, A] and values [n], and the version of its weights.
func (c *Client) Evaluate(
	ctx context.Context, s *States, model string, seed uint64,
) (*evaluator.Output, uint64, error) {
	req := &pb.EvaluateRequest{Model: model, Seed: seed}
	switch {
	case s.Pool != nil:
		req.Input = &pb.EvaluateRequest_PoolStates{PoolStates: s.poolStates()}
	case s.Games != nil:
		req.Env, req.Input = s.Env.ref(), &pb.EvaluateRequest_Moves{Moves: s.games()}
	default:
		req.Env, req.Input = s.Env.ref(), &pb.EvaluateRequest_States{States: &pb.StateBytes{States: s.Bytes}}
	}
	return c.evaluate(ctx, req)
}

// EvaluateBatch asks a model about what is seen of states: the observations, and what is legal, of a batch.
func (c *Client) EvaluateBatch(
	ctx context.Context, env Env, b *evaluator.Batch, model string,
) (*evaluator.Output, uint64, error) {
	o := &pb.Observations{Obs: wire.Arrays(b.Spec.Obs, b.Obs, b.N)}
	if b.Legal != nil {
		o.ActionMask = wire.Of(b.Legal[:b.N*b.Spec.NumActions], b.N, b.Spec.NumActions)
	}
	return c.evaluate(ctx, &pb.EvaluateRequest{
		Env: env.ref(), Model: model, Input: &pb.EvaluateRequest_Observations{Observations: o},
	})
}

func (c *Client) evaluate(ctx context.Context, req *pb.EvaluateRequest) (*evaluator.Output, uint64, error) {
	m, err := c.models.Evaluate(ctx, req)
	if err != nil {
		return nil, 0, wire.FromStatus(err)
	}
	out := &evaluator.Output{}
	if out.Logits, err = wire.Read[float32]("prior_logits", m.PriorLogits, wire.Any, wire.Any); err == nil {
		out.Value, err = wire.Read[float32]("value", m.Value, wire.Any)
	}
	return out, m.Version, err
}

// Session is a search that goes on: run, advance, run, with the subtree kept. Not safe for concurrent use, but for
// Stop.
type Session struct {
	stream  pb.Search_SessionClient
	cancel  context.CancelFunc
	sending sync.Mutex // held while something is sent
}

func (s *Session) send(req *pb.SessionRequest) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.stream.Send(req)
}

// Session begins a search. It ends with Close, or with ctx.
func (c *Client) Session(ctx context.Context, r *Request) (*Session, error) {
	req, err := r.message()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.search.Session(ctx)
	if err != nil {
		cancel()
		return nil, wire.FromStatus(err)
	}
	s := &Session{stream: stream, cancel: cancel}
	begin := &pb.SessionRequest_Begin{Begin: &pb.Begin{Search: req}}
	if _, err := s.call(&pb.SessionRequest{Call: begin}); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

func (s *Session) call(req *pb.SessionRequest) (*pb.SessionResponse, error) {
	if err := s.send(req); err != nil {
		_, err = s.stream.Recv() // which says why
		return nil, wire.FromStatus(err)
	}
	return s.receive()
}

func (s *Session) receive() (*pb.SessionResponse, error) {
	m, err := s.stream.Recv()
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	if e := m.GetError(); e != nil {
		return nil, wire.FromMessage(e)
	}
	return m, nil
}

// Run goes on to the end. With report it is called with what the search says so far, at that interval.
func (s *Session) Run(report func(*search.Result), every time.Duration) (*search.Result, error) {
	run := &pb.RunSearch{}
	if report != nil {
		run.ReportEveryMs = max(1, every.Milliseconds())
	}
	m, err := s.call(&pb.SessionRequest{Call: &pb.SessionRequest_Run{Run: run}})
	for err == nil && m.GetResult().GetPartial() {
		r, err := result(m.GetResult())
		if err == nil || r != nil {
			report(r)
		}
		if m, err = s.receive(); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return result(m.GetResult())
}

// Stop makes a Run that is going on end with what it has.
func (s *Session) Stop() error {
	return s.send(&pb.SessionRequest{Call: &pb.SessionRequest_Stop{Stop: &pb.Stop{}}})
}

// Advance plays an action in every row and keeps what the search knows of the position after it.
func (s *Session) Advance(actions []int32) error {
	advance := &pb.Advance{Actions: wire.Vector(actions)}
	_, err := s.call(&pb.SessionRequest{Call: &pb.SessionRequest_Advance{Advance: advance}})
	return err
}

// Close frees the search.
func (s *Session) Close() {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.stream.CloseSend()
	s.cancel()
}
