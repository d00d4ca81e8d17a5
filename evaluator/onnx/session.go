//go:build cgo

package onnx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	ort "github.com/yalue/onnxruntime_go"
)

// session is weights that never change. It may run in several goroutines at once.
type session struct {
	*ports
	version uint64
	session *ort.DynamicAdvancedSession
	scratch sync.Pool // *scratch
	refs    int       // guarded by Model.mu: who uses it, the model itself included
}

// scratch is the memory of one run.
type scratch struct {
	floats          [][]float32 // of each input that is converted
	inputs, outputs []ort.Value
}

// open reads a model: from data, or from a file if data is nil.
func open(path string, data []byte, version uint64, env *envs.Env, o *Options) (*session, error) {
	if _, err := Library(); err != nil {
		return nil, err
	}
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	defer func() { _ = options.Destroy() }()
	err = errors.Join(options.SetIntraOpNumThreads(max(1, o.Threads)), options.SetInterOpNumThreads(1),
		options.SetLogSeverityLevel(ort.LoggingLevelError))
	if err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	var in, out []ort.InputOutputInfo
	if data == nil {
		in, out, err = ort.GetInputOutputInfoWithOptions(path, options)
	} else {
		in, out, err = ort.GetInputOutputInfoWithONNXData(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, path, err)
	}
	p, err := connect(in, out, env.Spec())
	if err != nil {
		return nil, fmt.Errorf("%w: %s, for %s: %w", ErrModel, path, env.Spec().ID, err)
	}
	s := &session{ports: p, version: version, refs: 1}
	s.scratch.New = func() any { return &scratch{floats: make([][]float32, len(p.inputs))} }
	if data == nil {
		s.session, err = ort.NewDynamicAdvancedSession(path, p.names(), p.outputs(), options)
	} else {
		s.session, err = ort.NewDynamicAdvancedSessionWithONNXData(data, p.names(), p.outputs(), options)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, path, err)
	}
	return s, nil
}

// Needs is the observations.
func (*session) Needs() evaluator.Needs { return evaluator.Needs{Obs: true} }

// Evaluate runs the model. ONNX Runtime is told to stop when ctx ends.
func (s *session) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	if err := ctx.Err(); err != nil || in.N == 0 {
		return err
	}
	c := s.scratch.Get().(*scratch)
	defer s.scratch.Put(c)
	c.inputs, c.outputs = c.inputs[:0], c.outputs[:0]
	defer c.free()
	for i := range s.inputs {
		if err := c.input(s.inputs[i].tensor(in, &c.floats[i])); err != nil {
			return err
		}
	}
	n, a := int64(in.N), int64(in.Spec.NumActions)
	value := ort.NewShape(n)
	if len(s.value.Dimensions) == 2 {
		value = ort.NewShape(n, 1)
	}
	err := errors.Join(c.output(floatTensor(ort.NewShape(n, a), out.Logits)),
		c.output(floatTensor(value, out.Value)))
	if err != nil {
		return err
	}
	return s.run(ctx, c)
}

// run is Evaluate with the tensors in place.
func (s *session) run(ctx context.Context, c *scratch) error {
	var options *ort.RunOptions
	if ctx.Done() != nil {
		var err error
		if options, err = ort.NewRunOptions(); err != nil {
			return fmt.Errorf("onnx: %w", err)
		}
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(ended)
			_ = options.Terminate() // else the run ends by itself
		})
		defer func() {
			if !stop() { // it must not use the options after they are gone
				<-ended
			}
			_ = options.Destroy()
		}()
	}
	if err := s.session.RunWithOptions(c.inputs, c.outputs, options); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("onnx: run: %w", err)
	}
	return nil
}

// input and output keep a new tensor, so that it is freed.
func (c *scratch) input(v ort.Value, err error) error  { return keep(&c.inputs, v, err) }
func (c *scratch) output(v ort.Value, err error) error { return keep(&c.outputs, v, err) }

func keep(list *[]ort.Value, v ort.Value, err error) error {
	if err != nil {
		return fmt.Errorf("onnx: %w", err)
	}
	*list = append(*list, v)
	return nil
}

func (c *scratch) free() {
	for _, list := range [][]ort.Value{c.inputs, c.outputs} {
		for _, v := range list {
			_ = v.Destroy()
		}
	}
}

// tensor wraps what goes into a port: the batch's own memory, or float32 numbers made from it in scratch.
func (p *port) tensor(in *evaluator.Batch, scratch *[]float32) (ort.Value, error) {
	shape := ort.Shape(append([]int64{int64(in.N)}, p.dims...))
	n := int(shape.FlattenedSize())
	a := p.source(in)
	switch {
	case p.kind == ort.TensorElementDataTypeFloat && a.F32 != nil:
		return floatTensor(shape, a.F32)
	case p.kind == ort.TensorElementDataTypeFloat:
		*scratch = fit(*scratch, n)
		for i := range in.N {
			a.Floats(i, (*scratch)[i*a.Size():(i+1)*a.Size()])
		}
		return floatTensor(shape, *scratch)
	case a.F64 != nil:
		return tensorOf(ort.NewTensor(shape, a.F64[:n]))
	case a.I32 != nil:
		return tensorOf(ort.NewTensor(shape, a.I32[:n]))
	case a.U8 != nil:
		return tensorOf(ort.NewTensor(shape, a.U8[:n]))
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&a.Bool[0])), n) // a bool is one byte, 0 or 1, as in ONNX
	return tensorOf(ort.NewCustomDataTensor(shape, bytes, ort.TensorElementDataTypeBool))
}

// source is the array of the batch that goes into a port.
func (p *port) source(in *evaluator.Batch) *envs.Array {
	if p.array != mask {
		return &in.Obs[p.array]
	}
	legal := in.Legal
	if legal == nil { // every action is always legal
		legal = slices.Repeat([]bool{true}, in.N*in.Spec.NumActions)
	}
	a := envs.Array{Bool: legal}.WithSize(in.Spec.NumActions)
	return &a
}

func fit(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n)
	}
	return x[:n]
}

func floatTensor(shape ort.Shape, data []float32) (ort.Value, error) {
	return tensorOf(ort.NewTensor(shape, data[:shape.FlattenedSize()]))
}

// tensorOf makes an interface of a tensor that isn't nil.
func tensorOf[T ort.Value](v T, err error) (ort.Value, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}
