package server

import (
	"container/list"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
)

// bench is an environment with a store, for searches of states that come with the call.
type bench struct {
	key   string // id and keywords
	env   *envs.Env
	store *statestore.Store
	users int // guarded by benches.mu
}

// benches are the environments in use, and those used last.
type benches struct {
	cfg     *Config
	workers *pool.Workers

	mu   sync.Mutex // guards everything below
	all  map[string]*list.Element
	used *list.List // of *bench, the last used first
}

// mostBenches is how many environments are kept that nobody uses.
const mostBenches = 32

func newBenches(cfg *Config, workers *pool.Workers) *benches {
	return &benches{cfg: cfg, workers: workers, all: map[string]*list.Element{}, used: list.New()}
}

// keywords returns the environment that a caller means, and checks that he may have it.
func (b *benches) keywords(ref *pb.EnvRef) (id string, kw envs.Keywords, err error) {
	id = ref.GetId()
	if id == "" {
		if len(b.cfg.Envs) == 0 {
			return "", nil, wire.Bad("env.id", "isn't set; want one of %s", strings.Join(envs.IDs(), ", "))
		}
		id = b.cfg.Envs[0].ID
	}
	given := ref.GetKeywords()
	if len(b.cfg.Envs) > 0 {
		i := slices.IndexFunc(b.cfg.Envs, func(e Env) bool { return e.ID == id })
		if i < 0 {
			e := wire.New(errcode.UnknownEnv, "this server doesn't serve %q; it serves %s", id, b.served())
			e.Path = "env.id"
			return "", nil, e
		}
		own := b.cfg.Envs[i].Keywords
		for name, value := range given {
			if own[name] != value {
				e := wire.New(errcode.Keyword, "this server serves %s with keywords of its own; want none here", id)
				e.Path = "env.keywords." + name
				return "", nil, e
			}
		}
		given = own
	}
	kw = envs.Keywords{}
	for name, value := range given {
		if !json.Valid([]byte(value)) {
			e := wire.New(errcode.Keyword, "%s=%.40q is no JSON", name, value)
			e.Path = "env.keywords." + name
			return "", nil, e
		}
		kw[name] = json.RawMessage(value)
	}
	if entry, err := envs.Lookup(id); err == nil && !b.cfg.Files && len(b.cfg.Envs) == 0 {
		if name := entry.ReadsFile(kw); name != "" {
			e := wire.New(errcode.Permission,
				"%s names a file of the server, which only its own --env-arg may; send the contents", name)
			e.Path = "env.keywords." + name
			return "", nil, e
		}
	}
	return id, kw, nil
}

func (b *benches) served() string {
	var ids []string
	for _, e := range b.cfg.Envs {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, ", ")
}

// ids lists the environments that may be used.
func (b *benches) ids() []string {
	if len(b.cfg.Envs) == 0 {
		return envs.IDs()
	}
	return strings.Split(b.served(), ", ")
}

// make makes an environment.
func (b *benches) make(ref *pb.EnvRef) (*envs.Env, error) {
	id, kw, err := b.keywords(ref)
	if err != nil {
		return nil, err
	}
	env, err := envs.Make(id, kw)
	return env, wire.At("env", err)
}

// use returns the bench of an environment; release must be called when it isn't used any more.
func (b *benches) use(ref *pb.EnvRef) (x *bench, release func(), err error) {
	id, kw, err := b.keywords(ref)
	if err != nil {
		return nil, nil, err
	}
	parts := []string{id}
	for _, name := range slices.Sorted(maps.Keys(kw)) {
		parts = append(parts, fmt.Sprintf("%s=%s", name, kw[name]))
	}
	key := strings.Join(parts, " ")
	b.mu.Lock()
	known := b.all[key] != nil
	b.mu.Unlock()
	var env *envs.Env
	if !known { // without the lock: keywords may be large
		if env, err = envs.Make(id, kw); err != nil {
			return nil, nil, wire.At("env", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.all[key]
	if at == nil && env == nil { // forgotten in between
		if env, err = envs.Make(id, kw); err != nil {
			return nil, nil, wire.At("env", err)
		}
	}
	if at == nil {
		store, err := statestore.New(env, statestore.Config{MaxStates: b.cfg.MaxStates, MaxBytes: b.cfg.MaxBytes},
			b.workers)
		if err != nil {
			return nil, nil, err
		}
		at = b.used.PushFront(&bench{key: key, env: env, store: store})
		b.all[key] = at
	}
	b.used.MoveToFront(at)
	x = at.Value.(*bench)
	x.users++
	b.forget()
	return x, sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		x.users--
		b.forget()
	}), nil
}

// forget closes what was not used for longest, where there are too many. Call with mu held.
func (b *benches) forget() {
	for at := b.used.Back(); at != nil && b.used.Len() > mostBenches; {
		x, before := at.Value.(*bench), at.Prev()
		if x.users == 0 {
			b.used.Remove(at)
			delete(b.all, x.key)
			x.store.Close()
		}
		at = before
	}
}

// states returns how many states there are, those of searches included.
func (b *benches) states() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := b.used.Front(); at != nil; at = at.Next() {
		s := at.Value.(*bench).store.Stats()
		n += s.States + s.Reserved
	}
	return n
}

func (b *benches) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.all {
		at.Value.(*bench).store.Close()
	}
}
