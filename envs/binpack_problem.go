package envs

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/azserve/azserve/internal/rng"
)

// binProblem is what is to be packed. It never changes, so that states share it.
type binProblem struct {
	container [3]int32
	items     [][3]int32
	solution  [][3]int32 // lowest corner of each item in a known packing of all; nil if none is known
	key       uint64     // hash of container and items
}

func newBinProblem(container [3]int32, items, solution [][3]int32) *binProblem {
	p := &binProblem{container: container, items: items, solution: solution}
	for _, v := range append([][3]int32{container}, items...) {
		p.key = HashKey(p.key, uint64(v[0]), uint64(v[1]), uint64(v[2]))
	}
	return p
}

// BinPackInstance is a problem that was given: lengths along x, y and z.
type BinPackInstance struct {
	Container [3]int32   `json:"container"`
	Items     [][3]int32 `json:"items"`
	Solution  [][3]int32 `json:"solution"`
}

// UnmarshalJSON refuses names that it doesn't know.
func (p *BinPackInstance) UnmarshalJSON(b []byte) error {
	type plain BinPackInstance
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(p))
}

// binMaxLength keeps float32 volumes finite.
const binMaxLength = 1_000_000

// problem checks the instance.
func (p *BinPackInstance) problem() (*binProblem, error) {
	if err := positive("container", p.Container); err != nil {
		return nil, err
	}
	if len(p.Items) < 1 || len(p.Items) > binMaxItems {
		return nil, fmt.Errorf("%d items; want 1 to %d", len(p.Items), binMaxItems)
	}
	for i, v := range p.Items {
		if err := positive(fmt.Sprintf("items[%d]", i), v); err != nil {
			return nil, err
		}
	}
	if p.Solution != nil {
		if err := p.checkSolution(); err != nil {
			return nil, err
		}
	}
	return newBinProblem(p.Container, p.Items, p.Solution), nil
}

func positive(name string, v [3]int32) error {
	for _, x := range v {
		if x < 1 || x > binMaxLength {
			return fmt.Errorf("%s is %v; want lengths of 1 to %d", name, v, binMaxLength)
		}
	}
	return nil
}

func (p *BinPackInstance) checkSolution() error {
	if len(p.Solution) != len(p.Items) {
		return fmt.Errorf("solution has %d entries; want one an item, %d", len(p.Solution), len(p.Items))
	}
	boxes := make([]binBox, len(p.Items))
	for i, at := range p.Solution {
		boxes[i] = binBox{lo: at}
		for k := range 3 {
			if at[k] < 0 || at[k] > binMaxLength {
				return fmt.Errorf("solution[%d] is %v; want 0 to %d", i, at, binMaxLength)
			}
			boxes[i].hi[k] = at[k] + p.Items[i][k]
		}
		if !boxes[i].within(&binBox{hi: p.Container}) {
			return fmt.Errorf("solution[%d] = %v: the item sticks out of the container", i, at)
		}
		for j := range i {
			if boxes[i].overlaps(&boxes[j]) {
				return fmt.Errorf("solution[%d] = %v overlaps item %d", i, at, j)
			}
		}
	}
	return nil
}

// Solution returns a packing of all items of the state's problem, the lowest corner of each; nil if none
// is known. Read-only.
func (g *BinPack) Solution(s *BinPackState) [][3]int32 { return s.problem.solution }

// toyProblem is jumanji's toy generator: 20 items that fill the container.
func toyProblem() *binProblem {
	return newBinProblem([3]int32{5870, 2330, 2200}, [][3]int32{
		{2445, 1306, 1022}, {3083, 1429, 549}, {1950, 1301, 700}, {3425, 321, 1022}, {3083, 1165, 629},
		{2787, 2330, 200}, {3425, 291, 1022}, {2787, 1504, 157}, {2787, 826, 157}, {3425, 466, 363},
		{3083, 901, 549}, {2787, 1029, 700}, {1295, 1024, 1022}, {2787, 2330, 121}, {3083, 1165, 629},
		{3425, 466, 659}, {3425, 663, 1022}, {837, 1301, 700}, {1150, 1024, 1022}, {3425, 589, 1022},
	}, [][3]int32{
		{0, 0, 0}, {0, 0, 1022}, {3083, 0, 1022}, {2445, 0, 0}, {0, 0, 1571},
		{3083, 0, 1722}, {2445, 321, 0}, {3083, 0, 1922}, {3083, 1504, 1922}, {2445, 612, 0},
		{0, 1429, 1022}, {3083, 1301, 1022}, {0, 1306, 0}, {3083, 0, 2079}, {0, 1165, 1571},
		{2445, 612, 363}, {2445, 1078, 0}, {5033, 0, 1022}, {1295, 1306, 0}, {2445, 1741, 0},
	})
}

// randomProblem cuts the container into items, so that a perfect packing exists. Boxes are drawn by their
// length on a random axis, and cut once anywhere, or into a few equal parts.
func (g *BinPack) randomProblem(r *rng.Stream) *binProblem {
	boxes := []binBox{{hi: g.container}}
	want := g.items - g.c.SplitNumSameItems + 1
	for tries := 0; len(boxes) < want && tries < 1000*g.items; tries++ {
		axis := r.IntN(3)
		i := drawByLength(boxes, axis, r)
		var parts []binBox
		if r.Float64() < g.c.ProbSplitOneItem {
			parts = g.cutOnce(boxes[i], axis, r)
		} else {
			parts = cutEqually(boxes[i], axis, 1+r.IntN(g.c.SplitNumSameItems))
		}
		boxes = append(append(boxes[:i:i], boxes[i+1:]...), parts...)
	}
	items, solution := make([][3]int32, len(boxes)), make([][3]int32, len(boxes))
	for i, b := range boxes {
		solution[i] = b.lo
		for k := range 3 {
			items[i][k] = b.hi[k] - b.lo[k]
		}
	}
	return newBinProblem(g.container, items, solution)
}

func drawByLength(boxes []binBox, axis int, r *rng.Stream) int {
	total := 0
	for i := range boxes {
		total += int(boxes[i].hi[axis] - boxes[i].lo[axis])
	}
	k := r.IntN(total)
	for i := range boxes {
		if k -= int(boxes[i].hi[axis] - boxes[i].lo[axis]); k < 0 {
			return i
		}
	}
	return 0
}

// cutOnce cuts a box in two, at least the share split_eps of its length from either end.
func (g *BinPack) cutOnce(b binBox, axis int, r *rng.Stream) []binBox {
	lo, hi := b.lo[axis], b.hi[axis]
	margin := int32(g.c.SplitEps * float64(hi-lo))
	if hi-lo-2*margin < 1 {
		return []binBox{b}
	}
	at := lo + margin + int32(r.IntN(int(hi-lo-2*margin)))
	first, second := b, b
	first.hi[axis], second.lo[axis] = at, at
	return notEmpty(first, second)
}

func cutEqually(b binBox, axis, parts int) []binBox {
	lo, length := b.lo[axis], b.hi[axis]-b.lo[axis]
	var out []binBox
	for i := range parts {
		part := b
		part.lo[axis] = lo + int32(int(length)*i/parts)
		part.hi[axis] = lo + int32(int(length)*(i+1)/parts)
		out = append(out, part)
	}
	return notEmpty(out...)
}

func notEmpty(boxes ...binBox) []binBox {
	return slices.DeleteFunc(boxes, func(b binBox) bool { return b.empty() })
}

// binColumns are the columns of a CSV file of items, in any order.
var binColumns = []string{"Length", "Width", "Height", "Quantity"}

// readItems reads a CSV file with the columns Item_Name, Length, Width, Height and Quantity.
func readItems(path string) ([][3]int32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	r := csv.NewReader(f)
	r.TrimLeadingSpace = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var at [4]int
	for k, name := range binColumns {
		if at[k] = slices.Index(head, name); at[k] < 0 {
			return nil, fmt.Errorf("%s: no column %s; it has %q", path, name, head)
		}
	}
	var items [][3]int32
	for {
		row, err := r.Read()
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var v [4]int32
		for k := range v {
			n, err := strconv.ParseInt(row[at[k]], 10, 32)
			if err != nil || n < 1 || n > binMaxLength {
				line, _ := r.FieldPos(at[k])
				return nil, fmt.Errorf("%s:%d: %s is %q; want 1 to %d", path, line, binColumns[k], row[at[k]], binMaxLength)
			}
			v[k] = int32(n)
		}
		if len(items)+int(v[3]) > binMaxItems {
			return nil, fmt.Errorf("%s: more than %d items", path, binMaxItems)
		}
		for range v[3] {
			items = append(items, [3]int32{v[0], v[1], v[2]})
		}
	}
}
