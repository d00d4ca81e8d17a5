package server

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/azserve/azserve/evaluator/remote"
)

// registry has the models by name.
type registry struct {
	cfg *Config

	mu      sync.Mutex // guards everything below, and the models
	models  map[string]*model
	first   string // the default
	dir     string // where files that were sent are; "" until there are some
	ownsDir bool
	closed  bool
}

// model is an evaluator under a name: built in, of files in one or several versions, or attached.
type model struct {
	name, kind string
	texts      map[string]string // version -> what package named opens
	versions   []string          // in the order in which they came
	active     string
	hub        *remote.Hub // of attached evaluators
	served     map[servedKey]*served
	requests   int64
	before     evaluator.BatcherStats // of batchers that are no more
}

type servedKey struct{ env, version string }

// served is a version of a model for one environment.
type served struct {
	ev      evaluator.Evaluator // as it is; through the batcher where there is one
	batcher *evaluator.Batcher
	cache   *evaluator.Cache
	free    func()
	users   int
	last    time.Time
	clients map[string]*servedClient
}

type servedClient struct {
	*evaluator.Client
	users int
}

// Kinds of models.
const (
	kindBuiltin  = "builtin"
	kindFile     = "file"
	kindAttached = "attached"
)

// mostModels is how many models there may be.
const mostModels = 1000

// mostServed is how many environments and versions of a model are kept that nobody uses.
const mostServed = 16

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func checkName(path, name string) error {
	if !nameForm.MatchString(name) {
		return wire.Bad(path, "is %.40q; want 1 to 100 letters, digits, points, hyphens and underscores", name)
	}
	return nil
}

func newRegistry(cfg *Config) (*registry, error) {
	r := &registry{cfg: cfg, models: map[string]*model{}, first: "uniform", dir: cfg.ModelDir}
	for _, name := range []string{"uniform", "rollout", "table"} {
		r.models[name] = &model{name: name, kind: kindBuiltin, texts: map[string]string{"": name},
			served: map[servedKey]*served{}}
	}
	for i, m := range cfg.Models {
		if err := checkName("model", m.Name); err != nil {
			return nil, err
		}
		if r.models[m.Name] != nil {
			return nil, wire.Bad("model", "%q is there twice, or built in; want other names", m.Name)
		}
		r.models[m.Name] = &model{
			name: m.Name, kind: kindFile, texts: map[string]string{"1": m.Evaluator}, versions: []string{"1"}, active: "1",
			served: map[servedKey]*served{},
		}
		if i == 0 {
			r.first = m.Name
		}
	}
	return r, r.scan()
}

// scan takes in the models that were sent to a server before this one; the newest version of each is active.
func (r *registry) scan() error {
	if r.dir == "" {
		return nil
	}
	folders, err := filepath.Glob(filepath.Join(r.dir, "*", "*"))
	if err != nil {
		return err
	}
	changed := map[string]time.Time{}
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			changed[folder] = info.ModTime()
		}
	}
	slices.SortFunc(folders, func(a, b string) int { return changed[a].Compare(changed[b]) })
	for _, folder := range folders {
		name, version := filepath.Base(filepath.Dir(folder)), filepath.Base(folder)
		if changed[folder].IsZero() || checkName("name", name) != nil || checkName("version", version) != nil {
			continue
		}
		if err := r.add(name, version, modelText(folder), true); err != nil {
			return err
		}
	}
	return nil
}

// modelText is how package named knows the model of a folder.
func modelText(folder string) string {
	if files, err := filepath.Glob(filepath.Join(folder, "*.onnx")); err == nil && len(files) > 0 {
		return "onnx:" + files[0]
	}
	return "gorgonia:" + folder
}

// open makes sure that every model can be opened for an environment.
func (r *registry) open(env *envs.Env) error {
	for _, m := range r.cfg.Models {
		u, err := r.use(context.Background(), m.Name, env, &identity{name: "start"})
		if err != nil {
			return err
		}
		u.release()
	}
	return nil
}

// use is a model in use by one call.
type use struct {
	ev      evaluator.Evaluator
	cache   *evaluator.Cache
	hub     *remote.Hub
	release func()
}

// use returns a model for a call of a client. Where evaluators must attach first, it waits a little for one.
func (r *registry) use(ctx context.Context, name string, env *envs.Env, client *identity) (*use, error) {
	if name == "" {
		name = r.first
	}
	r.mu.Lock()
	m := r.models[name]
	r.mu.Unlock()
	if m == nil {
		e := wire.New(errcode.UnknownModel,
			"there is no model %q; there are %v. A model of a client's own must be attached "+
				"(azserve.serve_evaluator) or loaded first", name, r.names())
		e.Path = "model"
		return nil, e
	}
	if m.hub != nil {
		if err := m.hub.Ready(ctx); err != nil {
			return nil, wire.At("model", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x, err := r.serve(m, env)
	if err != nil {
		return nil, wire.At("model", err)
	}
	x.users++
	m.requests++
	u := &use{ev: x.ev, cache: x.cache, hub: m.hub}
	c := x.clients[client.name]
	if x.batcher != nil {
		if c == nil {
			c = &servedClient{Client: x.batcher.Client(0)}
			x.clients[client.name] = c
		}
		c.users++
		u.ev = c.Client
	}
	u.release = sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		x.users--
		x.last = time.Now()
		if c == nil {
			return
		}
		if c.users--; c.users == 0 {
			c.Close()
			delete(x.clients, client.name)
		}
	})
	return u, nil
}

// serve returns the active version of a model for an environment. Call with mu held.
func (r *registry) serve(m *model, env *envs.Env) (*served, error) {
	spec := env.Spec()
	key := servedKey{spec.ID + spec.Keywords, m.active}
	if x := m.served[key]; x != nil {
		return x, nil
	}
	if r.closed {
		return nil, errDraining()
	}
	x := &served{clients: map[string]*servedClient{}, free: func() {}, last: time.Now()}
	if m.hub != nil {
		x.ev = m.hub.Evaluator(env)
	} else {
		ev, free, err := named.Open(m.texts[m.active], env)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.name, err)
		}
		x.ev, x.free = ev, free
	}
	if err := r.batch(m, x, env); err != nil {
		x.free()
		return nil, err
	}
	r.forget(m)
	m.served[key] = x
	return x, nil
}

// batch puts a batcher before an evaluator that gains from large batches.
func (r *registry) batch(m *model, x *served, env *envs.Env) (err error) {
	if needs := x.ev.Needs(); !needs.Obs || needs.States || needs.Instant {
		return nil
	}
	if r.cfg.CacheBytes > 0 {
		if x.cache, err = evaluator.NewCacheBytes(r.cfg.CacheBytes, env.Spec().NumActions); err != nil {
			return err
		}
	}
	streams := r.cfg.Streams
	if m.hub != nil {
		streams = 1
	}
	most := batchRows(env, r.cfg.MaxBatch, r.cfg.MaxMessage)
	if most < 1 {
		return wire.New(errcode.TooLarge, "one observation of %s is over the limit of a message; raise --max-message",
			env.Spec().ID)
	}
	x.batcher, err = evaluator.NewBatcher(x.ev, env.Spec(), evaluator.BatcherConfig{
		MaxBatch: most, MaxWait: r.cfg.MaxWait, Streams: streams, Queue: max(16*r.cfg.MaxBatch, r.cfg.MaxNodes),
	})
	if err != nil {
		return err
	}
	free, stop := x.free, func() {}
	if m.hub != nil {
		stop = m.hub.Listen(func(c remote.Capacity) {
			if c.MaxBatch == 0 {
				c.MaxBatch = r.cfg.MaxBatch
			}
			x.batcher.Resize(c.Evaluators, c.Batches-c.Evaluators, c.MaxBatch)
		})
	}
	x.free = func() {
		stop()
		x.batcher.Close()
		free()
	}
	return nil
}

// forget frees what nobody uses, the longest unused first, where there is too much. Call with mu held.
func (r *registry) forget(m *model) {
	for len(m.served) >= mostServed {
		var oldest servedKey
		found := false
		for key, x := range m.served {
			if x.users == 0 && (!found || x.last.Before(m.served[oldest].last)) {
				oldest, found = key, true
			}
		}
		if !found {
			return
		}
		m.drop(oldest)
	}
}

// drop frees a version for an environment. Call with registry.mu held.
func (m *model) drop(key servedKey) {
	x := m.served[key]
	delete(m.served, key)
	if x.batcher != nil {
		s := x.batcher.Stats()
		m.before.Rows += s.Rows
		m.before.Batches += s.Batches
		m.before.Failed += s.Failed
	}
	x.free()
}

func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.models))
}

// list describes the models, by name.
func (r *registry) list() (out []*pb.Model) {
	for _, name := range r.names() {
		r.mu.Lock()
		out = append(out, r.describe(r.models[name]))
		r.mu.Unlock()
	}
	return out
}

func (r *registry) describe(m *model) *pb.Model {
	d := &pb.Model{
		Name: m.name, Kind: m.kind, Version: m.active, Versions: slices.Clone(m.versions), Ready: true,
		Requests: m.requests,
		Default:  m.name == r.first,
	}
	total := m.before
	for _, x := range m.served {
		if x.batcher != nil {
			s := x.batcher.Stats()
			total.Rows += s.Rows
			total.Batches += s.Batches
			total.Failed += s.Failed
		}
	}
	d.Rows, d.Batches, d.Failed = int64(total.Rows), int64(total.Batches), int64(total.Failed)
	if m.hub != nil {
		s := m.hub.Stats()
		d.Evaluators, d.Ready, d.Version = int32(s.Evaluators), s.Evaluators > 0, fmt.Sprint(s.Version)
	}
	return d
}

// ready says whether a model, or the default one, can evaluate.
func (r *registry) ready(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	return m != nil && (m.hub == nil || m.hub.Stats().Evaluators > 0)
}

// attached returns the hub of a model for an evaluator that attaches; the first makes it.
func (r *registry) attached(name string) (*remote.Hub, error) {
	if err := checkName("hello.model", name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	switch {
	case r.closed:
		return nil, errDraining()
	case m == nil && len(r.models) >= mostModels:
		return nil, wire.New(errcode.Overloaded, "there are %d models, the most that may be", len(r.models))
	case m == nil:
		m = &model{
			name: name, kind: kindAttached, served: map[servedKey]*served{},
			hub: remote.NewHub(name, remote.Config{Timeout: r.cfg.EvaluatorTimeout, Grace: r.cfg.EvaluatorGrace}),
		}
		r.models[name] = m
	case m.hub == nil:
		return nil, wire.Bad("hello.model", "is %q, which is a model of a file or built in; want another name", name)
	}
	return m.hub, nil
}

// try opens a model for an environment, if there is one.
func (*registry) try(text string, env *envs.Env) error {
	if folder, ours := strings.CutPrefix(text, "gorgonia:"); ours && env == nil {
		net, err := gorgonia.Load(folder)
		if err == nil {
			net.Close()
		}
		return err
	}
	if env == nil { // an ONNX file is checked against the environment of its first use
		return nil
	}
	_, free, err := named.Open(text, env)
	if err != nil {
		return err
	}
	free()
	return nil
}

// folder returns where files that are sent are kept.
func (r *registry) folder() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == "" {
		dir, err := os.MkdirTemp("", "azserve-models-")
		if err != nil {
			return "", err
		}
		r.dir, r.ownsDir = dir, true
	}
	return r.dir, nil
}

// add gives a model a further version, and makes it if there is none.
func (r *registry) add(name, version, text string, activate bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	switch {
	case m == nil && len(r.models) >= mostModels:
		return wire.New(errcode.Overloaded, "there are %d models, the most that may be", len(r.models))
	case m == nil:
		m = &model{name: name, kind: kindFile, texts: map[string]string{}, served: map[servedKey]*served{}}
		r.models[name] = m
	case m.kind != kindFile:
		return wire.Bad("name", "is %q, which is %s; want another name", name, m.kind)
	}
	if m.texts[version] != "" {
		return wire.Bad("version", "is %s, which %s has already; want another", version, name)
	}
	m.versions = append(m.versions, version)
	m.texts[version] = text
	if activate || m.active == "" {
		m.active = version
	}
	return nil
}

// activate makes searches use a version from now on.
func (r *registry) activate(name, version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	if m == nil || m.kind != kindFile {
		e := wire.New(errcode.UnknownModel, "there is no model %q of files", name)
		e.Path = "name"
		return e
	}
	if m.texts[version] == "" {
		return wire.Bad("version", "is %q; want one of %v", version, m.versions)
	}
	m.active = version
	return nil
}

// cutOff ends the attached evaluators.
func (r *registry) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, m := range r.models {
		if m.hub != nil {
			m.hub.Close()
		}
	}
}

func (r *registry) close() {
	r.cutOff()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.models {
		for key := range m.served {
			m.drop(key)
		}
	}
	if r.ownsDir {
		_ = os.RemoveAll(r.dir)
	}
}
