package gorgonia

import (
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/onnxfile"
)

// ONNX returns the network as an ONNX model: a float32 input [batch, ...] for each observation array, by its
// name, and the outputs prior_logits [batch, A] and value [batch], from the view of the player to move.
// ErrConfig if the network isn't the environment's.
func (n *Net) ONNX(env *envs.Env) ([]byte, error) {
	if err := n.cfg.fits(env); err != nil {
		return nil, err
	}
	e := &exporter{Graph: onnxfile.New(n.cfg.Kind), cfg: &n.cfg, params: n.Params()}
	e.Metadata("azserve.env", n.cfg.Env)
	e.Metadata("azserve.keywords", n.cfg.Keywords)
	var inputs []string
	for _, a := range env.Spec().Obs {
		e.Input(a.Name, a.Shape...)
		inputs = append(inputs, a.Name)
	}
	e.Output("prior_logits", n.cfg.Actions)
	e.Output("value")
	value := ""
	if n.cfg.Kind == ResNet {
		value = e.resnet(inputs[0])
	} else {
		value = e.mlp(inputs)
	}
	if n.cfg.Bounded {
		value = e.Node("Tanh", "value.bounded", []string{value})
	}
	e.reshape(value, "value", -1)
	return e.Bytes(), nil
}

// exporter writes layers in the order of Config.layers.
type exporter struct {
	*onnxfile.Graph
	cfg    *Config
	params []Param
}

// own is the name of a tensor that is no input and no output: an observation array may have any name.
func (e *exporter) own(name string) string {
	if name == "prior_logits" || name == "value" {
		return name
	}
	return "azserve/" + name
}

// Node adds an operator.
func (e *exporter) Node(op, output string, inputs []string, attributes ...onnxfile.Attribute) string {
	return e.Graph.Node(op, e.own(output), inputs, attributes...)
}

// Floats adds a constant.
func (e *exporter) Floats(p Param, shape ...int) string {
	if len(shape) == 0 {
		shape = p.Shape
	}
	return e.Graph.Floats(e.own(p.Name), shape, p.Data)
}

// next returns the next layer's weight and bias.
func (e *exporter) next() (w, bias Param) {
	w, bias = e.params[0], e.params[1]
	e.params = e.params[2:]
	return w, bias
}

func (e *exporter) reshape(x, output string, shape ...int64) string {
	return e.Node("Reshape", output, []string{x, e.Ints(e.own(output+".shape"), shape...)})
}

// gemm writes y = x*w + b.
func (e *exporter) gemm(x, output string, w, bias Param) string {
	return e.Node("Gemm", output, []string{
		x, e.Floats(w), e.Floats(bias),
	})
}

func (e *exporter) relu(x string) string {
	return e.Graph.Node("Relu", x+".relu", []string{x})
}

func (e *exporter) mlp(inputs []string) (value string) {
	flat := make([]string, len(inputs))
	for i, name := range inputs {
		flat[i] = e.reshape(name, name+".flat", 0, -1)
	}
	x := flat[0]
	if len(flat) > 1 {
		x = e.Node("Concat", "inputs", flat, onnxfile.Attribute{Name: "axis", Int: 1})
	}
	for i := range e.cfg.Hidden {
		w, bias := e.next()
		x = e.relu(e.gemm(x, fmt.Sprintf("layer%d", i), w, bias))
	}
	w, bias := e.next()
	a := e.cfg.Actions
	e.gemm(x, "prior_logits", columnsOf(w, "policy.weight", 0, a), columnsOf(bias, "policy.bias", 0, a))
	return e.gemm(x, "value.linear", columnsOf(w, "value.weight", a, a+1), columnsOf(bias, "value.bias", a, a+1))
}

// columnsOf copies columns lo to hi-1 of a matrix, or of a vector.
func columnsOf(p Param, name string, lo, hi int) Param {
	cols := p.Shape[len(p.Shape)-1]
	out := Param{Name: name, Shape: append([]int{}, p.Shape...)}
	out.Shape[len(out.Shape)-1] = hi - lo
	for at := 0; at < len(p.Data); at += cols {
		out.Data = append(out.Data, p.Data[at+lo:at+hi]...)
	}
	return out
}

func (e *exporter) resnet(input string) (value string) {
	c := e.cfg
	x := e.reshape(input, "cells", -1, int64(c.Board[0]), int64(c.Board[1]), int64(c.Board[2]))
	x = e.Node("Transpose", "planes", []string{x}, onnxfile.Attribute{Name: "perm", Ints: []int64{0, 3, 1, 2}})
	x = e.relu(e.conv(x, "stem", kernel))
	for i := range c.Blocks {
		h := e.relu(e.conv(x, fmt.Sprintf("block%d.conv0", i), kernel))
		h = e.conv(h, fmt.Sprintf("block%d.conv1", i), kernel)
		x = e.relu(e.Node("Add", fmt.Sprintf("block%d", i), []string{h, x}))
	}
	e.head(x, "policy.conv", "prior_logits")
	return e.gemmNext(e.relu(e.head(x, "value.conv", "value.linear0")), "value.linear1")
}

func (e *exporter) gemmNext(x, output string) string {
	w, bias := e.next()
	return e.gemm(x, output, w, bias)
}

// head writes a convolution of one cell and a dense layer over all cells. Ours has the planes of a cell side by
// side, ONNX the cells of a plane, so the dense layer's rows change places.
func (e *exporter) head(x, conv, output string) string {
	x = e.reshape(e.relu(e.conv(x, conv, 1)), conv+".flat", 0, -1)
	w, bias := e.next()
	cells, planes, n := e.cfg.Board[0]*e.cfg.Board[1], e.cfg.Head, w.Shape[1]
	turned := Param{w.Name, w.Shape, make([]float32, len(w.Data))}
	for cell := range cells {
		for p := range planes {
			copy(turned.Data[(p*cells+cell)*n:(p*cells+cell+1)*n], w.Data[(cell*planes+p)*n:])
		}
	}
	return e.gemm(x, output, turned, bias)
}

// conv writes the next layer, a convolution with zeros beyond the edges. Its weights are [out, in, size, size].
func (e *exporter) conv(x, output string, size int) string {
	w, bias := e.next()
	taps, out := size*size, w.Shape[1]
	in := w.Shape[0] / taps
	data := make([]float32, len(w.Data))
	for k := range taps {
		for i := range in {
			for o := range out {
				data[(o*in+i)*taps+k] = w.Data[(k*in+i)*out+o]
			}
		}
	}
	half := int64(size / 2)
	return e.Node("Conv", output, []string{
		x, e.Floats(Param{Name: w.Name, Data: data}, out, in, size, size), e.Floats(bias),
	}, onnxfile.Attribute{Name: "pads", Ints: []int64{half, half, half, half}})
}
