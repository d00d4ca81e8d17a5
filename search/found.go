package search

// found is a step's dealings with the cache.
type found struct {
	version uint64
	ask     []int32          // entries of the step that the evaluator is asked about
	place   []int32          // [entries of order] a row of the batch, or -1 - hit
	asked   map[uint64]int32 // the batch's row of each key in it

	slots  []int32   // of the hits
	logits []float32 // [hits, A]
	values []float32 // [hits]
	legal  []bool    // [hits, A]
}

func (f *found) reserve(n, actions int) {
	f.ask, f.place, f.slots = make([]int32, 0, n), make([]int32, 0, n), make([]int32, 0, n)
	f.asked = make(map[uint64]int32, n)
	f.logits, f.values, f.legal = make([]float32, n*actions), make([]float32, n), make([]bool, n*actions)
}

// asked lists the entries of the step that the evaluator is asked about.
func (s *Search) asked() []int32 {
	if s.cfg.Cache == nil {
		return s.leaves.order
	}
	return s.leaves.found.ask
}

func (f *found) clear() {
	f.ask, f.place, f.slots = f.ask[:0], f.place[:0], f.slots[:0]
	clear(f.asked)
}

// find looks the entries of the step's order that are new up in the cache. States that are equal are asked about
// once. Where rows refill, those that the cache has get their answer at once; else they wait for the others,
// unless there are none.
func (s *Search) find() {
	l, f := &s.leaves, &s.leaves.found
	first := len(f.place)
	if first == 0 {
		f.version = s.cfg.Cache.Under(s.model)
	}
	hits := len(f.slots)
	for _, at := range l.order[first:] {
		f.place = append(f.place, s.findOne(at))
	}
	if l.batch.Legal != nil {
		s.block.Arena.Mask(f.slots[hits:], f.legal[hits*s.actions:])
	}
	if s.refills {
		s.takeHits(first)
	} else if len(f.ask) == 0 {
		s.applyAll(nil, nil, nil)
		l.order = l.order[:0]
		f.clear()
	}
}

// findOne returns the place of an entry's answer.
func (s *Search) findOne(at int32) int32 {
	l, f := &s.leaves, &s.leaves.found
	key := l.keys[at]
	if row, twice := f.asked[key]; twice {
		s.stats.CacheHits++
		return row
	}
	hit := len(f.slots)
	value, known := s.cfg.Cache.Get(key, f.version, rowPart(f.logits, hit, s.actions))
	if !known {
		row := int32(len(f.ask))
		f.asked[key] = row
		f.ask = append(f.ask, at)
		return row
	}
	s.stats.CacheHits++
	f.values[hit] = value
	f.slots = append(f.slots, l.slot[at])
	return int32(-1 - hit)
}

// takeHits gives the entries that the cache has their answers, and forgets them.
func (s *Search) takeHits(first int) {
	l, f := &s.leaves, &s.leaves.found
	kept := first
	for i := first; i < len(l.order); i++ {
		if f.place[i] < 0 {
			s.applyEntry(i, nil, nil, nil)
			l.again = append(l.again, l.row[l.order[i]])
			continue
		}
		l.order[kept], f.place[kept] = l.order[i], f.place[i]
		kept++
	}
	l.order, f.place, f.slots = l.order[:kept], f.place[:kept], f.slots[:0]
}

// remember stores the evaluator's answers that are numbers.
func (s *Search) remember(logits, values []float32, errs []error) {
	l := &s.leaves
	for i, at := range l.found.ask {
		row := rowPart(logits, i, s.actions)
		if s.isChance(at) {
			row = nil
		}
		if (errs == nil || errs[i] == nil) && checkAnswer(row, values[i]) == nil {
			s.cfg.Cache.Put(l.keys[at], l.found.version, row, values[i])
		}
	}
}
