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

// allFound looks the step's states up in the cache, and returns true if there is nothing left to ask.
// States that are equal are asked about once.
func (s *Search) allFound() bool {
	l, cache := &s.leaves, s.cfg.Cache
	f := &l.found
	f.ask, f.place, f.slots = f.ask[:0], f.place[:0], f.slots[:0]
	clear(f.asked)
	f.version = cache.Under(s.model)
	for _, at := range l.order {
		key := l.keys[at]
		row, twice := f.asked[key]
		hit := len(f.slots)
		if !twice {
			value, known := cache.Get(key, f.version, rowPart(f.logits, hit, s.actions))
			if !known {
				f.asked[key] = int32(len(f.ask))
				f.place = append(f.place, int32(len(f.ask)))
				f.ask = append(f.ask, at)
				continue
			}
			f.values[hit] = value
			f.slots = append(f.slots, l.slot[at])
			row = int32(-1 - hit)
		}
		s.stats.CacheHits++
		f.place = append(f.place, row)
	}
	if l.batch.Legal != nil {
		s.block.Arena.Mask(f.slots, f.legal)
	}
	return len(l.order) > 0 && len(f.ask) == 0
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
