package server

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/pool"
)

// openPool is a client's pool. It lives as long as calls about it come, and a lease longer.
type openPool struct {
	*pool.Pool
	id    string
	owner *identity

	// guarded by pools.mu
	calls int
	last  time.Time // that a call ended
}

// pools are the open pools. One that nobody has used for its lease is closed: its client is dead, or has forgotten
// it.
type pools struct {
	cfg *Config

	mu      sync.Mutex // guards everything below
	all     map[string]*openPool
	opening map[string]int // by client: places of pools that are being made
	expired int64
	closed  bool

	stop chan struct{}
	done sync.WaitGroup
}

func newPools(cfg *Config) *pools {
	p := &pools{cfg: cfg, all: map[string]*openPool{}, opening: map[string]int{}, stop: make(chan struct{})}
	p.done.Go(p.reap)
	return p
}

// reap closes pools whose lease has run out.
func (p *pools) reap() {
	tick := time.NewTicker(max(p.cfg.Lease/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			for _, dead := range p.takeExpired(now) {
				p.cfg.Log.Info("pool closed: nobody has used it for its lease", "pool", dead.id[:8], "client",
					dead.owner.name,
					"env", dead.Env().Spec().ID)
				dead.Close()
			}
		}
	}
}

func (p *pools) takeExpired(now time.Time) (out []*openPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, x := range p.all {
		if x.calls == 0 && now.Sub(x.last) > p.cfg.Lease {
			delete(p.all, id)
			out = append(out, x)
			p.expired++
		}
	}
	return out
}

// open makes a pool for a client.
func (p *pools) open(owner *identity, env *envs.Env, cfg pool.Config) (*openPool, error) {
	if err := p.reserve(owner); err != nil {
		return nil, err
	}
	made, err := pool.New(env, cfg)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opening[owner.name]--; p.opening[owner.name] == 0 {
		delete(p.opening, owner.name)
	}
	if err != nil {
		return nil, err
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	x := &openPool{Pool: made, id: hex.EncodeToString(random[:]), owner: owner, last: time.Now()}
	if p.closed {
		made.Close()
		return nil, errDraining()
	}
	p.all[x.id] = x
	return x, nil
}

// reserve checks that a client may have one more, and keeps a place for it.
func (p *pools) reserve(owner *identity) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, all := p.opening[owner.name], len(p.all)
	for _, n := range p.opening {
		all += n
	}
	for _, x := range p.all {
		if x.owner.name == owner.name {
			own++
		}
	}
	switch {
	case all >= p.cfg.MaxPools:
		return wire.New(errcode.Overloaded, "%d pools are open, the most that may be; try again later", all)
	case own >= p.cfg.MaxClientPools:
		return wire.New(errcode.Budget, "%s has %d open pools, the most that a client may have; close some", owner.name,
			own)
	}
	p.opening[owner.name]++
	return nil
}

// use returns a client's pool; release must be called at the end of the call, and begins its lease anew.
func (p *pools) use(client *identity, id string) (x *openPool, release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x = p.all[id]
	if x == nil || x.owner.named && x.owner.name != client.name {
		e := wire.New(errcode.Closed, "no such pool: it was closed, or nobody used it for %v", p.cfg.Lease)
		e.Path = "pool"
		return nil, nil, e
	}
	x.calls++
	return x, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		x.calls--
		x.last = time.Now()
	}), nil
}

// close closes a client's pool.
func (p *pools) close(client *identity, id string) error {
	x, release, err := p.use(client, id)
	if err != nil {
		return err
	}
	release()
	p.mu.Lock()
	delete(p.all, id)
	p.mu.Unlock()
	x.Close()
	return nil
}

// counts returns how many pools are open, how many states they have, and how many leases ran out.
func (p *pools) counts() (open, states int, expired int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.all {
		s := x.Store().Stats()
		states += s.States + s.Reserved
	}
	return len(p.all), states, p.expired
}

// closeAll closes everything.
func (p *pools) closeAll() {
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	all := p.all
	p.all, p.closed = nil, true
	p.mu.Unlock()
	for _, x := range all {
		x.Close()
	}
}
