package selfplay

import (
	"context"
	"sync"

	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
)

// queue gives away the numbers of games.
type queue struct {
	mu        sync.Mutex // guards next
	next, end int
}

func (q *queue) take() (int, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == q.end {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

// table is the games that one thread plays side by side. They share one search, a row each, and its batches. A game
// whose row is done makes its move and goes on with its next position at once, and a game that has ended makes
// room for the next one: batches are full until there are no more games to begin.
type table struct {
	g       *Games
	ev      evaluator.Evaluator
	version uint64
	queue   *queue

	s     *search.Search
	games []*live // by row of the search; nil where there is none any more
	fast  []bool  // [rows] the row's search isn't learnt from
	done  []*Episode
	stats search.Stats // as they were at the last count
}

// play plays up to n games side by side, until there are none left to begin.
func (t *table) play(ctx context.Context, n int) error {
	for len(t.games) < n {
		l, err := t.next()
		if err != nil || l == nil {
			if err != nil {
				return err
			}
			break
		}
		t.games = append(t.games, l)
	}
	if len(t.games) == 0 {
		return nil
	}
	roots, fast := t.g.roots(t.games)
	t.fast = fast
	var err error
	if t.s, err = search.New(t.g.store, roots, t.g.cfg.Search, t.ev.Needs()); err != nil {
		return err
	}
	t.s.Pinned(t.version)
	for {
		if _, err := t.s.Round(ctx, t.ev); err != nil {
			return err
		}
		if err := t.s.Err(); err != nil {
			return err
		}
		if more, err := t.move(); err != nil || !more {
			return err
		}
	}
}

// next begins the next game; nil if there is none.
func (t *table) next() (*live, error) {
	index, ok := t.queue.take()
	if !ok {
		return nil, nil
	}
	return t.g.start(uint64(index))
}

// move makes the moves of the rows that are done, and gives them their next positions. It returns whether any
// game goes on.
func (t *table) move() (more bool, err error) {
	var rows []int32
	var games []*live
	for _, row := range t.s.Finished(nil) {
		if t.games[row] != nil {
			rows, games = append(rows, row), append(games, t.games[row])
		}
	}
	if len(rows) > 0 {
		actions, err := t.results(rows, games)
		if err != nil {
			return false, err
		}
		if err := t.g.apply(games, actions, func(e *Episode) { t.done = append(t.done, e) }); err != nil {
			return false, err
		}
		if err := t.refill(rows, games); err != nil {
			return false, err
		}
	}
	t.count(len(rows))
	for _, l := range t.games {
		more = more || l != nil
	}
	return more, nil
}

// results notes what the searches of rows found, and returns the actions.
func (t *table) results(rows []int32, games []*live) ([]int32, error) {
	n, a, cfg := len(rows), t.g.store.Env().Spec().NumActions, &t.g.cfg
	out := search.NewResult(n, a)
	out.Proven = make([]bool, n)
	for i, row := range rows {
		if err := t.s.RowResult(int(row), out, i); err != nil {
			return nil, err
		}
		l := games[i]
		l.past = append(l.past, ply{
			state: l.state, policy: out.Weights[i*a : (i+1)*a], value: out.Value[i], proven: out.Proven[i],
			fast: t.fast[row], version: out.Version,
		})
		if cfg.Search.Policy != tree.Gumbel && cfg.Search.LCB == 0 && l.ply >= uint64(cfg.TemperaturePlies) {
			out.Action[i] = int32(vecmath.ArgMax(out.Weights[i*a : (i+1)*a]))
		}
	}
	return out.Action, nil
}

// refill gives rows their games' next positions, or new games.
func (t *table) refill(rows []int32, games []*live) error {
	var again []int32
	var going []*live
	for i, row := range rows {
		l := games[i]
		if l.state == over {
			var err error
			if l, err = t.next(); err != nil {
				return err
			}
			t.games[row] = l
		}
		if l != nil {
			again, going = append(again, row), append(going, l)
		}
	}
	if len(again) == 0 {
		return nil
	}
	roots, fast := t.g.roots(going)
	for i, row := range again {
		t.fast[row] = fast[i]
	}
	return t.s.Replace(again, roots)
}

// count brings the counters up to date after some moves.
func (t *table) count(moves int) {
	now, c := t.s.Stats(), &t.g.Counters
	c.Positions.Add(int64(moves))
	c.Simulations.Add(int64(now.Simulations - t.stats.Simulations))
	c.Evaluations.Add(int64(now.Evaluations - t.stats.Evaluations))
	c.Batches.Add(int64(now.Batches - t.stats.Batches))
	t.stats = now
}

// close frees the search and the games that haven't ended.
func (t *table) close() {
	if t.s != nil {
		t.s.Close()
	}
	for _, l := range t.games {
		if l != nil {
			t.g.drop(l)
		}
	}
}
