// Package onnxfile writes ONNX models: the protobuf messages of onnx.proto3 (ONNX 1.13, opset 17) as far as
// feed-forward networks need them.
package onnxfile

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Versions that files declare: ONNX Runtime has read them since 1.14.
const (
	irVersion = 8
	opset     = 17
)

// Fields of the messages, by their numbers in onnx.proto3.
const (
	modelIRVersion, modelProducer, modelGraph, modelOpset, modelMetadata = 1, 2, 7, 8, 14
	opsetVersion                                                         = 2
	entryKey, entryValue                                                 = 1, 2

	graphNode, graphName, graphInitializer, graphInput, graphOutput = 1, 2, 5, 11, 12

	nodeInput, nodeOutput, nodeName, nodeOp, nodeAttribute = 1, 2, 3, 4, 5

	attributeName, attributeInt, attributeInts, attributeType = 1, 3, 8, 20
	attributeTypeInt, attributeTypeInts                       = 2, 7

	tensorDims, tensorType, tensorName, tensorRaw = 1, 2, 8, 9
	typeFloat, typeInt64                          = 1, 7

	valueName, valueType                = 1, 2
	typeTensor                          = 1
	typeTensorElement, typeTensorShape  = 1, 2
	shapeDim, shapeDimValue, shapeDimBy = 1, 1, 2
)

// Graph is a model that is being built. Tensors are known by their names, which must differ.
type Graph struct {
	graph    []byte
	metadata []byte
}

// New begins a graph.
func New(name string) *Graph {
	g := &Graph{}
	g.graph = str(g.graph, graphName, name)
	return g
}

// Metadata adds a line to what the file says of itself.
func (g *Graph) Metadata(key, value string) {
	g.metadata = message(g.metadata, modelMetadata, str(str(nil, entryKey, key), entryValue, value))
}

// Input declares a float32 input [batch, shape...].
func (g *Graph) Input(name string, shape ...int) { g.value(graphInput, name, shape) }

// Output declares a float32 output [batch, shape...].
func (g *Graph) Output(name string, shape ...int) { g.value(graphOutput, name, shape) }

func (g *Graph) value(field protowire.Number, name string, shape []int) {
	dims := message(nil, shapeDim, str(nil, shapeDimBy, "batch"))
	for _, d := range shape {
		dims = message(dims, shapeDim, integer(nil, shapeDimValue, int64(d)))
	}
	tensor := message(integer(nil, typeTensorElement, typeFloat), typeTensorShape, dims)
	g.graph = message(g.graph, field, message(str(nil, valueName, name), valueType, message(nil, typeTensor, tensor)))
}

// Floats adds a constant and returns its name.
func (g *Graph) Floats(name string, shape []int, data []float32) string {
	raw := make([]byte, 0, 4*len(data))
	for _, v := range data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return g.constant(name, typeFloat, shape, raw)
}

// Ints adds a constant vector of int64 and returns its name.
func (g *Graph) Ints(name string, data ...int64) string {
	raw := make([]byte, 0, 8*len(data))
	for _, v := range data {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return g.constant(name, typeInt64, []int{len(data)}, raw)
}

func (g *Graph) constant(name string, kind int64, shape []int, raw []byte) string {
	var t []byte
	for _, d := range shape {
		t = integer(t, tensorDims, int64(d))
	}
	t = str(integer(t, tensorType, kind), tensorName, name)
	t = protowire.AppendBytes(protowire.AppendTag(t, tensorRaw, protowire.BytesType), raw)
	g.graph = message(g.graph, graphInitializer, t)
	return name
}

// Attribute is a setting of an operator: one number, or several.
type Attribute struct {
	Name string
	Int  int64
	Ints []int64 // instead of Int
}

// Node adds an operator with one output, and returns that.
func (g *Graph) Node(op, output string, inputs []string, attributes ...Attribute) string {
	var n []byte
	for _, in := range inputs {
		n = str(n, nodeInput, in)
	}
	n = str(str(str(n, nodeOutput, output), nodeName, output), nodeOp, op)
	for _, a := range attributes {
		b := str(nil, attributeName, a.Name)
		if a.Ints == nil {
			b = integer(integer(b, attributeInt, a.Int), attributeType, attributeTypeInt)
		} else {
			for _, v := range a.Ints {
				b = integer(b, attributeInts, v)
			}
			b = integer(b, attributeType, attributeTypeInts)
		}
		n = message(n, nodeAttribute, b)
	}
	g.graph = message(g.graph, graphNode, n)
	return output
}

// Bytes returns the file.
func (g *Graph) Bytes() []byte {
	b := integer(nil, modelIRVersion, irVersion)
	b = str(b, modelProducer, "azserve")
	b = message(b, modelGraph, g.graph)
	b = message(b, modelOpset, integer(nil, opsetVersion, opset))
	return append(b, g.metadata...)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func str(b []byte, field protowire.Number, s string) []byte { return message(b, field, []byte(s)) }

func integer(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}
