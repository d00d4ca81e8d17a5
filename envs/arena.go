package envs

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrOtherEnv is returned when states of one environment are given to another.
var ErrOtherEnv = errors.New("envs: states of another environment")

// Arena holds the states of one environment in numbered slots. It knows nothing of lifetimes: who
// owns a slot, and when it is free, is its owner's business (package statestore).
//
// Every method takes a whole batch and works in the order given; a panic of the rules in it is
// raised again as a [*RowPanicError], which says how far it came. Methods may run at the same time
// as long as no slot is written by one and used by another; Grow may run at the same time as
// anything but Grow. Slots must be below Cap: they come from the arena's owner, not from users.
type Arena interface {
	// Env returns the environment's description.
	Spec() *Spec
	// Cap returns the number of slots.
	Cap() int
	// Grow makes room for at least slots states; slots keep their places in memory.
	Grow(slots int)

	// Reset starts an episode in each slot. envs, the index of each environment in its pool, may be
	// nil: 0, 1, 2, ...
	Reset(slots []int32, envs []int32, seeds []uint64)
	// Restart starts the next episode in each slot, going on with the state's own random stream
	// where the rules do that, else with a reset from the seed.
	Restart(slots []int32, envs []int32, seeds []uint64)
	// Copy clones states from slots of an arena of the same environment, which may be this one.
	Copy(dst []int32, src Arena, from []int32) error

	// Check returns the first i whose action is not legal in slots[i], -1 if none is. In a state
	// that has ended every action in range passes, and everywhere with Spec.AnyAction.
	Check(slots, actions []int32) int
	// Step clones parents[i] to children[i] and applies actions[i] there. A parent may occur often;
	// parents[i] may be children[i]. Actions must be legal. The outcome goes to out[i].
	Step(parents, children, actions []int32, out []Outcome)

	// Decide, Chances and Happen are the two halves of a step where there is chance (Spec.NumOutcomes):
	// Decide clones parents[i] to children[i] and applies the action alone; Chances writes the
	// probabilities of slots[i]'s outcomes to chances[i*NumOutcomes:]; Happen clones and applies an
	// outcome.
	Decide(parents, children, actions []int32, out []Outcome)
	Chances(slots []int32, chances []float32)
	Happen(parents, children, outcomes []int32, out []Outcome)

	// Observe writes the observation of slots[i] to row row0+i of each array.
	Observe(slots []int32, obs []Array, row0 int)
	// Mask writes the legal actions of slots[i] to mask[i*A : (i+1)*A].
	Mask(slots []int32, mask []bool)
	// ToPlay writes the player to move.
	ToPlay(slots []int32, out []int32)
	// Hash writes the keys of the states ([Hasher]).
	Hash(slots []int32, keys []uint64)
	// Discount writes the discounts of the steps that led to the slots. Only with
	// Capabilities.Discounts.
	Discount(slots []int32, out []float32)

	// ConditionalMask writes row i of mask, width entries: which values of the action component after
	// slots[i]'s prefix some legal action completes; false beyond the component's size. Only with
	// Spec.Factorization, after Factorization.Check.
	ConditionalMask(slots []int32, prefixes *Prefixes, mask []bool, width int)
	// Info writes the arrays of Spec.Info, as Observe does the observation.
	Info(slots []int32, info []Array, row0 int)
	// Rewards writes what the steps that led to the slots gave to each player, to rewards[i*NumPlayers:].
	// movers are the players who moved, and out what came of it.
	Rewards(slots, movers []int32, out []Outcome, rewards []float32)
	// FrameSize returns the size of a picture in pixels; Paint draws slots[i] to the i-th picture of
	// frames, bytes of red, green and blue by rows from the top left.
	FrameSize() (width, height int)
	Paint(slots []int32, frames []uint8)

	// Pick writes legal action number floor(random[i] * n / 2^64) of the n that slots[i] has, in rising order;
	// -1 if it has none.
	Pick(slots []int32, random []uint64, actions []int32)
	// Playout plays random legal actions from copies of the states to the end, for at most maxSteps
	// steps, and writes the sum of the rewards from the view of the player to move at the start.
	Playout(slots []int32, seeds []uint64, maxSteps int, value []float32)

	// AppendState appends the portable bytes of a state.
	AppendState(dst []byte, slot int32) []byte
	// DecodeState makes a slot the state that the bytes describe. On an error, which wraps
	// [ErrBadState], the slot's contents are undefined.
	DecodeState(slot int32, src []byte) error

	// Export copies the states in slots to rows of raw memory, stride bytes apart; Import copies them back.
	// The bytes are those of this process: they are neither portable nor checked. Only with
	// Capabilities.Plain; a row has Env.StateSize bytes.
	Export(slots []int32, raw []byte, stride int)
	Import(slots []int32, raw []byte, stride int)

	// Text and ActionName are the renderer's; a numeric form where the rules have none.
	Text(slot int32) string
	ActionName(slot, action int32) string
	// BestActions is the solver's; only with Capabilities.Solves.
	BestActions(slot int32, best []bool)
}

// RowPanicError is a panic of the rules, in row Row of a batch: earlier rows are done, later ones are
// not. With All it was in rules that take the whole batch at once, and no row can be trusted.
type RowPanicError struct {
	Row   int
	All   bool
	Value any
	Stack []byte
}

func (p *RowPanicError) Error() string { return fmt.Sprintf("panic in row %d: %v", p.Row, p.Value) }

// blame raises a panic again with its row. Use it deferred.
func blame(row *int) {
	if v := recover(); v != nil {
		panic(&RowPanicError{max(*row, 0), *row == allRows, v, debug.Stack()})
	}
}

// allRows is what blame gets for a row in code that takes a whole batch.
const allRows = -1

// slabBytes is about how much memory one slab of states takes.
const slabBytes = 1 << 16

// arena is the Arena of a concrete state type: slabs of S that never move.
type arena[S any] struct {
	k     *kernel[S]
	shift uint  // slot >> shift is the slab
	mask  int32 // slot & mask is the place in it
	slabs atomic.Pointer[[][]S]
	tmp   sync.Pool // *scratch[S]
}

// scratch is memory of one call.
type scratch[S any] struct {
	slots  []int32
	states []*S // those of slots
	legal  []bool
	chance []float32
	bytes  []byte
	state  S
}

func newArena[S any](k *kernel[S], slots int) *arena[S] {
	perSlab := slabBytes / max(k.stateSize, 1)
	a := &arena[S]{k: k, shift: uint(bits.Len(uint(max(perSlab, 1) - 1)))}
	a.mask = 1<<a.shift - 1
	a.slabs.Store(&[][]S{})
	a.tmp.New = func() any {
		return &scratch[S]{
			legal: make([]bool, k.spec.NumActions), chance: make([]float32, k.spec.NumOutcomes),
		}
	}
	a.Grow(slots)
	return a
}

func (a *arena[S]) Spec() *Spec { return &a.k.spec }
func (a *arena[S]) Cap() int    { return len(*a.slabs.Load()) << a.shift }

func (a *arena[S]) Grow(slots int) {
	old := *a.slabs.Load()
	slabs := slices.Clip(old)
	for len(slabs)<<a.shift < slots {
		slabs = append(slabs, make([]S, 1<<a.shift))
	}
	a.slabs.Store(&slabs)
}

// at returns a slot's state. The slabs are passed in so that a loop loads the pointer once.
func (a *arena[S]) at(slabs [][]S, slot int32) *S {
	return &slabs[slot>>a.shift][slot&a.mask]
}

func (a *arena[S]) Reset(slots, envs []int32, seeds []uint64) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		a.reset(a.at(slabs, slot), envIndex(envs, i), seeds[i])
	}
}

func (a *arena[S]) Restart(slots, envs []int32, seeds []uint64) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		s := a.at(slabs, slot)
		if a.k.restart != nil {
			a.k.restart.Restart(s)
		} else {
			a.reset(s, envIndex(envs, i), seeds[i])
		}
	}
}

func (a *arena[S]) reset(s *S, env int, seed uint64) {
	if a.k.start != nil {
		a.k.start.Start(s, env, seed)
	} else {
		a.k.rules.Reset(s, seed)
	}
}

func envIndex(envs []int32, i int) int {
	if envs == nil {
		return i
	}
	return int(envs[i])
}

func (a *arena[S]) Copy(dst []int32, src Arena, from []int32) error {
	b, ok := src.(*arena[S])
	if !ok || b.k.layout.print != a.k.layout.print || b.k.spec.ID != a.k.spec.ID {
		return fmt.Errorf("%w: %s into %s", ErrOtherEnv, src.Spec().ID, a.k.spec.ID)
	}
	to, of := *a.slabs.Load(), *b.slabs.Load()
	for i, slot := range dst {
		a.clone(a.at(to, slot), b.at(of, from[i]))
	}
	return nil
}

func (a *arena[S]) clone(dst, src *S) {
	if dst == src {
		return
	}
	if a.k.clone != nil {
		a.k.clone.Clone(dst, src)
		return
	}
	*dst = *src
}

func (a *arena[S]) Check(slots, actions []int32) int {
	if a.k.mask == nil || a.k.spec.AllLegal || a.k.spec.AnyAction {
		return -1
	}
	sc := a.tmp.Get().(*scratch[S])
	defer a.tmp.Put(sc)
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		if a.k.legal != nil && a.k.legal.Legal(a.at(slabs, slot), actions[i]) {
			continue
		}
		a.k.mask.Mask(a.at(slabs, slot), sc.legal)
		if !sc.legal[actions[i]] && slices.Contains(sc.legal, true) {
			return i
		}
	}
	return -1
}

func (a *arena[S]) Step(parents, children, actions []int32, out []Outcome) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	if a.k.batch != nil {
		row = allRows
		a.stepBatch(slabs, parents, children, actions, out)
		return
	}
	for i, child := range children {
		row = i
		s := a.at(slabs, child)
		a.clone(s, a.at(slabs, parents[i]))
		out[i] = a.k.rules.Step(s, actions[i])
	}
}

func (a *arena[S]) stepBatch(slabs [][]S, parents, children, actions []int32, out []Outcome) {
	sc := a.tmp.Get().(*scratch[S])
	defer a.tmp.Put(sc)
	states := a.gather(sc, slabs, children)
	if !slices.Equal(parents, children) {
		for i, s := range states {
			a.clone(s, a.at(slabs, parents[i]))
		}
	}
	a.k.batch.StepBatch(states, actions, out)
}

// gather returns the states in slots. Most often they are those of the call before: states don't move.
func (a *arena[S]) gather(sc *scratch[S], slabs [][]S, slots []int32) []*S {
	if slices.Equal(sc.slots, slots) {
		return sc.states
	}
	sc.slots, sc.states = append(sc.slots[:0], slots...), sc.states[:0]
	for _, slot := range slots {
		sc.states = append(sc.states, a.at(slabs, slot))
	}
	return sc.states
}

func (a *arena[S]) Observe(slots []int32, obs []Array, row0 int) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	if a.k.observe != nil {
		row = allRows
		sc := a.tmp.Get().(*scratch[S])
		defer a.tmp.Put(sc)
		a.k.observe.ObserveBatch(a.gather(sc, slabs, slots), obs, row0)
		return
	}
	for i, slot := range slots {
		row = i
		a.k.rules.Observe(a.at(slabs, slot), RowOf(obs, row0+i))
	}
}

func (a *arena[S]) Mask(slots []int32, mask []bool) {
	n := a.k.spec.NumActions
	if a.k.mask == nil {
		for i := range mask[:len(slots)*n] {
			mask[i] = true
		}
		return
	}
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		a.k.mask.Mask(a.at(slabs, slot), mask[i*n:(i+1)*n])
	}
}

func (a *arena[S]) ToPlay(slots []int32, out []int32) {
	if a.k.turn == nil {
		clear(out[:len(slots)])
		return
	}
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		out[i] = a.k.turn.ToPlay(a.at(slabs, slot))
	}
}

func (a *arena[S]) Discount(slots []int32, out []float32) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		out[i] = a.k.discount.Discount(a.at(slabs, slot))
	}
}

func (a *arena[S]) Info(slots []int32, info []Array, row0 int) {
	if a.k.inform == nil {
		return
	}
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	for i, slot := range slots {
		row = i
		a.k.inform.Info(a.at(slabs, slot), RowOf(info, row0+i))
	}
}

func (a *arena[S]) Rewards(slots, movers []int32, out []Outcome, rewards []float32) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	n := a.k.spec.NumPlayers
	for i, slot := range slots {
		row = i
		r := rewards[i*n : (i+1)*n]
		if a.k.reward != nil {
			a.k.reward.Rewards(a.at(slabs, slot), r)
			continue
		}
		for p := range r {
			r[p] = 0 - out[i].Reward // never -0
		}
		r[movers[i]] = out[i].Reward
	}
}

func (a *arena[S]) AppendState(dst []byte, slot int32) []byte {
	return a.k.appendState(dst, a.at(*a.slabs.Load(), slot))
}

func (a *arena[S]) DecodeState(slot int32, src []byte) error {
	return a.k.decodeState(a.at(*a.slabs.Load(), slot), src)
}

func (a *arena[S]) Text(slot int32) string {
	s := a.at(*a.slabs.Load(), slot)
	if a.k.render == nil {
		return fmt.Sprintf("%+v", *s)
	}
	return a.k.render.Text(s)
}

func (a *arena[S]) ActionName(slot, action int32) string {
	if a.k.render == nil {
		return fmt.Sprint(action)
	}
	return a.k.render.ActionName(a.at(*a.slabs.Load(), slot), action)
}

func (a *arena[S]) BestActions(slot int32, best []bool) {
	a.k.solve.BestActions(a.at(*a.slabs.Load(), slot), best)
}
