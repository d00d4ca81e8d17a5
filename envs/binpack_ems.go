package envs

// carveOut takes an item's room out of the EMS. Every EMS that it overlaps is replaced by what is left of
// it on each of the six sides, as far as that isn't part of another EMS.
func (g *BinPack) carveOut(s *BinPackState, item *binBox) {
	var buffer [64]binBox
	hit := buffer[:0]
	for i := range s.ems {
		if b := &s.ems[i]; !b.empty() && b.overlaps(item) {
			hit = append(hit, *b)
			*b = binBox{}
		}
	}
	rest := leftovers(hit, item)
	for i := range rest {
		if !coveredBy(&rest[i], s.ems) {
			g.insert(s, rest[i])
		}
	}
}

// leftovers lists what an item leaves of the boxes it overlaps: below and above it on each axis, in the
// order of the slots; without those that lie strictly within another. Equal ones are all kept here.
func leftovers(hit []binBox, item *binBox) []binBox {
	var all []binBox
	for axis := range 3 {
		for _, above := range [2]bool{false, true} {
			for _, b := range hit {
				if above {
					b.lo[axis] = max(b.lo[axis], item.hi[axis])
				} else {
					b.hi[axis] = min(b.hi[axis], item.lo[axis])
				}
				if !b.empty() {
					all = append(all, b)
				}
			}
		}
	}
	out := make([]binBox, 0, len(all))
	for i := range all {
		inside := false
		for j := range all {
			inside = inside || all[i] != all[j] && all[i].within(&all[j])
		}
		if !inside {
			out = append(out, all[i])
		}
	}
	return out
}

// coveredBy says that a box lies within one of the active EMS.
func coveredBy(b *binBox, ems []binBox) bool {
	for i := range ems {
		if !ems[i].empty() && b.within(&ems[i]) {
			return true
		}
	}
	return false
}

// binMaxSlots bounds what grows, so that no packing, however strange, costs much more than others do.
const binMaxSlots = 4096

// maxSlots returns how many EMS there may be.
func (g *BinPack) maxSlots() int {
	if g.c.EMSOverflow == "grow" {
		return binMaxSlots
	}
	return g.c.MaxNumEMS
}

// insert puts an EMS into the first free slot. What happens when there is none is a keyword.
func (g *BinPack) insert(s *BinPackState, b binBox) {
	for i := range s.ems {
		if s.ems[i].empty() {
			s.ems[i] = b
			return
		}
	}
	if len(s.ems) < g.maxSlots() {
		s.ems = append(s.ems, b)
		return
	}
	s.overflow++
	if g.c.EMSOverflow != "drop_smallest" {
		s.ems[0] = b
		return
	}
	least := 0
	for i := range s.ems {
		if s.ems[i].volume() < s.ems[least].volume() {
			least = i
		}
	}
	if s.ems[least].volume() < b.volume() {
		s.ems[least] = b
	}
}
