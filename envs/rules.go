package envs

import "image"

// Rules are an environment's rules over a state S. S should be plain data: no pointers, maps or
// slices. Then copying S is cloning the state, and its bytes come for free. A simulator that needs
// pointers implements [Cloner] and [Codec] as well.
//
// The rules themselves hold only what never changes (board size, keywords): one value serves all
// threads at once, each on states of its own. A method must not keep its arguments.
type Rules[S any] interface {
	// Spec describes the environment; called once, by Define.
	Spec() Spec

	// Reset makes s the first state of an episode. Everything random later on must come from this
	// seed, kept inside s. s may hold an older state.
	Reset(s *S, seed uint64)

	// Step applies an action in 0..NumActions-1 to s. The caller has checked that it is legal, unless
	// Spec.AnyAction.
	// On a state that has ended, Step changes nothing and returns the flags it ended with and
	// reward 0, whatever the action.
	Step(s *S, action int32) Outcome

	// Observe fills this state's row of every observation array, from the mover's view.
	Observe(s *S, row Row)
}

// Outcome is what a step brings.
type Outcome struct {
	Reward     float32 // to the player who moved
	Terminated bool    // the episode ended by its rules: no value beyond
	Truncated  bool    // the time limit cut it off; both may be true
}

// Masker is for rules whose legal actions depend on the state. Without it every action is legal.
type Masker[S any] interface {
	// Mask writes legal for each of the NumActions actions. A state that has ended has none; any
	// other state has at least one.
	Mask(s *S, legal []bool)
}

// Legaler is for rules that know faster than from the mask whether one action is legal.
type Legaler[S any] interface {
	// Legal says what Mask says of an action in range.
	Legal(s *S, action int32) bool
}

// ConditionalMasker is for rules with action components (Spec.Factorization) that know faster than from
// the mask of all actions which values of the next component are possible.
type ConditionalMasker[S any] interface {
	// ConditionalMask writes, for each value v of the component after prefix, whether some legal action
	// begins with prefix and v. It must say what [Factorization.Conditional] says.
	ConditionalMask(s *S, prefix []int32, out []bool)
}

// Informer is for rules with Spec.Info.
type Informer[S any] interface {
	// Info fills this state's row of every array of Spec.Info.
	Info(s *S, row Row)
}

// Rewarder is for games of several players that aren't zero-sum, or that have more than two players.
// Without it the other player of a game of two gets the opposite of the mover's reward.
type Rewarder[S any] interface {
	// Rewards writes what the step that led to s gave to each of the NumPlayers players.
	Rewards(s *S, rewards []float32)
}

// Painter draws a state as a picture. Without it the picture shows the renderer's text.
type Painter[S any] interface {
	// FrameSize returns the size of every picture in pixels.
	FrameSize() (width, height int)
	// Paint draws on a white frame of that size; package envs/canvas has lines, discs and text.
	Paint(s *S, frame *image.RGBA)
}

// Turner is for rules with several players. Without it player 0 always moves.
type Turner[S any] interface {
	// ToPlay returns the player to move, 0..NumPlayers-1; in a state that has ended, the player
	// whose turn it would be.
	ToPlay(s *S) int32
}

// Restarter is for rules whose next episode goes on with the state's own random stream, as
// Gymnasium's environments do. Without it an autoreset calls Reset with a seed derived from the
// environment's seed and its episode number.
type Restarter[S any] interface {
	Restart(s *S)
}

// Chancer is for rules where nature draws after an action, one of Spec.NumOutcomes outcomes. A step is
// then an action, which makes an afterstate, and an outcome: search plans with these two, so that it
// doesn't know what will be drawn. Step does both, and draws from the state's own random stream. Observe
// and ToPlay are asked of afterstates too; the player to move there is the one whose action it was.
type Chancer[S any] interface {
	// Decide applies the action alone. It may end the episode by the rules, never by a time limit.
	Decide(s *S, action int32) Outcome
	// Chances writes the probability of each outcome of an afterstate; they sum to 1. In any other state
	// nature has nothing to draw, and all are 0.
	Chances(s *S, chances []float32)
	// Happen applies an outcome to an afterstate. The reward is to the player whose action it was.
	Happen(s *S, outcome int32) Outcome
}

// Starter is for rules whose first state depends on the environment's index in its pool, beside the
// seed. It is called in place of Reset.
type Starter[S any] interface {
	Start(s *S, env int, seed uint64)
}

// Discounter is for rules that give the discount of each transition themselves. Without it search
// uses 0 into a terminal state, -1 where the mover changes, else its own setting.
type Discounter[S any] interface {
	// Discount returns the discount of the step that led to s.
	Discount(s *S) float32
}

// Hasher is for rules whose states are met again on other ways: the same key means the same position.
type Hasher[S any] interface {
	// Hash returns a key of everything that the future depends on, and that Observe shows: the player to
	// move, the history if rules or observation know it. Make it with [HashKey]: what is proven of a
	// state, and what an evaluator said of it, is taken for every state with the same key.
	Hash(s *S) uint64
}

// Picker is for rules that know a random legal action faster than from their mask: random playouts are
// then as fast as the rules.
type Picker[S any] interface {
	// Pick returns legal action number floor(r * n / 2^64) of the n legal ones in rising order; -1 if there
	// is none.
	Pick(s *S, r uint64) int32
}

// Symmetrer is for rules with board symmetries: transformations of a position under which the game
// stays the same.
type Symmetrer interface {
	// Symmetries lists all symmetries but the identity.
	Symmetries() []Symmetry
}

// Symmetry says where each element goes: element i of the transformed array is element Obs[k][i] of
// the original one. A nil entry of Obs leaves that array as it is.
type Symmetry struct {
	Name    string
	Obs     [][]int // [number of observation arrays][elements]
	Actions []int   // [NumActions]: action a after the symmetry is action Actions[a] before it
}

// Renderer shows a state to a person.
type Renderer[S any] interface {
	// Text draws the state in a few lines.
	Text(s *S) string
	// ActionName returns how people write an action in this state.
	ActionName(s *S, action int32) string
}

// Validator checks a state that was decoded from bytes, so that a damaged or forged blob can't make
// the rules index out of their tables.
type Validator[S any] interface {
	Validate(s *S) error
}

// Cloner is for states with pointers: Clone makes dst a copy of src that shares nothing mutable.
// dst may hold an older state, whose memory may be reused.
type Cloner[S any] interface {
	Clone(dst, src *S)
}

// Codec is for states with pointers: portable bytes.
type Codec[S any] interface {
	Append(dst []byte, s *S) []byte
	Decode(s *S, src []byte) error
}

// BatchStepper is for rules that step many states faster together than one by one.
type BatchStepper[S any] interface {
	// StepBatch does Step(states[i], actions[i]) for every i.
	StepBatch(states []*S, actions []int32, out []Outcome)
}

// BatchObserver is for rules that observe many states faster together than one by one.
type BatchObserver[S any] interface {
	// ObserveBatch fills rows row0, row0+1, ... of the observation arrays with the states'.
	ObserveBatch(states []*S, obs []Array, row0 int)
}

// Solver is for small games whose value is known: a reference to play and learn against.
type Solver[S any] interface {
	// BestActions writes best[a] = true for each action that keeps the value of s for the mover.
	BestActions(s *S, best []bool)
}
