package envs

import (
	"fmt"
	"hash/crc32"
)

// Env is an environment with the type of its state erased. Make one with [Define], or with [Make]
// from the registry. Immutable and safe for concurrent use.
type Env struct {
	spec       Spec
	rules      any
	newArena   func(slots int) Arena
	stateSize  int
	symmetries []Symmetry
	caps       Capabilities
	keywords   Keywords
}

// Keywords returns the keywords that Make was given; the same ones make the same environment. Read-only.
func (e *Env) Keywords() Keywords { return e.keywords }

// Capabilities says which optional interfaces the rules have.
type Capabilities struct {
	Masks      bool // Masker
	Turns      bool // Turner
	Discounts  bool // Discounter
	Renders    bool // Renderer
	Solves     bool // Solver
	Hashes     bool // Hasher
	Restarts   bool // Restarter
	Batches    bool // BatchStepper
	Plain      bool // states without pointers: Import and Export work
	Symmetries int  // how many, without the identity
}

// Define checks rules and erases their state type. It fails if the specification is inconsistent,
// or if S has pointers but no Cloner and Codec.
func Define[S any](rules Rules[S]) (*Env, error) {
	k, err := newKernel(rules)
	if err != nil {
		return nil, err
	}
	e := &Env{
		spec:      k.spec,
		rules:     rules,
		newArena:  func(slots int) Arena { return newArena(k, slots) },
		stateSize: k.stateSize,
		caps: Capabilities{
			Masks: k.mask != nil, Turns: k.turn != nil, Discounts: k.discount != nil,
			Renders: k.render != nil, Solves: k.solve != nil,
			Hashes: k.hash != nil, Restarts: k.restart != nil, Batches: k.batch != nil,
			Plain: k.plain,
		},
	}
	if s, ok := any(rules).(Symmetrer); ok {
		e.symmetries = s.Symmetries()
		e.caps.Symmetries = len(e.symmetries)
	}
	return e, nil
}

// Spec returns the environment's description. Treat its slices as read-only.
func (e *Env) Spec() *Spec { return &e.spec }

// Rules returns the value passed to Define.
func (e *Env) Rules() any { return e.rules }

// Capabilities says which optional interfaces the rules have.
func (e *Env) Capabilities() Capabilities { return e.caps }

// Symmetries lists the board symmetries, without the identity. Read-only.
func (e *Env) Symmetries() []Symmetry { return e.symmetries }

// StateSize returns the bytes of one state in memory, without what its pointers refer to.
func (e *Env) StateSize() int { return e.stateSize }

// NewArena returns an arena with room for at least slots states, all zero.
func (e *Env) NewArena(slots int) Arena { return e.newArena(slots) }

// kernel holds the rules and their optional interfaces, found once.
type kernel[S any] struct {
	rules     Rules[S]
	spec      Spec
	stateSize int
	layout    layout
	plain     bool

	mask     Masker[S]
	legal    Legaler[S]
	turn     Turner[S]
	restart  Restarter[S]
	start    Starter[S]
	discount Discounter[S]
	render   Renderer[S]
	validate Validator[S]
	clone    Cloner[S]
	codec    Codec[S]
	batch    BatchStepper[S]
	observe  BatchObserver[S]
	solve    Solver[S]
	inform   Informer[S]
	reward   Rewarder[S]
	paint    Painter[S]
	hash     Hasher[S]
	picker   Picker[S]
	chance   Chancer[S] // only if Spec.NumOutcomes

	conditional ConditionalMasker[S]
}

func newKernel[S any](rules Rules[S]) (*kernel[S], error) {
	k := &kernel[S]{rules: rules, spec: rules.Spec()}
	if err := k.spec.validate(); err != nil {
		return nil, err
	}
	r := any(rules)
	k.mask, _ = r.(Masker[S])
	k.legal, _ = r.(Legaler[S])
	k.turn, _ = r.(Turner[S])
	k.restart, _ = r.(Restarter[S])
	k.start, _ = r.(Starter[S])
	k.discount, _ = r.(Discounter[S])
	k.render, _ = r.(Renderer[S])
	k.validate, _ = r.(Validator[S])
	k.clone, _ = r.(Cloner[S])
	k.codec, _ = r.(Codec[S])
	k.batch, _ = r.(BatchStepper[S])
	k.observe, _ = r.(BatchObserver[S])
	k.solve, _ = r.(Solver[S])
	k.hash, _ = r.(Hasher[S])
	k.picker, _ = r.(Picker[S])
	k.inform, _ = r.(Informer[S])
	k.reward, _ = r.(Rewarder[S])
	k.paint, _ = r.(Painter[S])
	k.conditional, _ = r.(ConditionalMasker[S])
	if k.spec.NumOutcomes > 0 {
		k.chance, _ = r.(Chancer[S])
	}
	if k.spec.NumPlayers > 1 && k.turn == nil {
		return nil, fmt.Errorf("envs: %s: %d players but no ToPlay method", k.spec.ID,
			k.spec.NumPlayers)
	}
	if k.spec.NumPlayers > 2 && k.reward == nil {
		return nil, fmt.Errorf("envs: %s: %d players but no Rewards method", k.spec.ID, k.spec.NumPlayers)
	}
	if (len(k.spec.Info) > 0) != (k.inform != nil) {
		return nil, fmt.Errorf("envs: %s: Spec.Info and the method Info must come together", k.spec.ID)
	}
	if k.spec.NumOutcomes != 0 && k.chance == nil {
		return nil, fmt.Errorf("envs: %s: Spec.NumOutcomes is %d; want 0, or the methods of Chancer", k.spec.ID,
			k.spec.NumOutcomes)
	}
	lay, plain := layoutOf[S]()
	k.layout, k.stateSize, k.plain = lay, lay.size, plain && k.clone == nil
	k.layout.print ^= crc32.ChecksumIEEE([]byte(k.spec.Keywords))
	if !plain && (k.clone == nil || k.codec == nil) {
		return nil, fmt.Errorf("envs: %s: the state type %T has pointers; it needs Clone, Append "+
			"and Decode methods on its rules", k.spec.ID, *new(S))
	}
	return k, nil
}
