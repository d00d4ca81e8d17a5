package gorgonia

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// board is the shape of what a convolution reads or writes: a position is a row of rows*cols*planes
// numbers, the planes of a cell side by side (NHWC).
type board struct{ rows, cols int }

func (b board) cells() int { return b.rows * b.cols }

// conv is a convolution with a square kernel of odd size over a board, zeros beyond its edges:
// y = x*w + b (+ skip), with negative numbers replaced by 0 if relu is set.
//
// x is [B, cells*in], w [size*size*in, out] (row (i*size+j)*in + c is the weight of plane c in the cell
// i-size/2 below and j-size/2 to the right), b [out], skip and y [B, cells*out].
//
// The patches of a few positions are copied side by side (im2col), so that one matrix product does all
// of them and what it reads is still in the cache.
type conv struct {
	op
	patcher
	out   int
	relu  bool
	skip  bool
	first bool // x is the network's input: it has no gradient
}

func newConv(b board, size, in, out int, relu, skip, first bool) *conv {
	c := &conv{patcher: patcher{board: b, size: size, in: in}, out: out, relu: relu, skip: skip, first: first}
	c.op = op{
		name: fmt.Sprintf("azserve.conv %dx%d size=%d planes=%d,%d relu=%v skip=%v first=%v", b.rows, b.cols, size,
			in, out, relu, skip, first),
		inputs: []hm.Type{matrixType, matrixType, vectorType}, output: matrixType,
		shape: func(s []tensor.Shape) tensor.Shape { return tensor.Shape{s[0][0], b.cells() * out} },
		do:    c.forward,
	}
	if skip {
		c.inputs = append(c.inputs, matrixType)
	}
	return c
}

func (c *conv) forward(y []float32, _ tensor.Shape, in [][]float32, _ []tensor.Shape) {
	x, w, bias := in[0], in[1], in[2]
	if c.skip {
		addBias(y, in[3], bias)
	} else {
		for at := 0; at < len(y); at += c.out {
			copy(y[at:at+c.out], bias)
		}
	}
	c.product(x, w, y, c.out, 1)
	if c.relu {
		relu(y)
	}
}

// product is y = patches(x)*w + beta*y.
func (p *patcher) product(x, w, y []float32, out int, beta float32) {
	p.each(x, func(patches []float32, cell, cells int) {
		part := y[cell*out : (cell+cells)*out]
		gemm(false, false, cells, out, p.width(), patches, p.width(), w, out, beta, part, out)
	})
}

// DiffWRT says that all inputs have gradients but the network's input.
func (c *conv) DiffWRT(n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = i > 0 || !c.first
	}
	return out
}

// SymDiff builds the gradients: dx is the convolution of g with the kernel turned by 180 degrees, dw the
// product of the patches with g, db the planes' sums of g, and that of skip is g.
func (c *conv) SymDiff(in gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error) {
	var err error
	if c.relu {
		if g, err = gorgonia.ApplyOp(newReluGrad(), y, g); err != nil {
			return nil, err
		}
	}
	out := make(gorgonia.Nodes, len(in))
	if !c.first {
		if out[0], err = gorgonia.ApplyOp(c.inputGrad(), g, in[1]); err != nil {
			return nil, err
		}
	}
	if out[1], err = gorgonia.ApplyOp(c.weightGrad(), in[0], g); err != nil {
		return nil, err
	}
	if out[2], err = gorgonia.ApplyOp(newSums(c.out), g); err != nil {
		return nil, err
	}
	if c.skip {
		out[3] = g
	}
	return out, nil
}

// inputGrad makes dx of g and w.
func (c *conv) inputGrad() *op {
	p := &patcher{board: c.board, size: c.size, in: c.out} // it sees the planes of g
	turned := make([]float32, c.size*c.size*c.in*c.out)
	return &op{
		name: c.name + " dx", inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
		shape: func(s []tensor.Shape) tensor.Shape { return tensor.Shape{s[0][0], c.cells() * c.in} },
		do: func(dx []float32, _ tensor.Shape, in [][]float32, _ []tensor.Shape) {
			turn(in[1], turned, c.size*c.size, c.in, c.out)
			p.product(in[0], turned, dx, c.in, 0)
		},
	}
}

// turn writes a kernel turned by 180 degrees, with its two kinds of planes exchanged.
func turn(w, out []float32, taps, planesIn, planesOut int) {
	for k := range taps {
		from, to := w[k*planesIn*planesOut:], out[(taps-1-k)*planesIn*planesOut:]
		for i := range planesIn {
			for o := range planesOut {
				to[o*planesIn+i] = from[i*planesOut+o]
			}
		}
	}
}

// weightGrad makes dw of x and g.
func (c *conv) weightGrad() *op {
	p := &patcher{board: c.board, size: c.size, in: c.in}
	return &op{
		name: c.name + " dw", inputs: []hm.Type{matrixType, matrixType}, output: matrixType,
		shape: func([]tensor.Shape) tensor.Shape { return tensor.Shape{p.width(), c.out} },
		do: func(dw []float32, _ tensor.Shape, in [][]float32, _ []tensor.Shape) {
			clear(dw)
			p.each(in[0], func(patches []float32, cell, cells int) {
				gemm(true, false, p.width(), c.out, cells, patches, p.width(), in[1][cell*c.out:], c.out, 1, dw, c.out)
			})
		},
	}
}

// patcher copies the patches that a kernel sees. For one goroutine at a time.
type patcher struct {
	board
	size    int
	in      int // planes
	patches []float32
}

// patchFloats is about how many numbers of patches are made at a time: 128 KiB, which with the numbers
// they come from stay in the second-level cache.
const patchFloats = 1 << 15

// width is the number of numbers of a patch.
func (p *patcher) width() int { return p.size * p.size * p.in }

// each calls f with the patches [cells, width] of the cells from number cell on, a few positions at a time.
// A kernel of one cell sees the board as it is.
func (p *patcher) each(x []float32, f func(patches []float32, cell, cells int)) {
	position := p.cells() * p.in
	if p.size == 1 {
		f(x, 0, len(x)/p.in)
		return
	}
	count := max(1, patchFloats/(p.cells()*p.width()))
	if p.patches == nil {
		p.patches = make([]float32, min(count, len(x)/position)*p.cells()*p.width())
	}
	for first := 0; first < len(x)/position; first += count {
		n := min(count, len(x)/position-first)
		for i := range n {
			p.position(x[(first+i)*position:(first+i+1)*position], p.patches[i*p.cells()*p.width():])
		}
		f(p.patches, first*p.cells(), n*p.cells())
	}
}

// position writes the patches of one position. The cells that a row of the kernel covers lie side by side,
// so it is one copy where they are on the board.
func (p *patcher) position(x, out []float32) {
	half, n := p.size/2, p.in
	at := 0
	for r := range p.rows {
		for c := range p.cols {
			lo, hi := max(0, half-c), min(p.size, p.cols+half-c) // columns of the kernel on the board
			for i := range p.size {
				to := out[at : at+p.size*n]
				at += p.size * n
				row := r + i - half
				if row < 0 || row >= p.rows {
					clear(to)
					continue
				}
				clear(to[:lo*n])
				from := (row*p.cols + c + lo - half) * n
				copy(to[lo*n:hi*n], x[from:from+(hi-lo)*n])
				clear(to[hi*n:])
			}
		}
	}
}
