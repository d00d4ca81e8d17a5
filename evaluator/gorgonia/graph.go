package gorgonia

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// graph is the network for one batch size with a machine that runs it. Its weights are the Net's own
// memory. For one goroutine at a time.
type graph struct {
	size int
	x    []float32 // [size, inputs] fill, then run
	y    []float32 // [size, actions+1] after run
	vm   gorgonia.VM
	out  gorgonia.Value
}

// newGraph builds the network for inference.
func (n *Net) newGraph(size int) (*graph, error) {
	g := &graph{size: size, x: make([]float32, size*n.cfg.Inputs)}
	eg := gorgonia.NewGraph()
	x := input(eg, "x", g.x, size, n.cfg.Inputs)
	y, _, err := n.build(eg, x)
	if err != nil {
		return nil, err
	}
	gorgonia.Read(y, &g.out)
	g.vm = gorgonia.NewTapeMachine(eg)
	return g, nil
}

// input returns a node over memory of ours.
func input(g *gorgonia.ExprGraph, name string, data []float32, shape ...int) *gorgonia.Node {
	v := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
	return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...),
		gorgonia.WithName(name), gorgonia.WithValue(v))
}

// build adds the layers to a graph and returns the output and the nodes of the weights.
func (n *Net) build(g *gorgonia.ExprGraph, x *gorgonia.Node) (y *gorgonia.Node, w gorgonia.Nodes, err error) {
	for _, p := range n.params {
		w = append(w, input(g, p.Name, p.Data, p.Shape...))
	}
	b := &builder{cfg: &n.cfg, weights: w}
	if n.cfg.Kind == ResNet {
		y = b.resnet(x)
	} else {
		y = b.mlp(x)
	}
	return y, w, b.err
}

// builder adds layers to a graph, in the order of Config.layers. The first error stays.
type builder struct {
	cfg     *Config
	weights gorgonia.Nodes // a weight and a bias a layer
	used    int            // of these
	err     error
}

// apply adds an operation.
func (b *builder) apply(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	y, err := gorgonia.ApplyOp(o, in...)
	if err != nil {
		b.err = fmt.Errorf("gorgonia: %s: %w", o, err)
	}
	return y
}

// next returns the next layer's weight and bias.
func (b *builder) next() (w, bias *gorgonia.Node) {
	b.used += 2
	return b.weights[b.used-2], b.weights[b.used-1]
}

func (b *builder) linear(x *gorgonia.Node, relu, first bool) *gorgonia.Node {
	w, bias := b.next()
	return b.apply(newLinear(relu, first), x, w, bias)
}

// conv adds a convolution with relu over the board; skip, if not nil, is added before.
func (b *builder) conv(x *gorgonia.Node, size, in, out int, skip *gorgonia.Node, first bool) *gorgonia.Node {
	w, bias := b.next()
	o := newConv(board{b.cfg.Board[0], b.cfg.Board[1]}, size, in, out, true, skip != nil, first)
	if skip != nil {
		return b.apply(o, x, w, bias, skip)
	}
	return b.apply(o, x, w, bias)
}

// run computes y from x.
func (g *graph) run() error {
	defer g.vm.Reset()
	if err := g.vm.RunAll(); err != nil {
		return fmt.Errorf("gorgonia: %w", err)
	}
	g.y = floats(g.out)
	return nil
}

// sizes are the batch sizes that graphs are built for: a batch is padded to the next, by a third at most, and
// cut into pieces of the last.
var sizes = []int{1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256}

func sizeFor(rows int) int {
	for _, s := range sizes {
		if rows <= s {
			return s
		}
	}
	return sizes[len(sizes)-1]
}

// borrow returns a graph for at least rows rows, or the largest.
func (n *Net) borrow(rows int) (*graph, error) {
	size := sizeFor(rows)
	n.graphMu.Lock()
	defer n.graphMu.Unlock()
	if idle := n.idle[size]; len(idle) > 0 {
		g := idle[len(idle)-1]
		n.idle[size] = idle[:len(idle)-1]
		return g, nil
	}
	return n.newGraph(size)
}

func (n *Net) giveBack(g *graph) {
	n.graphMu.Lock()
	defer n.graphMu.Unlock()
	n.idle[g.size] = append(n.idle[g.size], g)
}

// Close frees the machines. The network must not be used afterwards.
func (n *Net) Close() {
	n.graphMu.Lock()
	defer n.graphMu.Unlock()
	for _, idle := range n.idle {
		for _, g := range idle {
			_ = g.vm.Close()
		}
	}
	clear(n.idle)
}
