package envs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The bytes of a packing, all numbers little-endian: the container (3 x 4), the number of items (4), each
// item's size and spot (6 x 4), whether a solution follows (1) and it (3 x 4 an item), the number of slots
// (4) and their boxes (6 x 4), volume (4), overflow (4), flags (1), random stream (2 x 8).

// Append appends the bytes.
func (g *BinPack) Append(dst []byte, s *BinPackState) []byte {
	triple := func(v [3]int32) {
		for _, x := range v {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(x))
		}
	}
	number := func(n uint32) { dst = binary.LittleEndian.AppendUint32(dst, n) }
	triple(s.problem.container)
	number(uint32(len(s.spots)))
	for i, spot := range s.spots {
		triple(s.problem.items[i])
		triple(spot)
	}
	dst = append(dst, flags(s.problem.solution != nil))
	for _, at := range s.problem.solution {
		triple(at)
	}
	number(uint32(len(s.ems)))
	for _, b := range s.ems {
		triple(b.lo)
		triple(b.hi)
	}
	number(math.Float32bits(s.volume))
	number(uint32(s.overflow))
	dst = append(dst, flags(s.ended, s.invalid))
	dst = binary.LittleEndian.AppendUint64(dst, s.rng.Key)
	return binary.LittleEndian.AppendUint64(dst, s.rng.N)
}

// flags packs booleans, the first one lowest.
func flags(bits ...bool) (b byte) {
	for i, bit := range bits {
		if bit {
			b |= 1 << i
		}
	}
	return b
}

// binReader reads numbers from bytes; after the end it gives zeros and remembers that.
type binReader struct {
	src   []byte
	short bool
}

func (r *binReader) take(n int) []byte {
	if len(r.src) < n {
		r.short, r.src = true, nil
		return make([]byte, n)
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b
}

func (r *binReader) byte() byte     { return r.take(1)[0] }
func (r *binReader) number() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *binReader) long() uint64   { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *binReader) triple() (v [3]int32) {
	for k := range v {
		v[k] = int32(r.number())
	}
	return v
}

// count reads a number of entries of so many bytes each, which must be there.
func (r *binReader) count(size int) int {
	n := int(r.number())
	if n > len(r.src)/size {
		r.short = true
		return 0
	}
	return n
}

// Decode reads the bytes, and refuses what play can't reach.
func (g *BinPack) Decode(s *BinPackState, src []byte) error {
	r := &binReader{src: src}
	*s = BinPackState{}
	in := BinPackInstance{Container: r.triple()}
	for range r.count(24) {
		in.Items = append(in.Items, r.triple())
		s.spots = append(s.spots, r.triple())
	}
	if r.byte() == 1 {
		for range in.Items {
			in.Solution = append(in.Solution, r.triple())
		}
	}
	for range r.count(24) {
		s.ems = append(s.ems, binBox{r.triple(), r.triple()})
	}
	s.volume = math.Float32frombits(r.number())
	s.overflow = int32(r.number())
	bits := r.byte()
	s.rng.Key, s.rng.N = r.long(), r.long()
	if r.short || len(r.src) > 0 || bits > 3 {
		return errors.New("the number of bytes doesn't fit the number of items and spaces")
	}
	var err error
	if s.problem, err = in.problem(); err != nil {
		return err
	}
	s.ended, s.invalid = bits&1 == 1, bits&2 == 2
	return g.check(s)
}

// check refuses a decoded packing that can't be, and fills what follows from the rest.
func (g *BinPack) check(s *BinPackState) error {
	p := s.problem
	switch {
	case g.fixed != nil && p.key != g.fixed.key, g.fixed == nil && p.container != g.container:
		return errors.New("of another container or other items")
	case len(p.items) > g.items:
		return fmt.Errorf("%d items; want at most %d", len(p.items), g.items)
	case len(s.ems) > g.maxSlots():
		return fmt.Errorf("%d slots of empty space; want at most %d", len(s.ems), g.maxSlots())
	case !(s.volume >= 0 && s.volume < 1.001) || s.overflow < 0:
		return fmt.Errorf("volume %g, overflow %d", s.volume, s.overflow)
	}
	placed, err := placedItems(s)
	if err != nil {
		return err
	}
	s.packed = int32(len(placed))
	volume := float32(0)
	for i := range placed {
		volume += placed[i].volume() / volumeOf(p.container)
	}
	if math.Abs(float64(volume-s.volume)) > 1e-3 {
		return fmt.Errorf("volume %g; the items that are placed have %g", s.volume, volume)
	}
	for i := range s.ems {
		if err := checkSpace(&s.ems[i], p, placed); err != nil {
			return fmt.Errorf("slot %d: %w", i, err)
		}
		for j := range s.ems[:i] {
			if a, b := &s.ems[i], &s.ems[j]; !a.empty() && !b.empty() && (a.within(b) || b.within(a)) {
				return fmt.Errorf("slots %d and %d: one lies within the other", j, i)
			}
		}
	}
	g.sort(s)
	if ended := s.invalid || !g.anyFits(s); ended != s.ended {
		return fmt.Errorf("ended is %v; want %v", s.ended, ended)
	}
	return nil
}

func placedItems(s *BinPackState) (placed []binBox, err error) {
	for i, at := range s.spots {
		if at == [3]int32{notPlaced} {
			continue
		}
		b := binBox{lo: at}
		for k := range 3 {
			if at[k] < 0 || at[k] > binMaxLength {
				return nil, fmt.Errorf("item %d lies at %v", i, at)
			}
			b.hi[k] = at[k] + s.problem.items[i][k]
		}
		if !b.within(&binBox{hi: s.problem.container}) {
			return nil, fmt.Errorf("item %d at %v sticks out of the container", i, at)
		}
		for j := range placed {
			if b.overlaps(&placed[j]) {
				return nil, fmt.Errorf("item %d at %v overlaps another", i, at)
			}
		}
		placed = append(placed, b)
	}
	return placed, nil
}

func checkSpace(b *binBox, p *binProblem, placed []binBox) error {
	if *b == (binBox{}) {
		return nil
	}
	if b.empty() || !b.within(&binBox{hi: p.container}) {
		return fmt.Errorf("%v is no space in the container", *b)
	}
	for i := range placed {
		if b.overlaps(&placed[i]) {
			return fmt.Errorf("%v overlaps an item", *b)
		}
	}
	return nil
}
