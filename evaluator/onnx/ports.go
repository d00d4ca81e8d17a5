//go:build cgo

package onnx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/azserve/azserve/envs"
	ort "github.com/yalue/onnxruntime_go"
)

// Names of inputs and outputs that aren't observations.
const (
	maskName   = "action_mask"
	logitsName = "prior_logits"
	valueName  = "value"
)

// port is an input of a model and what goes into it.
type port struct {
	name  string
	kind  ort.TensorElementDataType
	dims  []int64 // without the batch
	array int     // of the observation; mask for the legal actions
}

// mask is the array number of the legal actions.
const mask = -1

// ports is how a model is connected.
type ports struct {
	inputs        []port
	logits, value ort.InputOutputInfo
}

// outputs lists the names of the outputs that are read.
func (p *ports) outputs() []string { return []string{p.logits.Name, p.value.Name} }

func (p *ports) names() (out []string) {
	for _, in := range p.inputs {
		out = append(out, in.name)
	}
	return out
}

// connect checks a model's inputs and outputs against an environment.
func connect(in, out []ort.InputOutputInfo, spec *envs.Spec) (*ports, error) {
	p := &ports{}
	free := make([]bool, len(spec.Obs)) // arrays that no input has taken
	for i := range free {
		free[i] = true
	}
	var others []ort.InputOutputInfo
	for _, x := range in {
		k := slices.IndexFunc(spec.Obs, func(a envs.ArraySpec) bool { return a.Name == x.Name })
		switch {
		case k >= 0:
			free[k] = false
			p.inputs = append(p.inputs, port{name: x.Name, array: k})
		case x.Name == maskName:
			p.inputs = append(p.inputs, port{name: x.Name, array: mask})
		default:
			others = append(others, x)
			p.inputs = append(p.inputs, port{name: x.Name, array: slices.Index(free, true)})
		}
	}
	if len(others) > 0 && (len(others) > 1 || len(spec.Obs) > 1 || !slices.Contains(free, true)) {
		return nil, fmt.Errorf("input %q; want the names of the observation arrays %s, and %s if it likes", others[0].Name,
			namesOf(spec), maskName)
	}
	for i := range p.inputs {
		if err := p.inputs[i].check(&in[i], spec); err != nil {
			return nil, fmt.Errorf("input %q: %w", in[i].Name, err)
		}
	}
	return p, p.connectOutputs(out, spec)
}

func namesOf(spec *envs.Spec) string {
	var out []string
	for _, a := range spec.Obs {
		out = append(out, fmt.Sprintf("%q", a.Name))
	}
	return strings.Join(out, ", ")
}

// kinds are the types that an observation array can be given as, beside float32.
var kinds = map[envs.DType]ort.TensorElementDataType{
	envs.Float32: ort.TensorElementDataTypeFloat, envs.Float64: ort.TensorElementDataTypeDouble,
	envs.Int32: ort.TensorElementDataTypeInt32, envs.Uint8: ort.TensorElementDataTypeUint8,
	envs.Bool: ort.TensorElementDataTypeBool,
}

// check completes a port.
func (p *port) check(x *ort.InputOutputInfo, spec *envs.Spec) error {
	shape, own := []int{spec.NumActions}, ort.TensorElementDataType(ort.TensorElementDataTypeBool)
	if p.array != mask {
		shape, own = spec.Obs[p.array].Shape, kinds[spec.Obs[p.array].DType]
	}
	p.kind = x.DataType
	if p.kind != own && p.kind != ort.TensorElementDataTypeFloat {
		return fmt.Errorf("type %s; want %s or %s", p.kind, ort.TensorElementDataType(ort.TensorElementDataTypeFloat), own)
	}
	size := 1
	for _, d := range shape {
		size *= d
	}
	for _, want := range [][]int{shape, {size}} {
		if fits(x.Dimensions, want) {
			p.dims = nil
			for _, d := range want {
				p.dims = append(p.dims, int64(d))
			}
			return dynamic(x)
		}
	}
	return fmt.Errorf("shape %v; want [batch, %s] or [batch, %d]", x.Dimensions, joined(shape), size)
}

func joined(shape []int) string {
	out := make([]string, len(shape))
	for i, d := range shape {
		out[i] = fmt.Sprint(d)
	}
	return strings.Join(out, ", ")
}

// fits says whether dimensions are a batch of shape; those that are not fixed fit everything.
func fits(dims ort.Shape, shape []int) bool {
	if len(dims) != len(shape)+1 {
		return false
	}
	for i, d := range shape {
		if dims[i+1] >= 0 && dims[i+1] != int64(d) {
			return false
		}
	}
	return true
}

// dynamic checks that the batch may have any size.
func dynamic(x *ort.InputOutputInfo) error {
	if len(x.Dimensions) > 0 && x.Dimensions[0] >= 0 {
		return fmt.Errorf("shape %v has room for a batch of %d only; export the model with a dynamic first dimension",
			x.Dimensions, x.Dimensions[0])
	}
	return nil
}

// connectOutputs finds the logits and the value by their names, else by their shapes.
func (p *ports) connectOutputs(out []ort.InputOutputInfo, spec *envs.Spec) error {
	named := func(name string) int {
		return slices.IndexFunc(out, func(x ort.InputOutputInfo) bool { return x.Name == name })
	}
	isValue := func(x *ort.InputOutputInfo) bool { return fits(x.Dimensions, nil) || fits(x.Dimensions, []int{1}) }
	logits, value := named(logitsName), named(valueName)
	if len(out) == 2 && spec.NumActions > 1 {
		switch {
		case logits >= 0 && value < 0:
			value = 1 - logits
		case value >= 0 && logits < 0:
			logits = 1 - value
		case logits < 0 && isValue(&out[0]) && !isValue(&out[1]):
			logits, value = 1, 0
		case logits < 0:
			logits, value = 0, 1
		}
	}
	if logits < 0 || value < 0 {
		var names []string
		for _, x := range out {
			names = append(names, x.Name)
		}
		return fmt.Errorf("outputs %q; want %q and %q", names, logitsName, valueName)
	}
	p.logits, p.value = out[logits], out[value]
	switch {
	case !fits(p.logits.Dimensions, []int{spec.NumActions}):
		return fmt.Errorf("output %q: shape %v; want [batch, %d]: a logit for each action", p.logits.Name,
			p.logits.Dimensions, spec.NumActions)
	case !isValue(&p.value):
		return fmt.Errorf("output %q: shape %v; want [batch] or [batch, 1]", p.value.Name, p.value.Dimensions)
	}
	for _, x := range []*ort.InputOutputInfo{&p.logits, &p.value} {
		if x.DataType != ort.TensorElementDataTypeFloat {
			return fmt.Errorf("output %q: type %s; want %s", x.Name, x.DataType,
				ort.TensorElementDataType(ort.TensorElementDataTypeFloat))
		}
		if err := dynamic(x); err != nil {
			return fmt.Errorf("output %q: %w", x.Name, err)
		}
	}
	return nil
}
