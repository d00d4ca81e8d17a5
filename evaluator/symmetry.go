package evaluator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/internal/vecmath"
)

// SymmetryMode says how [Symmetry] uses the symmetries of a board.
type SymmetryMode string

// Modes.
const (
	// SymmetryRandom shows each position turned by one of the symmetries (or none), drawn by what it looks
	// like: the same position is always turned the same way, so that a cache may keep the answer.
	SymmetryRandom SymmetryMode = "random"
	// SymmetryAverage shows each position in every way and takes the mean of the probabilities and values.
	SymmetryAverage SymmetryMode = "average"
)

// ErrSymmetry is returned for an environment or an evaluator that has no use for symmetries.
var ErrSymmetry = errors.New("evaluator: no symmetries")

// Symmetry shows positions to an evaluator under the symmetries of the board and turns its policies back:
// a network's answers then don't depend, or depend less, on how the board lies.
type Symmetry struct {
	ev     Evaluator
	mode   SymmetryMode
	spec   *envs.Spec
	syms   []envs.Symmetry // number 0 is none
	memory *sync.Pool      // *turned
}

// turned is the memory of one Evaluate.
type turned struct {
	batch Batch
	out   Output
	which []int     // [rows] the symmetry of each row
	probs []float32 // [A]
}

// NewSymmetry wraps an evaluator of an environment that has symmetries (envs.Symmetrer), and that reads
// observations.
func NewSymmetry(ev Evaluator, env *envs.Env, mode SymmetryMode) (*Symmetry, error) {
	spec := env.Spec()
	switch {
	case mode != SymmetryRandom && mode != SymmetryAverage:
		return nil, fmt.Errorf("%w: mode %q; want %q or %q", ErrSymmetry, mode, SymmetryRandom, SymmetryAverage)
	case len(env.Symmetries()) == 0:
		return nil, fmt.Errorf("%w: %s has none", ErrSymmetry, spec.ID)
	case ev.Needs().States:
		return nil, fmt.Errorf("%w: the evaluator reads states, which can't be turned", ErrSymmetry)
	}
	s := &Symmetry{ev: ev, mode: mode, spec: spec, syms: append([]envs.Symmetry{{}}, env.Symmetries()...)}
	s.memory = &sync.Pool{New: func() any { return &turned{probs: make([]float32, spec.NumActions)} }}
	return s, nil
}

// Needs is the observations.
func (*Symmetry) Needs() Needs { return Needs{Obs: true} }

// Pin pins the evaluator.
func (s *Symmetry) Pin() (Evaluator, uint64, func()) {
	ev, version, release := Pin(s.ev)
	pinned := *s
	pinned.ev = ev
	return &pinned, version, release
}

// Evaluate turns, evaluates and turns back.
func (s *Symmetry) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	if in.N == 0 {
		return ctx.Err()
	}
	t := s.memory.Get().(*turned)
	defer s.memory.Put(t)
	each := 1
	if s.mode == SymmetryAverage {
		each = len(s.syms)
	}
	t.reserve(s.spec, in, in.N*each)
	for i := range in.N {
		for k := range each {
			row := i*each + k
			t.which[row] = k
			if s.mode == SymmetryRandom {
				t.which[row] = t.draw(in, i, len(s.syms))
			}
			t.turn(in, i, row, &s.syms[t.which[row]])
		}
	}
	if err := s.ev.Evaluate(ctx, &t.batch, &t.out); err != nil {
		return err
	}
	out.Uniform = t.out.Uniform
	for i := range in.N {
		s.answer(t, in, i, each, out)
	}
	return nil
}

// reserve makes room for n rows.
func (t *turned) reserve(spec *envs.Spec, in *Batch, n int) {
	b := &t.batch
	if len(t.which) < n {
		*b = Batch{Obs: envs.NewArrays(spec.Obs, n)}
		t.which = make([]int, n)
		t.out = Output{Logits: make([]float32, n*spec.NumActions), Value: make([]float32, n)}
	}
	b.N, b.Spec = n, spec
	b.Legal, b.Chance = nil, nil
	if in.Legal != nil {
		b.Legal = make([]bool, n*spec.NumActions)
	}
	if in.Chance != nil {
		b.Chance = make([]bool, n)
	}
	t.out.Uniform, t.out.Errors = false, nil
}

// draw picks a symmetry by the observation of row i.
func (t *turned) draw(in *Batch, i, count int) int {
	key := uint64(0)
	for k := range in.Obs {
		key = in.Obs[k].HashRow(i, key)
	}
	r := rng.New(key)
	return r.IntN(count)
}

// turn writes row i under a symmetry to a row of the batch.
func (t *turned) turn(in *Batch, i, row int, sym *envs.Symmetry) {
	for k := range in.Obs {
		var index []int
		if sym.Obs != nil {
			index = sym.Obs[k]
		}
		t.batch.Obs[k].TurnRow(row, &in.Obs[k], i, index)
	}
	if legal := in.legal(i); legal != nil {
		envs.Apply(sym.Actions, legal, t.batch.legal(row))
	}
	if in.Chance != nil {
		t.batch.Chance[row] = in.Chance[i]
	}
}

// answer gathers the answers of row i, turned back.
func (s *Symmetry) answer(t *turned, in *Batch, i, each int, out *Output) {
	a := s.spec.NumActions
	value := float32(0)
	for row := i * each; row < (i+1)*each; row++ {
		value += t.out.Value[row] / float32(each)
		if t.out.Errors != nil && t.out.Errors[row] != nil {
			out.Fail(i, in.N, t.out.Errors[row])
		}
	}
	out.Value[i] = value
	if t.out.Uniform {
		return
	}
	to := out.Logits[i*a : (i+1)*a]
	if each == 1 {
		turnBack(s.syms[t.which[i]].Actions, t.out.Logits[i*a:(i+1)*a], to)
		return
	}
	clear(to)
	for row := i * each; row < (i+1)*each; row++ {
		logits := t.out.Logits[row*a : (row+1)*a]
		softmax(logits, t.batch.legal(row), t.probs)
		for k, p := range t.probs {
			if from := s.syms[t.which[row]].Actions; from != nil {
				to[from[k]] += p / float32(each)
			} else {
				to[k] += p / float32(each)
			}
		}
	}
	for k, p := range to {
		to[k] = float32(math.Log(float64(p)))
	}
}

// turnBack undoes a symmetry: action a of the turned board is action actions[a] of the board itself.
func turnBack(actions []int, in, out []float32) {
	if actions == nil {
		copy(out, in)
		return
	}
	for a, v := range in {
		out[actions[a]] = v
	}
}

// softmax is over the legal actions; the others get 0.
func softmax(logits []float32, legal []bool, out []float32) {
	copy(out, logits)
	for a, ok := range legal {
		if !ok {
			out[a] = vecmath.NegInf
		}
	}
	vecmath.Softmax(out, out)
}
