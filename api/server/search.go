package server

import (
	"context"
	"errors"
	"math"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator/remote"
	"github.com/azserve/azserve/search"
	"go.opentelemetry.io/otel/attribute"
)

// searchService is azserve.v1.Search.
type searchService struct {
	pb.UnimplementedSearchServer
	*Server
}

// job is a search to be done.
type job struct {
	*roots
	search.Roots
	cfg search.Config
	use *use // nil where the caller evaluates
}

// newJob reads a request. ask says that the caller evaluates.
func (s *Server) newJob(ctx context.Context, client *identity, req *pb.SearchRequest, ask bool) (*job, error) {
	if req == nil {
		return nil, wire.Bad("search", "isn't set; want a search")
	}
	r, err := s.roots(ctx, client, req)
	if err != nil {
		return nil, err
	}
	j := &job{roots: r}
	if err := s.fill(ctx, j, client, req, ask); err != nil {
		j.free()
		return nil, err
	}
	return j, nil
}

func (j *job) free() {
	if j.use != nil {
		j.use.release()
	}
	j.release()
}

func (s *Server) fill(ctx context.Context, j *job, client *identity, req *pb.SearchRequest, ask bool) (err error) {
	if j.cfg, err = wire.Config(req.Settings, j.env.Spec()); err != nil {
		return err
	}
	n := len(j.states)
	if err := s.fitsTrees(j.env, &j.cfg, n); err != nil {
		return err
	}
	if err := s.fitsWork("states", j.env, n, min(j.cfg.LeavesPerStep, j.cfg.NumSimulations+1)); err != nil {
		return err
	}
	if err := readRoots(&j.Roots, req, n, j.env.Spec().NumActions); err != nil {
		return err
	}
	j.States = j.states
	if ask {
		return nil
	}
	if j.use, err = s.registry.use(ctx, req.Model, j.env, client); err != nil {
		return err
	}
	j.cfg.Cache = j.use.cache
	return nil
}

// readRoots reads what there is of each row.
func readRoots(r *search.Roots, req *pb.SearchRequest, n, actions int) error {
	var limits []float64
	errs := []error{
		read(&r.Seeds, "seeds", req.Seeds, n), read(&r.Invalid, "invalid_actions", req.InvalidActions, n, actions),
		read(&r.Simulations, "simulations", req.Simulations, n), read(&limits, "time_limit", req.TimeLimit, n),
		read(&r.Fast, "fast", req.Fast, n), read(&r.Noise.Dirichlet, "dirichlet_noise", req.DirichletNoise, n, actions),
		read(&r.Noise.RootGumbel, "root_gumbel", req.RootGumbel, n, actions),
		read(&r.Noise.ActionGumbel, "action_gumbel", req.ActionGumbel, n, actions),
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if r.Seeds == nil {
		r.Seeds = search.Seeds(req.Seed, n)
	}
	for row, seconds := range limits {
		if !(seconds > 0 && seconds < math.MaxInt32) {
			e := wire.Bad("time_limit", "of row %d is %v; want seconds, above 0", row, seconds)
			e.Row = row
			return e
		}
		r.Deadlines = append(r.Deadlines, time.Now().Add(time.Duration(seconds*float64(time.Second))))
	}
	return nil
}

func read[T wire.Element](out *[]T, path string, t *pb.Tensor, shape ...int) (err error) {
	*out, err = wire.Read[T](path, t, shape...)
	return err
}

// Run searches a batch of roots.
func (s *searchService) Run(ctx context.Context, req *pb.SearchRequest) (*pb.SearchResponse, error) {
	j, err := s.newJob(ctx, identityOf(ctx), req, false)
	if err != nil {
		return nil, err
	}
	defer j.free()
	ctx, span := s.tracer.Start(ctx, "azserve.search")
	defer span.End()
	span.SetAttributes(attribute.String("env", j.env.Spec().ID), attribute.Int("rows", len(j.states)),
		attribute.Int("simulations", j.cfg.NumSimulations))
	if j.cfg.KeepLogits {
		return s.runTrees(ctx, j)
	}
	out := newResult(j)
	err = retry(ctx, j.use.hub, func() error {
		return search.Run(ctx, j.store, j.workers, &j.Roots, j.use.ev, j.cfg, out)
	})
	s.simulations.Add(int64(out.Stats.Simulations))
	if err := rowErrors(err, out); err != nil {
		return nil, err
	}
	return response(j, out), nil
}

// runTrees is Run where the answer has the trees.
func (s *searchService) runTrees(ctx context.Context, j *job) (*pb.SearchResponse, error) {
	out := newResult(j)
	var trees []*pb.Tensor
	err := retry(ctx, j.use.hub, func() error {
		x, err := search.New(j.store, &j.Roots, j.cfg, j.use.ev.Needs())
		if err != nil {
			return err
		}
		defer x.Close()
		err = x.Run(ctx, j.use.ev)
		if e := x.Result(out); e == nil {
			trees = treeTensors(x)
		}
		return err
	})
	s.simulations.Add(int64(out.Stats.Simulations))
	if err := rowErrors(err, out); err != nil {
		return nil, err
	}
	answer := response(j, out)
	answer.Tree = trees
	return answer, nil
}

// mostTries is how often a search begins that lost the evaluators with its weights: new weights came, and nobody
// keeps the old ones.
const mostTries = 3

// retry begins a search again that lost its evaluator's weights. A search is pure, so that is safe.
func retry(ctx context.Context, hub *remote.Hub, run func() error) (err error) {
	for try := range mostTries {
		if try > 0 {
			if err := hub.Ready(ctx); err != nil {
				return err
			}
		}
		if err = run(); hub == nil || !errors.Is(err, remote.ErrUnavailable) {
			return err
		}
	}
	return err
}

func newResult(j *job) *search.Result {
	n := len(j.states)
	out := search.NewResult(n, j.env.Spec().NumActions)
	out.Proven, out.Errors = make([]bool, n), make([]error, n)
	return out
}

// rowErrors returns an error of the whole search. Those of rows are in the answer, as long as some rows stand.
func rowErrors(err error, out *search.Result) error {
	if !errors.Is(err, search.ErrEvaluator) {
		if code := errcode.Of(err); code == errcode.Evaluator || code == errcode.Unavailable {
			return wire.At("model", err)
		}
		return err
	}
	for _, e := range out.Errors {
		if e == nil {
			return nil
		}
	}
	return wire.At("model", err)
}

// response returns a search's answer as a message.
func response(j *job, out *search.Result) *pb.SearchResponse {
	n, a, st := len(j.states), j.env.Spec().NumActions, &out.Stats
	m := &pb.SearchResponse{
		Action: wire.Vector(out.Action), ActionWeights: wire.Of(out.Weights, n, a), Visits: wire.Of(out.Visits, n, a),
		Qvalues: wire.Of(out.QValues, n, a), Value: wire.Vector(out.Value), RawValue: wire.Vector(out.Raw),
		Proven: wire.Vector(out.Proven), Version: out.Version,
		Stats: &pb.SearchStats{
			Simulations: int64(st.Simulations), Evaluations: int64(st.Evaluations), Batches: int64(st.Batches),
			Room: int64(st.Room), CacheHits: int64(st.CacheHits), MaxDepth: int64(st.MaxDepth), Pruned: int64(st.Pruned),
			ProvenRows: int64(st.Proven),
		},
	}
	for row, err := range out.Errors {
		if err == nil {
			continue
		}
		e := *wire.From(err)
		e.Code, e.Path, e.Row = errcode.Evaluator, "model", row
		m.Errors = append(m.Errors, wire.Message(&e))
	}
	return m
}

// treeTensors returns a search's trees, with mctx's names.
func treeTensors(x *search.Search) []*pb.Tensor {
	nodes, width := x.Shape()
	n := x.Rows()
	t := &treeArrays{}
	for row := range n {
		t.add(x.Tree(row).Export())
	}
	return t.tensors(n, nodes, width)
}
