package search

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/fault"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// Errors of a search.
var (
	ErrConfig    = errors.New("search: bad setting")
	ErrEvaluator = errors.New("search: bad answer of the evaluator") // names the row
	ErrOrder     = errors.New("search: calls out of order")
	ErrClosed    = errors.New("search: closed")
)

// Streams of a row's random numbers.
const (
	streamDirichlet = iota
	streamRootGumbel
	streamActionGumbel
	streamLeaf
	streamChance
)

func rowSeed(seed uint64, row int) uint64 { return rng.Derive(seed, uint64(row)) }

// trees keeps the memory of finished trees for the next search.
var trees = sync.Pool{New: func() any { return &tree.Tree{} }}

// Search is a batch of trees over the states of a store, for a caller that evaluates by himself. Not
// safe for concurrent use. Close it to give its states back.
type Search struct {
	cfg     Config
	params  *tree.Params
	env     *envs.Env
	block   *statestore.Block
	roots   *Roots
	needs   evaluator.Needs
	trees   []*tree.Tree // of the rows
	all     []*tree.Tree // and those of larger groups of rows before
	actions int
	stride  int // slots of a tree

	active []int32 // rows that aren't done
	keyed  bool    // leaves need the keys of their states
	fresh  []bool  // [B] the root waits for its evaluation
	round  uint64  // how often Advance was called: each search draws its own noise
	errs   []error // [B] why a row was given up
	turns  []int32 // [B * stride] the player to move at each node
	stats  Stats
	model  uint64 // version of the evaluator's weights, 0 if it has none

	// refills says that a row whose leaf needs no evaluation (the game ended there, it is proven, the cache has
	// it) goes on with its next simulation at once, so that it has a state in the batch like the others. That
	// changes no result, since rows don't depend on each other. With several leaves a row and step it must
	// wait for the others of its own.
	refills bool

	leaves   leaves
	mask     []bool // memory of openRoots
	busy     []bool // memory of Finished
	waits    bool   // a root waits for its evaluation
	ended    bool   // a row may be done
	waiting  bool   // Select was called, Expand wasn't
	ownRoots bool   // roots are a copy (Replace)
	closed   bool
}

// leaves is the memory of a step. The roots that wait for an evaluation come first, then the leaves,
// which the simulator must step to.
type leaves struct {
	row      []int32
	leaf     []tree.Leaf
	slot     []int32
	roots    int     // how many of these are roots
	parent   []int32 // of the leaves alone, as the next four: slots
	action   []int32
	outcome  []envs.Outcome
	turn     []int32
	keys     []uint64 // of roots and leaves; only if Search.keyed
	found    found    // only with a cache
	chance   chance   // only where there is chance
	discount []float32
	order    []int32 // which of all are to be evaluated
	again    []int32 // rows that need no evaluation in this step yet (Search.refills)
	batch    evaluator.Batch
	out      evaluator.Output
	eval     tree.Evaluation // of one leaf at a time
}

// Stats counts what a search did.
type Stats struct {
	Simulations int // done
	Evaluations int // states sent to the evaluator
	Batches     int // calls of the evaluator
	Room        int // states that these batches had room for: every row's leaves
	CacheHits   int // answers that the cache had, or another row of the same batch asked for
	Proven      int // rows whose root is proven (Solve)
	MaxDepth    int // of the deepest leaf
	Pruned      int // nodes forgotten (MaxNodes, MaxBytes)
}

// Fill is how full the evaluator's batches were, 0 to 1: less where rows end before others.
func (s *Stats) Fill() float64 {
	if s.Room == 0 {
		return 0
	}
	return float64(s.Evaluations) / float64(s.Room)
}

// New begins a search. needs says what Leaves must hold.
func New(store *statestore.Store, roots *Roots, cfg Config, needs evaluator.Needs) (*Search, error) {
	params, err := check(store, roots, &cfg)
	if err != nil {
		return nil, err
	}
	return begin(store, roots, &cfg, params, needs)
}

func check(store *statestore.Store, roots *Roots, cfg *Config) (*tree.Params, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	spec := store.Env().Spec()
	cfg.Outcomes = spec.NumOutcomes
	switch {
	case spec.NumActions > tree.MaxActions || spec.NumOutcomes > tree.MaxActions:
		return nil, fmt.Errorf("%w: %s has %d actions and %d outcomes; want at most %d", ErrConfig, spec.ID,
			spec.NumActions, spec.NumOutcomes, tree.MaxActions)
	case cfg.Cache != nil && cfg.Cache.Actions() != spec.NumActions:
		return nil, fmt.Errorf("%w: a cache for %d actions; want %d, those of %s", ErrConfig, cfg.Cache.Actions(),
			spec.NumActions, spec.ID)
	case cfg.Solve && (spec.NumPlayers != 2 || cfg.Outcomes > 0):
		return nil, fmt.Errorf("%w: solve=true; %s has %d player(s) and %d outcomes of chance; want 2 and 0", ErrConfig,
			spec.ID, spec.NumPlayers, cfg.Outcomes)
	case cfg.Policy == tree.Stochastic && cfg.Outcomes == 0:
		return nil, fmt.Errorf("%w: policy=stochastic; want another one: %s has no chance", ErrConfig, spec.ID)
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.LeavesPerStep = min(cfg.LeavesPerStep, max(1, cfg.NumSimulations)) // more there never are
	if err := cfg.limit(store.Env()); err != nil {
		return nil, err
	}
	params, err := tree.NewParams(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return params, roots.validate(spec.NumActions, cfg.NumSimulations)
}

// begin makes a search and starts it.
func begin(
	store *statestore.Store, roots *Roots, cfg *Config, params *tree.Params, needs evaluator.Needs,
) (*Search, error) {
	n := len(roots.States)
	s := &Search{
		cfg: *cfg, params: params, env: store.Env(), needs: needs,
		actions: store.Env().Spec().NumActions, stride: cfg.Nodes(),
		trees: make([]*tree.Tree, n), errs: make([]error, n), fresh: make([]bool, n),
		keyed: cfg.Solve || cfg.Cache != nil,
	}
	if n > 0 && s.stride > statestore.MaxStatesLimit/n { // before it overflows
		return nil, fmt.Errorf("%w: %d rows of %d nodes; want %d in all at most", statestore.ErrBudget, n, s.stride,
			statestore.MaxStatesLimit)
	}
	var err error
	if s.block, err = store.Block(n*s.stride + 1); err != nil {
		return nil, err
	}
	s.turns = make([]int32, n*s.stride)
	for i := range s.trees {
		s.trees[i] = trees.Get().(*tree.Tree)
	}
	s.all = s.trees
	s.refills = cfg.LeavesPerStep == 1 && !needs.Instant
	s.leaves.reserve(n*cfg.LeavesPerStep, s.refills, s.env, needs, cfg.Cache != nil)
	if err := s.start(roots); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start begins the search of other roots, not more than at first, in the same memory.
func (s *Search) start(roots *Roots) error {
	s.roots, s.ownRoots, s.waiting, s.round, s.stats = roots, false, false, 0, Stats{}
	s.waits, s.ended = false, false
	s.trees = s.all[:len(roots.States)]
	s.active = s.active[:0]
	slots, rows := s.leaves.slot[:0], s.leaves.row[:0]
	for i := range s.trees {
		slots, rows = append(slots, int32(i*s.stride)), append(rows, int32(i))
		s.trees[i].Reset(s.params, s.actions)
		s.errs[i], s.fresh[i] = nil, false
	}
	if err := s.block.Fill(slots, roots.States); err != nil {
		return err
	}
	s.openRoots(rows, slots)
	return nil
}

// openRoots sets up rows whose root states are new: a root that has ended is done, others wait for
// their evaluation.
func (s *Search) openRoots(rows, slots []int32) {
	a := s.block.Arena
	s.mask = fit(s.mask, len(slots)*s.actions)
	mask, turn := s.mask, fit(s.leaves.turn, len(slots))
	a.Mask(slots, mask)
	a.ToPlay(slots, turn)
	for i, slot := range slots {
		row := rows[i]
		s.turns[slot] = turn[i]
		if slices.Contains(mask[i*s.actions:(i+1)*s.actions], true) {
			s.active = append(s.active, row)
			s.fresh[row], s.waits = true, true
			continue
		}
		s.trees[row].SetRoot(&tree.RootInput{Terminal: true})
	}
}

// fit returns a slice of length n, reusing memory.
func fit[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// refillRoom is how many leaves a step has room for where rows refill, in batches.
const refillRoom = 4

// reserve makes room for batches of n leaves.
func (l *leaves) reserve(n int, refills bool, env *envs.Env, needs evaluator.Needs, cache bool) {
	spec := env.Spec()
	room := n
	if refills {
		room *= refillRoom
		l.again = make([]int32, 0, n)
	}
	l.row, l.leaf = make([]int32, 0, room), make([]tree.Leaf, 0, room)
	l.parent, l.slot, l.action = make([]int32, 0, room), make([]int32, 0, room), make([]int32, 0, room)
	l.outcome, l.turn, l.discount = make([]envs.Outcome, room), make([]int32, room), make([]float32, room)
	l.order, l.keys = make([]int32, 0, n), make([]uint64, room)
	l.batch = evaluator.Batch{Spec: spec, Slots: make([]int32, n)}
	if needs.Obs {
		l.batch.Obs = envs.NewArrays(spec.Obs, n)
	}
	if env.Capabilities().Masks {
		l.batch.Legal = make([]bool, n*spec.NumActions)
	}
	if cache {
		l.found.reserve(n, spec.NumActions)
	}
	if spec.NumOutcomes > 0 {
		l.chance.reserve(room, spec.NumOutcomes)
		l.batch.Chance = make([]bool, n)
	}
	if needs.States {
		l.batch.Seeds = make([]uint64, n)
	}
	l.out = evaluator.Output{
		Logits: make([]float32, n*spec.NumActions), Value: make([]float32, n),
	}
}

// Close gives the states and the memory of the trees back. A second call does nothing.
func (s *Search) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.block.Release()
	for _, t := range s.all {
		trees.Put(t)
	}
	s.trees, s.all = nil, nil
}

// Rows returns the number of rows.
func (s *Search) Rows() int { return len(s.roots.States) }

// Shape returns how many nodes a tree has room for, and how many actions, or outcomes if those are more, a
// node has: N and A of tree.Export.
func (s *Search) Shape() (nodes, width int) { return s.stride, max(s.actions, s.cfg.Outcomes) }

// Done says that every row is done.
func (s *Search) Done() bool {
	s.dropDone()
	return len(s.active) == 0
}

// Err returns the first row's error, nil if no row was given up.
func (s *Search) Err() error { return s.errFrom(0) }

// errFrom is Err where the first row is called row0.
func (s *Search) errFrom(row0 int) error {
	for row, err := range s.errs {
		if err != nil {
			return fmt.Errorf("%w: %w: %w", ErrEvaluator, fault.RowError(row0+row), err)
		}
	}
	return nil
}

// Stats returns what was done so far.
func (s *Search) Stats() Stats {
	out := s.stats
	for _, t := range s.trees {
		out.Simulations += t.Simulations()
		out.MaxDepth = max(out.MaxDepth, t.Depth())
		if t.Proven() {
			out.Proven++
		}
		out.Pruned += t.Pruned()
	}
	return out
}

// Tree returns a row's tree, valid until Close. Read-only.
func (s *Search) Tree(row int) *tree.Tree { return s.trees[row] }
