package envs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/azserve/azserve/internal/rng"
)

// BinPack packs boxes into a container, cell for cell as jumanji's BinPack does: the free room is kept as
// the set of maximal empty boxes (EMS), and an action puts an item into the lowest corner of one of them,
// unturned. The episode ends when no item fits any more, or with an action that can't be.
//
// Unlike jumanji's, the list of EMS grows as needed by default; jumanji has max_num_ems places and
// overwrites the first one when they run out, which its default settings meet (ems_overflow="jumanji"
// does the same).
type BinPack struct {
	c         BinPackConfig
	items     int         // places for items in the observation, I
	ems       int         // places for EMS in the observation, E
	fixed     *binProblem // unless random
	keywords  string
	container [3]int32
}

// BinPackState is a packing. Its fields are read by the rules only.
type BinPackState struct {
	problem  *binProblem // shared by clones, never changed
	ems      []binBox    // by slot; an empty box is an inactive slot
	order    []int32     // observed slots: all that are active, largest first, at most E
	spots    [][3]int32  // [number of items] lowest corner of each placed item; notPlaced otherwise
	packed   int32       // how many are placed
	volume   float32     // of what is placed, as a share of the container's
	overflow int32       // how often there was no slot for an EMS
	ended    bool
	invalid  bool // the last action couldn't be
	rng      rng.Stream
}

// notPlaced is the first number of an item's spot.
const notPlaced = -1

// binBox is a half-open box: lo is inside, hi is not. Lengths are integers, such as millimetres.
type binBox struct{ lo, hi [3]int32 }

func (b *binBox) empty() bool {
	return b.lo[0] >= b.hi[0] || b.lo[1] >= b.hi[1] || b.lo[2] >= b.hi[2]
}

// within says that b lies in c, touching its sides or not.
func (b *binBox) within(c *binBox) bool {
	for k := range 3 {
		if b.lo[k] < c.lo[k] || b.hi[k] > c.hi[k] {
			return false
		}
	}
	return true
}

// overlaps says that b and c share some room.
func (b *binBox) overlaps(c *binBox) bool {
	for k := range 3 {
		if b.lo[k] >= c.hi[k] || c.lo[k] >= b.hi[k] {
			return false
		}
	}
	return true
}

// volume is rounded after each product, as jumanji's is: ties between large volumes depend on it.
func (b *binBox) volume() float32 {
	return volumeOf([3]int32{b.hi[0] - b.lo[0], b.hi[1] - b.lo[1], b.hi[2] - b.lo[2]})
}

func volumeOf(size [3]int32) float32 {
	return float32(float32(size[0])*float32(size[1])) * float32(size[2])
}

// fits says that an item of this size fits into b.
func (b *binBox) fits(size *[3]int32) bool {
	return size[0] <= b.hi[0]-b.lo[0] && size[1] <= b.hi[1]-b.lo[1] && size[2] <= b.hi[2]-b.lo[2]
}

// Reset draws the first problem of a seed.
func (g *BinPack) Reset(s *BinPackState, seed uint64) {
	s.rng = rng.New(seed)
	g.Restart(s)
}

// Restart draws the next problem from the state's own random stream.
func (g *BinPack) Restart(s *BinPackState) {
	s.problem = g.fixed
	if s.problem == nil {
		s.problem = g.randomProblem(&s.rng)
	}
	g.begin(s)
}

// begin empties the container.
func (g *BinPack) begin(s *BinPackState) {
	s.ems = append(s.ems[:0], binBox{hi: s.problem.container})
	s.spots = s.spots[:0]
	for range s.problem.items {
		s.spots = append(s.spots, [3]int32{notPlaced})
	}
	s.packed, s.volume, s.overflow, s.invalid = 0, 0, 0, false
	g.sort(s)
	s.ended = !g.anyFits(s)
}

// sort lists the observed EMS.
func (g *BinPack) sort(s *BinPackState) {
	s.order = s.order[:0]
	for i := range s.ems {
		if !s.ems[i].empty() {
			s.order = append(s.order, int32(i))
		}
	}
	slices.SortStableFunc(s.order, func(a, b int32) int { return cmp.Compare(s.ems[b].volume(), s.ems[a].volume()) })
	s.order = s.order[:min(len(s.order), g.ems)]
}

func (g *BinPack) anyFits(s *BinPackState) bool {
	for i := range s.spots {
		for e := range s.order {
			if g.fits(s, i, e) {
				return true
			}
		}
	}
	return false
}

// fits says that item i isn't placed yet and fits into the e-th observed EMS.
func (g *BinPack) fits(s *BinPackState, i, e int) bool {
	return i < len(s.spots) && e < len(s.order) && s.spots[i][0] == notPlaced &&
		s.ems[s.order[e]].fits(&s.problem.items[i])
}

// Step puts item action / E into the observed EMS number action % E.
func (g *BinPack) Step(s *BinPackState, action int32) Outcome {
	if s.ended {
		return Outcome{Terminated: true}
	}
	i, e := int(action)/g.ems, int(action)%g.ems
	if s.invalid = !g.fits(s, i, e); s.invalid {
		s.ended = true
		return Outcome{Reward: g.reward(s, 0), Terminated: true}
	}
	size := s.problem.items[i]
	item := binBox{lo: s.ems[s.order[e]].lo}
	for k := range 3 {
		item.hi[k] = item.lo[k] + size[k]
	}
	s.spots[i] = item.lo
	s.packed++
	share := volumeOf(size) / volumeOf(s.problem.container)
	s.volume += share
	g.carveOut(s, &item)
	g.sort(s)
	s.ended = !g.anyFits(s)
	return Outcome{Reward: g.reward(s, share), Terminated: s.ended}
}

// reward is what placing this share of the container brings, or at the end the share that is used.
func (g *BinPack) reward(s *BinPackState, share float32) float32 {
	switch {
	case g.c.Reward == "dense":
		return share
	case s.ended:
		return s.volume
	}
	return 0
}

// Mask allows the items that are left in the EMS that hold them.
func (g *BinPack) Mask(s *BinPackState, legal []bool) {
	clear(legal)
	if s.ended {
		return
	}
	for i := range s.spots {
		for e := range s.order {
			legal[i*g.ems+e] = g.fits(s, i, e)
		}
	}
}

// Legal is Mask for one action.
func (g *BinPack) Legal(s *BinPackState, action int32) bool {
	return !s.ended && g.fits(s, int(action)/g.ems, int(action)%g.ems)
}

// ConditionalMask looks at one item, or at all of them.
func (g *BinPack) ConditionalMask(s *BinPackState, prefix []int32, out []bool) {
	clear(out)
	switch {
	case s.ended:
	case len(prefix) == 1:
		for e := range s.order {
			out[e] = g.fits(s, int(prefix[0]), e)
		}
	default:
		for i := range s.spots {
			for e := 0; e < len(s.order) && !out[i]; e++ {
				out[i] = g.fits(s, i, e)
			}
		}
	}
}

// Hash is of the items, where they lie, and the slots of the EMS, which decide what comes next.
func (g *BinPack) Hash(s *BinPackState) uint64 {
	h := s.problem.key
	if s.ended {
		h++
	}
	add := func(v [3]int32) {
		h = hashStep(hashStep(h, uint64(uint32(v[0]))<<32|uint64(uint32(v[1]))), uint64(uint32(v[2])))
	}
	for _, spot := range s.spots {
		add(spot)
	}
	for _, b := range s.ems {
		add(b.lo)
		add(b.hi)
	}
	return h
}

// Clone copies a packing; the problem is shared.
func (g *BinPack) Clone(dst, src *BinPackState) {
	ems, order, spots := dst.ems, dst.order, dst.spots
	*dst = *src
	dst.ems = append(ems[:0], src.ems...)
	dst.order = append(order[:0], src.order...)
	dst.spots = append(spots[:0], src.spots...)
}

// ActionName is the item's number and the place.
func (g *BinPack) ActionName(s *BinPackState, action int32) string {
	i, e := int(action)/g.ems, int(action)%g.ems
	if e >= len(s.order) {
		return fmt.Sprintf("item %d into no space (%d)", i, e)
	}
	at := s.ems[s.order[e]].lo
	return fmt.Sprintf("item %d at %d,%d,%d in space %d", i, at[0], at[1], at[2], e)
}
