package gorgonia

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/azserve/azserve/internal/atomicfile"
)

// Names of the files of a model, in its folder.
const (
	WeightsFile = "model.safetensors"
	ConfigFile  = "config.json"
)

// Save writes the network to a folder, which is made if need be: the weights as safetensors, the
// shape as JSON. Each file is replaced at once, so that a reader sees the old or the new one.
func (n *Net) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cfg, err := json.MarshalIndent(n.cfg, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, ConfigFile), append(cfg, '\n')); err != nil {
		return err
	}
	return SaveParams(filepath.Join(dir, WeightsFile), n.Params())
}

// Load reads a network from a folder.
func Load(dir string) (*Net, error) {
	path := filepath.Join(dir, ConfigFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	var cfg Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, path, err)
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	params, err := LoadParams(filepath.Join(dir, WeightsFile))
	if err != nil {
		return nil, err
	}
	if got, want := count(params), cfg.count(); got != want { // before memory is taken for them
		return nil, fmt.Errorf("%w: %s: %d weights; want %d", ErrModel, dir, got, want)
	}
	n, err := NewNet(cfg, 0)
	if err != nil {
		return nil, err
	}
	if err := n.SetParams(ordered(params, n.params)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return n, nil
}

func count(params []Param) int {
	n := 0
	for _, p := range params {
		n += len(p.Data)
	}
	return n
}

// ordered returns params in the order of want, as far as they are there.
func ordered(params, want []Param) []Param {
	var out []Param
	for _, w := range want {
		for _, p := range params {
			if p.Name == w.Name {
				out = append(out, p)
			}
		}
	}
	return out
}

func sameShapes(got, want []Param) error {
	if len(got) != len(want) {
		return fmt.Errorf("%w: %d arrays; want %d", ErrModel, len(got), len(want))
	}
	for i, g := range got {
		if g.Name != want[i].Name || !slices.Equal(g.Shape, want[i].Shape) {
			return fmt.Errorf("%w: array %q %v; want %q %v", ErrModel, g.Name, g.Shape, want[i].Name,
				want[i].Shape)
		}
	}
	return nil
}

// safetensors: a little-endian uint64 with the length of a JSON header, the header, the numbers.
//
//	+-------------+--------------------------------------------------------+---------+
//	| header size | {"name": {"dtype", "shape", "data_offsets"}, ...}      | numbers |
//	| 8           | header size                                            | rest    |
//	+-------------+--------------------------------------------------------+---------+

type tensorEntry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// maxHeader is the largest header that is read: the format's own limit.
const maxHeader = 100_000_000

// SaveParams writes arrays as a safetensors file, replacing it at once.
func SaveParams(path string, params []Param) error {
	header, at := map[string]tensorEntry{}, 0
	for _, p := range params {
		n := 4 * len(p.Data)
		header[p.Name] = tensorEntry{"F32", p.Shape, [2]int{at, at + n}}
		at += n
	}
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	for _, p := range params {
		for _, v := range p.Data {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return atomicfile.Write(path, b)
}

// LoadParams reads the float32 arrays of a safetensors file, in the order of their numbers.
func LoadParams(path string) ([]Param, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	params, err := decodeParams(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, path, err)
	}
	return params, nil
}

// decodeParams reads a safetensors file from memory.
func decodeParams(b []byte) ([]Param, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("%d bytes; a safetensors file has at least 8", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader || int(n) > len(b)-8 {
		return nil, fmt.Errorf("header of %d bytes in a file of %d", n, len(b))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	delete(header, "__metadata__")
	body := b[8+n:]
	starts := map[string]int{}
	var out []Param
	for name, raw := range header {
		p, start, err := decodeTensor(name, raw, body)
		if err != nil {
			return nil, err
		}
		starts[name] = start
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Param) int { return starts[a.Name] - starts[b.Name] })
	return out, nil
}

func decodeTensor(name string, raw []byte, body []byte) (Param, int, error) {
	var e tensorEntry
	if err := json.Unmarshal(raw, &e); err != nil {
		return Param{}, 0, fmt.Errorf("array %q: %w", name, err)
	}
	lo, hi := e.Offsets[0], e.Offsets[1]
	count := 1
	for _, d := range e.Shape {
		if d < 0 || (d > 0 && count > len(body)/d) {
			return Param{}, 0, fmt.Errorf("array %q: shape %v is larger than the file", name, e.Shape)
		}
		count *= d
	}
	switch {
	case e.DType != "F32":
		return Param{}, 0, fmt.Errorf("array %q: dtype %q; want F32", name, e.DType)
	case lo < 0 || hi < lo || hi > len(body) || hi-lo != 4*count:
		return Param{}, 0, fmt.Errorf("array %q: bytes %d to %d of %d don't fit shape %v", name, lo, hi,
			len(body), e.Shape)
	}
	p := Param{name, e.Shape, make([]float32, count)}
	for i := range p.Data {
		p.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[lo+4*i:]))
	}
	return p, lo, nil
}
