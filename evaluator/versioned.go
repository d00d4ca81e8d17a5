package evaluator

import "github.com/azserve/azserve/envs"

// Pinner is an evaluator whose weights may change while it is in use. A search pins it at its start, so that
// all its states are judged by the same weights.
type Pinner interface {
	// Pin returns the evaluator as it is now, with the version of its weights: equal versions give equal
	// answers. Call release once, when it isn't needed any more.
	Pin() (ev Evaluator, version uint64, release func())
}

// Pin pins an evaluator if it can be pinned; others stay as they are, with version 0.
func Pin(ev Evaluator) (pinned Evaluator, version uint64, release func()) {
	if p, ok := ev.(Pinner); ok {
		return p.Pin()
	}
	return ev, 0, func() {}
}

// Under returns the version under which a search keeps the answers of an evaluator in a cache: that of the cache
// and that of the weights.
func (c *Cache) Under(weights uint64) uint64 {
	v := c.Version()
	if weights != 0 {
		v = envs.HashKey(v, weights)
	}
	return v
}
