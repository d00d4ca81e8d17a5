package evaluator

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Cache remembers what an evaluator said of positions, by the key of each state (envs.Hasher, history
// included; else a key of all its bytes). One serves all searches of one evaluator. It is for evaluators
// whose answer depends on the state alone: one that draws random numbers must not be cached.
// Safe for concurrent use.
type Cache struct {
	actions int
	version atomic.Uint64
	shards  [cacheShards]cacheShard
}

const (
	cacheShards = 64
	cacheWays   = 4 // places that a key may be in
)

type cacheShard struct {
	mu     sync.Mutex // guards everything below
	sets   uint64
	keys   []uint64  // [sets*cacheWays], 0 where nothing is
	used   []uint32  // [sets*cacheWays], the clock when it was last asked for
	values []float32 // [sets*cacheWays]
	logits []float32 // [sets*cacheWays, actions]
	clock  uint32
}

// NewCache makes room for at least so many positions. It takes 16 + 4 * actions bytes each, at once.
func NewCache(positions, actions int) (*Cache, error) {
	if positions < 1 || actions < 1 {
		return nil, fmt.Errorf("evaluator: a cache of %d positions with %d actions; want at least 1 of each",
			positions, actions)
	}
	c := &Cache{actions: actions}
	sets := (positions + cacheShards*cacheWays - 1) / (cacheShards * cacheWays)
	for i := range c.shards {
		n := sets * cacheWays
		c.shards[i] = cacheShard{
			sets: uint64(sets), keys: make([]uint64, n), used: make([]uint32, n), values: make([]float32, n),
			logits: make([]float32, n*actions),
		}
	}
	return c, nil
}

// NewCacheBytes makes a cache that takes at most so many bytes.
func NewCacheBytes(bytes, actions int) (*Cache, error) {
	each := cacheShards * cacheWays * positionBytes(actions)
	if actions < 1 || bytes < each {
		return nil, fmt.Errorf("evaluator: a cache of %d bytes for %d actions; want at least %d bytes and 1 action", bytes,
			actions, each)
	}
	return NewCache(bytes/each*cacheShards*cacheWays, actions)
}

// positionBytes is what a position takes: its key, when it was used, its value and the logits.
func positionBytes(actions int) int { return 8 + 4 + 4 + 4*actions }

// Actions returns the number of actions that logits are kept for.
func (c *Cache) Actions() int { return c.actions }

// Forget makes everything in the cache unknown: call it when the evaluator has new weights.
func (c *Cache) Forget() { c.version.Add(1) }

// Version says how often Forget was called. A search reads it before it asks the evaluator, so that an
// old answer is never stored as a new one.
func (c *Cache) Version() uint64 { return c.version.Load() }

// find returns a key's place in the shard; found says whether it holds the key, else it is the place
// that was asked for longest ago. Call with the shard's lock held.
func (s *cacheShard) find(key uint64) (at uint64, found bool) {
	first := key / cacheShards % s.sets * cacheWays
	at = first
	for i := first; i < first+cacheWays; i++ {
		if s.keys[i] == key {
			return i, true
		}
		if s.clock-s.used[i] > s.clock-s.used[at] || s.keys[i] == 0 && s.keys[at] != 0 {
			at = i
		}
	}
	return at, false
}

// mixed is a position's key under a version; never 0.
func mixed(key, version uint64) uint64 {
	key ^= version * 0x9e3779b97f4a7c15
	key = (key ^ key>>32) * 0xd6e8feb86659fd93
	return max(1, key^key>>32)
}

// Get copies what is known of a position, and returns whether anything is.
func (c *Cache) Get(key, version uint64, logits []float32) (value float32, ok bool) {
	key = mixed(key, version)
	s := &c.shards[key%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.find(key)
	if !ok {
		return 0, false
	}
	s.clock++
	s.used[at] = s.clock
	copy(logits[:c.actions], s.logits[int(at)*c.actions:])
	return s.values[at], true
}

// Put stores an answer; nil logits are equal ones.
func (c *Cache) Put(key, version uint64, logits []float32, value float32) {
	key = mixed(key, version)
	s := &c.shards[key%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := s.find(key)
	s.clock++
	s.keys[at], s.used[at], s.values[at] = key, s.clock, value
	row := s.logits[int(at)*c.actions : (int(at)+1)*c.actions]
	clear(row)
	copy(row, logits)
}
