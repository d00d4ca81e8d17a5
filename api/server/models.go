package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/atomicfile"
	"github.com/azserve/azserve/search"
)

// modelService is azserve.v1.Models.
type modelService struct {
	pb.UnimplementedModelsServer
	*Server
}

// List lists the models.
func (s *modelService) List(context.Context, *pb.ListModelsRequest) (*pb.ListModelsResponse, error) {
	return &pb.ListModelsResponse{Models: s.registry.list()}, nil
}

// LoadModel keeps the files of a model's version, opens them, and adds the version if that worked.
func (s *modelService) LoadModel(_ context.Context, req *pb.LoadModelRequest) (*pb.LoadModelResponse, error) {
	if err := checkName("name", req.Name); err != nil {
		return nil, err
	}
	version := req.Version
	if version == "" {
		version = contentVersion(req.Files)
	}
	if err := checkName("version", version); err != nil {
		return nil, err
	}
	folder, err := s.keep(req, version)
	if err != nil {
		return nil, err
	}
	text := modelText(folder)
	if err := s.registry.try(text, s.defaultEnv); err != nil {
		_ = os.RemoveAll(folder)
		return nil, wire.At("files", err)
	}
	if err := s.registry.add(req.Name, version, text, req.Activate); err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	s.cfg.Log.Info("model loaded", "model", req.Name, "version", version, "active", req.Activate)
	return &pb.LoadModelResponse{Version: version}, nil
}

// keep writes the files of a model's version.
func (s *modelService) keep(req *pb.LoadModelRequest, version string) (folder string, err error) {
	if len(req.Files) == 0 || len(req.Files) > 16 {
		return "", wire.Bad("files", "are %d; want 1 to 16", len(req.Files))
	}
	for _, f := range req.Files {
		if err := checkName("files.name", f.Name); err != nil {
			return "", err
		}
	}
	base, err := s.registry.folder()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(base, req.Name, version)
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return "", err
	}
	if err := os.Mkdir(folder, 0o700); errors.Is(err, os.ErrExist) {
		return "", wire.Bad("version", "is %s, which %s has already; want another", version, req.Name)
	} else if err != nil {
		return "", err
	}
	for _, f := range req.Files {
		if err := atomicfile.Write(filepath.Join(folder, f.Name), f.Data); err != nil {
			_ = os.RemoveAll(folder)
			return "", err
		}
	}
	return folder, nil
}

// contentVersion names files by what is in them.
func contentVersion(files []*pb.File) string {
	h := sha256.New()
	for _, f := range files {
		sum := sha256.Sum256(f.Data)
		_, _ = h.Write(append([]byte(f.Name+"\x00"), sum[:]...)) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Activate changes which version searches use.
func (s *modelService) Activate(_ context.Context, req *pb.ActivateRequest) (*pb.ActivateResponse, error) {
	if err := s.registry.activate(req.Name, req.Version); err != nil {
		return nil, err
	}
	s.cfg.Log.Info("model activated", "model", req.Name, "version", req.Version)
	return &pb.ActivateResponse{}, nil
}

// Evaluate asks a model about states or observations.
func (s *modelService) Evaluate(ctx context.Context, req *pb.EvaluateRequest) (*pb.EvaluateResponse, error) {
	client := identityOf(ctx)
	if o := req.GetObservations(); o != nil {
		return s.evaluateObservations(ctx, client, req, o)
	}
	r, err := s.roots(ctx, client, req)
	if err != nil {
		return nil, err
	}
	defer r.release()
	u, err := s.registry.use(ctx, req.Model, r.env, client)
	if err != nil {
		return nil, err
	}
	defer u.release()
	n, a := len(r.states), r.env.Spec().NumActions
	if err := s.fitsWork("states", r.env, n, 1); err != nil {
		return nil, err
	}
	out := &evaluator.Output{Logits: make([]float32, n*a), Value: make([]float32, n)}
	version, err := search.Evaluate(ctx, r.store, r.states, search.Seeds(req.Seed, n), u.ev, out)
	if err != nil {
		return nil, wire.At("model", err)
	}
	return evaluation(out, n, a, version), nil
}

func evaluation(out *evaluator.Output, n, actions int, version uint64) *pb.EvaluateResponse {
	return &pb.EvaluateResponse{
		PriorLogits: wire.Of(out.Logits, n, actions), Value: wire.Vector(out.Value), Version: version,
	}
}

// evaluateObservations asks a model about what a caller sees of states that are his own.
func (s *modelService) evaluateObservations(
	ctx context.Context, client *identity, req *pb.EvaluateRequest, o *pb.Observations,
) (*pb.EvaluateResponse, error) {
	b, release, err := s.benches.use(req.Env)
	if err != nil {
		return nil, err
	}
	defer release()
	in, err := readObservations(b.env, o)
	if err != nil {
		return nil, err
	}
	u, err := s.registry.use(ctx, req.Model, b.env, client)
	if err != nil {
		return nil, err
	}
	defer u.release()
	if u.ev.Needs().States {
		return nil, wire.Bad("model", "reads states; want states, pool_states or moves in place of observations")
	}
	ev, version, unpin := evaluator.Pin(u.ev)
	defer unpin()
	n, a := in.N, b.env.Spec().NumActions
	if err := s.fits("observations", n, 4*int64(a)+4); err != nil {
		return nil, err
	}
	out := &evaluator.Output{Logits: make([]float32, n*a), Value: make([]float32, n)}
	if err := ev.Evaluate(ctx, in, out); err != nil {
		return nil, wire.At("model", err)
	}
	if out.Uniform {
		clear(out.Logits)
	}
	for i, err := range out.Errors {
		if err != nil {
			e := *wire.From(err)
			e.Path, e.Row = "model", i
			return nil, &e
		}
	}
	return evaluation(out, n, a, version), nil
}

// readObservations reads a batch.
func readObservations(env *envs.Env, o *pb.Observations) (*evaluator.Batch, error) {
	spec := env.Spec()
	arrays, n, err := wire.ReadArrays("observations.obs", spec.Obs, o.Obs)
	if err != nil {
		return nil, err
	}
	legal, err := wire.Read[bool]("observations.action_mask", o.ActionMask, n, spec.NumActions)
	if err != nil {
		return nil, err
	}
	return &evaluator.Batch{N: n, Spec: spec, Obs: arrays, Legal: legal}, nil
}
