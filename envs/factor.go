package envs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/azserve/azserve/internal/fault"
)

// Errors about action components; each names the row.
var (
	ErrNoFactors = errors.New("envs: actions have no components")
	ErrPrefix    = errors.New("envs: bad prefix of an action")
)

// Factorization splits an action into components, chosen one after the other: the flat action is
// sum(component[k] * Strides()[k]), row-major, the last component fastest. The zero value is an action
// without components.
type Factorization struct {
	Names []string
	Sizes []int // component k is 0..Sizes[k]-1; the product is NumActions
}

// Strides returns what one of each component is worth in the flat action.
func (f *Factorization) Strides() []int {
	out, n := make([]int, len(f.Sizes)), 1
	for k := len(f.Sizes) - 1; k >= 0; k-- {
		out[k] = n
		n *= f.Sizes[k]
	}
	return out
}

// Width returns the size of the largest component, 0 where there are none.
func (f *Factorization) Width() int {
	if len(f.Sizes) == 0 {
		return 0
	}
	return slices.Max(f.Sizes)
}

func (f *Factorization) validate(actions int) error {
	if len(f.Sizes) == 0 && len(f.Names) == 0 {
		return nil
	}
	if len(f.Names) != len(f.Sizes) {
		return fmt.Errorf("Spec.Factorization has %d names and %d sizes; want equally many", len(f.Names), len(f.Sizes))
	}
	n := 1
	for k, size := range f.Sizes {
		if size < 1 {
			return fmt.Errorf("component %q has the size %d; want at least 1", f.Names[k], size)
		}
		n *= size
	}
	if n != actions {
		return fmt.Errorf("the product of Spec.Factorization.Sizes %v is %d; want NumActions, %d", f.Sizes, n, actions)
	}
	return nil
}

// Prefixes are the first components of one action a row: row i's are
// Values[i*Stride : i*Stride+Lengths[i]]. Rows may differ in length.
type Prefixes struct {
	Values  []int32 // [B, Stride]
	Stride  int
	Lengths []int32 // [B], each below the number of components
}

// row returns the prefix of row i.
func (p *Prefixes) row(i int) []int32 {
	return p.Values[i*p.Stride : i*p.Stride+int(p.Lengths[i])]
}

// Check reports the first row whose prefix can't be of an action of n rows; it says nothing about what is
// legal.
func (f *Factorization) Check(p *Prefixes, n int) error {
	if len(f.Sizes) == 0 {
		return ErrNoFactors
	}
	if len(p.Lengths) != n || len(p.Values) != n*p.Stride {
		return fmt.Errorf("%w: %d lengths and %d values for %d rows of %d", ErrPrefix, len(p.Lengths), len(p.Values), n,
			p.Stride)
	}
	for i, k := range p.Lengths {
		if k < 0 || int(k) >= len(f.Sizes) || int(k) > p.Stride {
			return fmt.Errorf("%w: %w: %d components given; want 0 to %d", ErrPrefix, fault.RowError(i), k,
				min(len(f.Sizes)-1, p.Stride))
		}
		for j, v := range p.row(i) {
			if v < 0 || int(v) >= f.Sizes[j] {
				return fmt.Errorf("%w: %w: component %d (%s) is %d; want 0 to %d", ErrPrefix, fault.RowError(i), j,
					f.Names[j], v,
					f.Sizes[j]-1)
			}
		}
	}
	return nil
}

// Conditional writes which values of the next component some legal action completes: for each v, whether
// the flat mask allows any action that begins with prefix and v. It is what rules without a
// [ConditionalMasker] of their own get.
func (f *Factorization) Conditional(legal []bool, prefix []int32, out []bool) {
	rest := len(legal)
	for k, v := range prefix {
		rest /= f.Sizes[k]
		legal = legal[int(v)*rest : (int(v)+1)*rest]
	}
	size := f.Sizes[len(prefix)]
	rest /= size
	for v := range size {
		out[v] = slices.Contains(legal[v*rest:(v+1)*rest], true)
	}
}

// ConditionalMask writes row i of mask, width entries: the values that the component after slots[i]'s
// prefix may take. The prefixes must have been checked.
func (a *arena[S]) ConditionalMask(slots []int32, p *Prefixes, mask []bool, width int) {
	slabs, row := *a.slabs.Load(), 0
	defer blame(&row)
	sc := a.tmp.Get().(*scratch[S])
	defer a.tmp.Put(sc)
	f := &a.k.spec.Factorization
	for i, slot := range slots {
		row = i
		prefix, out := p.row(i), mask[i*width:(i+1)*width]
		size := f.Sizes[len(prefix)]
		clear(out[size:])
		if a.k.conditional != nil {
			a.k.conditional.ConditionalMask(a.at(slabs, slot), prefix, out[:size])
			continue
		}
		for k := range sc.legal {
			sc.legal[k] = true
		}
		if a.k.mask != nil {
			a.k.mask.Mask(a.at(slabs, slot), sc.legal)
		}
		f.Conditional(sc.legal, prefix, out)
	}
}
