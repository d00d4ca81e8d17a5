package statestore

import "github.com/azserve/azserve/envs"

// maxSpare is how many released blocks keep their memory for the next search.
const maxSpare = 8

// Block is private room for the states of one search: slots 0 to Len-1 of an arena of its own, so
// that its owner numbers its states as it likes and no handle is made for them. It counts against
// the store's budget until it is released. Not safe for concurrent use.
type Block struct {
	Arena envs.Arena
	store *Store
	n     int
}

// Block reserves room for n states. Their contents are undefined.
func (s *Store) Block(n int) (*Block, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if err := s.slots.room(n); err != nil {
		return nil, err
	}
	s.slots.held += n
	s.slots.note()
	s.blocks++
	return &Block{Arena: s.spareArena(n), store: s, n: n}, nil
}

// spareArena returns the smallest spare arena that fits, else a new one. Call with the lock held.
func (s *Store) spareArena(n int) envs.Arena {
	best := -1
	for i, a := range s.spare {
		if a.Cap() >= n && (best < 0 || a.Cap() < s.spare[best].Cap()) {
			best = i
		}
	}
	if best < 0 {
		return s.env.NewArena(n)
	}
	a := s.spare[best]
	last := len(s.spare) - 1
	s.spare[best] = s.spare[last]
	s.spare = s.spare[:last]
	return a
}

// Len returns the number of states that were reserved.
func (b *Block) Len() int { return b.n }

// Fill copies states of the store into slots of the block.
func (b *Block) Fill(slots, handles []int32) error {
	return b.store.read(handles, func(from []int32) error {
		return b.Arena.Copy(slots, b.store.arena, from)
	})
}

// Release gives the room back. The block must not be used afterwards; a second call does nothing.
func (b *Block) Release() {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.n == 0 {
		return
	}
	s.slots.held -= b.n
	s.blocks--
	if len(s.spare) < maxSpare && !s.closed {
		s.spare = append(s.spare, b.Arena)
	}
	b.n, b.Arena = 0, nil
}
