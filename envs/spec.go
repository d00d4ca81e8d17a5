package envs

import "fmt"

// DType is the element type of an observation array.
type DType uint8

// The element types, named as NumPy names them.
const (
	Float32 DType = iota + 1
	Float64
	Int32
	Uint8
	Bool
)

// String returns NumPy's name of the type.
func (d DType) String() string {
	switch d {
	case Float32:
		return "float32"
	case Float64:
		return "float64"
	case Int32:
		return "int32"
	case Uint8:
		return "uint8"
	case Bool:
		return "bool"
	default:
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
}

// Size returns the bytes of one element, 0 for an unknown type.
func (d DType) Size() int {
	switch d {
	case Float64:
		return 8
	case Float32, Int32:
		return 4
	case Uint8, Bool:
		return 1
	default:
		return 0
	}
}

// ArraySpec describes one observation array of a single state.
type ArraySpec struct {
	Name  string
	DType DType
	Shape []int // without the batch axis; empty for a scalar

	// Low and High bound every element, both inclusive. For an unbounded element use infinities.
	// A slice of length 1 holds for all elements, else one entry an element.
	Low, High []float64
}

// Len returns the number of elements of one state's row.
func (a ArraySpec) Len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// Bounds returns the bounds of element i.
func (a ArraySpec) Bounds(i int) (low, high float64) {
	pick := func(x []float64) float64 {
		if len(x) == 1 {
			return x[0]
		}
		return x[i]
	}
	return pick(a.Low), pick(a.High)
}

// Spec describes an environment, with its keywords applied. It never changes.
type Spec struct {
	ID         string // Gymnasium style: "ConnectFour-v0"
	Version    int    // raised whenever the behaviour or the state's bytes change
	Keywords   string // the keywords in force, e.g. "rows=6 cols=7 connect=4"
	Obs        []ArraySpec
	NumActions int // actions are 0..NumActions-1
	NumPlayers int // players are 0..NumPlayers-1

	// Factorization splits the actions into components; the zero value doesn't.
	Factorization Factorization

	// AllLegal says that every action is legal until the episode ends: a [Masker] then only tells whether it
	// has, and a mask is no part of the observation.
	AllLegal bool

	// AnyAction says that Step takes every action in range, whatever the mask says, as rules with a penalty
	// for illegal moves do. Without it an illegal action is an error, and nothing is stepped.
	AnyAction bool

	// Info are further arrays beside the observation, not meant for a network: an [Informer] fills them.
	Info []ArraySpec

	// NumOutcomes is how many outcomes a Chancer's draws have at most; 0 where the rules draw nothing that
	// search must plan for.
	NumOutcomes int

	// RewardLow and RewardHigh bound the reward of one step. For a game whose only reward is the
	// result they also bound every value.
	RewardLow, RewardHigh float32

	// MaxEpisodeSteps is the time limit in steps; 0 means none. The rules enforce it themselves.
	MaxEpisodeSteps int
}

// validate reports the first fault of a specification.
func (s *Spec) validate() error {
	switch {
	case s.ID == "":
		return fmt.Errorf("envs: Spec.ID is empty; want a name like %q", "TicTacToe-v0")
	case s.NumActions < 1:
		return fmt.Errorf("envs: %s: Spec.NumActions is %d; want at least 1", s.ID, s.NumActions)
	case s.NumPlayers < 1:
		return fmt.Errorf("envs: %s: Spec.NumPlayers is %d; want at least 1", s.ID, s.NumPlayers)
	case s.RewardLow > s.RewardHigh:
		return fmt.Errorf("envs: %s: Spec.RewardLow %g is above RewardHigh %g",
			s.ID, s.RewardLow, s.RewardHigh)
	case len(s.Obs) == 0:
		return fmt.Errorf("envs: %s: Spec.Obs is empty; want at least one array", s.ID)
	}
	if err := s.Factorization.validate(s.NumActions); err != nil {
		return fmt.Errorf("envs: %s: %w", s.ID, err)
	}
	for _, a := range s.Obs {
		if err := a.validate(); err != nil {
			return fmt.Errorf("envs: %s: observation %q: %w", s.ID, a.Name, err)
		}
	}
	for _, a := range s.Info {
		if err := a.validate(); err != nil {
			return fmt.Errorf("envs: %s: info %q: %w", s.ID, a.Name, err)
		}
	}
	return nil
}

func (a *ArraySpec) validate() error {
	n := a.Len()
	switch {
	case a.Name == "":
		return fmt.Errorf("no name")
	case a.DType.Size() == 0:
		return fmt.Errorf("unknown dtype %v", a.DType)
	case n < 1:
		return fmt.Errorf("shape %v has no element", a.Shape)
	case len(a.Low) != 1 && len(a.Low) != n, len(a.High) != 1 && len(a.High) != n:
		return fmt.Errorf("%d low and %d high bounds; want 1 or %d of each",
			len(a.Low), len(a.High), n)
	}
	return nil
}
