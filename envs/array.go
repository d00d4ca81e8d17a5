package envs

import "math"

// Array is a batch of one observation array: rows of equal size, row-major, in the slice of its
// element type; the other slices are nil. The memory belongs to whoever made the Array, which may
// be a foreign caller (a NumPy array).
type Array struct {
	F32  []float32 // [rows, size]
	F64  []float64
	I32  []int32
	U8   []uint8
	Bool []bool

	size int // elements a row
}

// NewArray returns zeroed memory for rows states.
func NewArray(spec ArraySpec, rows int) Array {
	n := rows * spec.Len()
	a := Array{size: spec.Len()}
	switch spec.DType {
	case Float32:
		a.F32 = make([]float32, n)
	case Float64:
		a.F64 = make([]float64, n)
	case Int32:
		a.I32 = make([]int32, n)
	case Uint8:
		a.U8 = make([]uint8, n)
	case Bool:
		a.Bool = make([]bool, n)
	}
	return a
}

// NewArrays returns one Array for each observation array of a specification.
func NewArrays(specs []ArraySpec, rows int) []Array {
	out := make([]Array, len(specs))
	for i, s := range specs {
		out[i] = NewArray(s, rows)
	}
	return out
}

// WithSize returns a copy whose rows have size elements. Set exactly one slice first.
func (a Array) WithSize(size int) Array {
	a.size = size
	return a
}

// Size returns the number of elements of a row.
func (a *Array) Size() int { return a.size }

// Rows returns the number of rows.
func (a *Array) Rows() int {
	if a.size == 0 {
		return 0
	}
	return (len(a.F32) + len(a.F64) + len(a.I32) + len(a.U8) + len(a.Bool)) / a.size
}

// CopyRow copies row from of src, an array of the same specification, to row to of a.
func (a *Array) CopyRow(to int, src *Array, from int) { a.CopyRows(to, src, from, 1) }

// CopyRows copies n rows of src, an array of the same specification, from row from on, to row to of a and on.
func (a *Array) CopyRows(to int, src *Array, from, n int) {
	to, from, n = to*a.size, from*a.size, n*a.size
	copyPart(a.F32, src.F32, to, from, n)
	copyPart(a.F64, src.F64, to, from, n)
	copyPart(a.I32, src.I32, to, from, n)
	copyPart(a.U8, src.U8, to, from, n)
	copyPart(a.Bool, src.Bool, to, from, n)
}

// TurnRow writes row from of src to row to of a, an array of the same specification, under a symmetry: its
// element i is element index[i] of the other (see [Symmetry]); nil copies.
func (a *Array) TurnRow(to int, src *Array, from int, index []int) {
	turnPart(index, part(src.F32, from*a.size, (from+1)*a.size), part(a.F32, to*a.size, (to+1)*a.size))
	turnPart(index, part(src.F64, from*a.size, (from+1)*a.size), part(a.F64, to*a.size, (to+1)*a.size))
	turnPart(index, part(src.I32, from*a.size, (from+1)*a.size), part(a.I32, to*a.size, (to+1)*a.size))
	turnPart(index, part(src.U8, from*a.size, (from+1)*a.size), part(a.U8, to*a.size, (to+1)*a.size))
	turnPart(index, part(src.Bool, from*a.size, (from+1)*a.size), part(a.Bool, to*a.size, (to+1)*a.size))
}

func turnPart[T any](index []int, in, out []T) {
	if in != nil {
		Apply(index, in, out)
	}
}

// HashRow folds the numbers of row i into a key.
func (a *Array) HashRow(i int, key uint64) uint64 {
	for _, v := range part(a.F32, i*a.size, (i+1)*a.size) {
		key = hashStep(key, uint64(math.Float32bits(v)))
	}
	for _, v := range part(a.F64, i*a.size, (i+1)*a.size) {
		key = hashStep(key, math.Float64bits(v))
	}
	for _, v := range part(a.I32, i*a.size, (i+1)*a.size) {
		key = hashStep(key, uint64(v))
	}
	for _, v := range part(a.U8, i*a.size, (i+1)*a.size) {
		key = hashStep(key, uint64(v))
	}
	for _, v := range part(a.Bool, i*a.size, (i+1)*a.size) {
		bit := uint64(0)
		if v {
			bit = 1
		}
		key = hashStep(key, bit)
	}
	return key
}

func copyPart[T any](dst, src []T, to, from, n int) {
	if src != nil {
		copy(dst[to:to+n], src[from:from+n])
	}
}

// Slice returns rows lo to hi of every array, sharing memory.
func Slice(arrays []Array, lo, hi int, out []Array) []Array {
	out = out[:0]
	for i := range arrays {
		a := &arrays[i]
		n := a.size
		out = append(out, Array{
			F32: part(a.F32, lo*n, hi*n), F64: part(a.F64, lo*n, hi*n),
			I32: part(a.I32, lo*n, hi*n), U8: part(a.U8, lo*n, hi*n),
			Bool: part(a.Bool, lo*n, hi*n), size: n,
		})
	}
	return out
}

func part[T any](x []T, lo, hi int) []T {
	if x == nil {
		return nil
	}
	return x[lo:hi]
}

// Floats writes row i to out as float32 numbers (true is 1). len(out) must be Size.
func (a *Array) Floats(i int, out []float32) {
	lo, hi := i*a.size, (i+1)*a.size
	switch {
	case a.F32 != nil:
		copy(out, a.F32[lo:hi])
	case a.F64 != nil:
		for j, v := range a.F64[lo:hi] {
			out[j] = float32(v)
		}
	case a.I32 != nil:
		for j, v := range a.I32[lo:hi] {
			out[j] = float32(v)
		}
	case a.U8 != nil:
		for j, v := range a.U8[lo:hi] {
			out[j] = float32(v)
		}
	case a.Bool != nil:
		for j, v := range a.Bool[lo:hi] {
			out[j] = 0
			if v {
				out[j] = 1
			}
		}
	}
}

// Row is one state's place in a batch of observations: what Rules.Observe fills. Its contents are
// undefined before, so every element must be written.
type Row struct {
	arrays []Array
	i      int
}

// RowOf returns row i of a batch of observation arrays.
func RowOf(arrays []Array, i int) Row { return Row{arrays, i} }

// Float32 returns this state's part of observation array k (in the order of Spec.Obs).
func (r Row) Float32(k int) []float32 { a := &r.arrays[k]; return rowOf(a.F32, r.i, a.size) }

// Float64 returns this state's part of observation array k.
func (r Row) Float64(k int) []float64 { a := &r.arrays[k]; return rowOf(a.F64, r.i, a.size) }

// Int32 returns this state's part of observation array k.
func (r Row) Int32(k int) []int32 { a := &r.arrays[k]; return rowOf(a.I32, r.i, a.size) }

// Uint8 returns this state's part of observation array k.
func (r Row) Uint8(k int) []uint8 { a := &r.arrays[k]; return rowOf(a.U8, r.i, a.size) }

// Bool returns this state's part of observation array k.
func (r Row) Bool(k int) []bool { a := &r.arrays[k]; return rowOf(a.Bool, r.i, a.size) }

func rowOf[T any](x []T, i, n int) []T { return x[i*n : (i+1)*n : (i+1)*n] }
