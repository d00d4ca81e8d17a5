package envs

import "fmt"

// gridSymmetry makes the symmetry of a board of rows x cols cells with planes numbers a cell (last
// axis) that takes the new cell (r, c) from the old cell from(r, c); actions are cells.
func gridSymmetry(name string, rows, cols, planes int, from func(r, c int) (int, int)) Symmetry {
	sym := Symmetry{Name: name, Obs: [][]int{make([]int, rows*cols*planes)}}
	sym.Actions = make([]int, rows*cols)
	for r := range rows {
		for c := range cols {
			fr, fc := from(r, c)
			cell, old := r*cols+c, fr*cols+fc
			sym.Actions[cell] = old
			for p := range planes {
				sym.Obs[0][cell*planes+p] = old*planes + p
			}
		}
	}
	return sym
}

// squareSymmetries lists the seven turns and reflections of an n x n board, without the identity:
// rotated counter-clockwise by 90, 180 and 270 degrees, then mirrored left to right after a
// rotation by 0, 90, 180 and 270 degrees.
func squareSymmetries(n, planes int) []Symmetry {
	var out []Symmetry
	for k := 1; k < 8; k++ {
		turns, mirror := k%4, k >= 4
		name := fmt.Sprintf("rotate%d", 90*turns)
		if mirror {
			name += " mirror"
		}
		out = append(out, gridSymmetry(name, n, n, planes, func(r, c int) (int, int) {
			if mirror {
				c = n - 1 - c
			}
			for range turns {
				r, c = c, n-1-r
			}
			return r, c
		}))
	}
	return out
}

// Apply writes what a symmetry makes of an observation array: out[i] = in[index[i]]. A nil index
// copies. in and out must not overlap.
func Apply[T any](index []int, in, out []T) {
	if index == nil {
		copy(out, in)
		return
	}
	for i, j := range index {
		out[i] = in[j]
	}
}
