package server

import (
	"context"
	"sync"
	"time"

	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
)

// admission lets a bounded number of calls work at the same time, and a bounded number wait for that. Clients take
// turns: one that sends a thousand calls doesn't keep another waiting behind them. When the queue is full, the
// newest call of the client with the most waiting calls is refused.
type admission struct {
	mu       sync.Mutex // guards everything below
	limit    int
	room     int // of the queue
	running  int
	queued   int
	clients  map[string]*waitingLine
	order    []*waitingLine // with waiting calls, in turn
	closed   bool
	rate     float64 // calls that ended a second, for the hint; smoothed
	lastDone time.Time
}

// waitingLine is the calls of one client that wait.
type waitingLine struct {
	client string
	calls  []*waitingCall
}

type waitingCall struct {
	turn chan error // nil: it may go on
}

func newAdmission(limit, room int) *admission {
	return &admission{limit: limit, room: room, clients: map[string]*waitingLine{}}
}

// full is why a call of a client would be refused, nil if it wouldn't.
func (a *admission) full(client string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running < a.limit || a.queued < a.room || a.victim(client) != nil {
		return nil
	}
	return a.overloaded()
}

// victim is the line that gives way to a call of a client in a full queue: one with at least two more than his. Call
// with mu held.
func (a *admission) victim(client string) *waitingLine {
	own := 0
	if l := a.clients[client]; l != nil {
		own = len(l.calls)
	}
	var longest *waitingLine
	for _, l := range a.order {
		if longest == nil || len(l.calls) > len(longest.calls) {
			longest = l
		}
	}
	if longest == nil || len(longest.calls) < own+2 {
		return nil
	}
	return longest
}

// overloaded is the error of a refused call, with a guess when there will be room. Call with mu held.
func (a *admission) overloaded() error {
	e := wire.New(errcode.Overloaded, "%d calls are being worked on and %d wait; try again later", a.running, a.queued)
	wait := 100 * time.Millisecond
	if a.rate > 0 {
		wait = time.Duration(float64(a.queued) / a.rate * float64(time.Second) / 2)
	}
	e.RetryAfter = min(max(wait, 10*time.Millisecond), 5*time.Second)
	return e
}

// enter waits for a client's turn. done must be called when the work is done.
func (a *admission) enter(ctx context.Context, client string) (done func(), err error) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil, errDraining()
	}
	if a.running < a.limit && a.queued == 0 {
		a.running++
		a.mu.Unlock()
		return sync.OnceFunc(a.leave), nil
	}
	if a.queued >= a.room {
		v := a.victim(client)
		if v == nil {
			defer a.mu.Unlock()
			return nil, a.overloaded()
		}
		last := v.calls[len(v.calls)-1]
		a.remove(v, last)
		last.turn <- a.overloaded()
	}
	c := &waitingCall{make(chan error, 1)}
	a.push(client, c)
	a.mu.Unlock()
	select {
	case err := <-c.turn:
		if err != nil {
			return nil, err
		}
		return sync.OnceFunc(a.leave), nil
	case <-ctx.Done():
		a.giveUp(client, c)
		return nil, ctx.Err()
	}
}

// push puts a call at the end of its client's line. Call with mu held.
func (a *admission) push(client string, c *waitingCall) {
	l := a.clients[client]
	if l == nil {
		l = &waitingLine{client: client}
		a.clients[client] = l
		a.order = append(a.order, l)
	}
	l.calls = append(l.calls, c)
	a.queued++
}

// remove takes a call out of its line, and an empty line away. Call with mu held.
func (a *admission) remove(l *waitingLine, c *waitingCall) bool {
	for i, x := range l.calls {
		if x != c {
			continue
		}
		l.calls = append(l.calls[:i], l.calls[i+1:]...)
		a.queued--
		if len(l.calls) == 0 {
			delete(a.clients, l.client)
			for k, o := range a.order {
				if o == l {
					a.order = append(a.order[:k], a.order[k+1:]...)
					break
				}
			}
		}
		return true
	}
	return false
}

// giveUp takes back a call whose caller has left.
func (a *admission) giveUp(client string, c *waitingCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.clients[client]; l != nil && a.remove(l, c) {
		return
	}
	if err := <-c.turn; err == nil { // its turn came meanwhile
		a.next()
	}
}

// leave ends a call's work.
func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(a.lastDone).Seconds(); !a.lastDone.IsZero() && gap > 0 {
		a.rate += (1/gap - a.rate) * min(1, gap*10)
	}
	a.lastDone = now
	a.next()
}

// next gives a place that became free to the next client's oldest call. Call with mu held.
func (a *admission) next() {
	if a.running > a.limit || len(a.order) == 0 {
		a.running--
		return
	}
	l := a.order[0]
	c := l.calls[0]
	if a.remove(l, c) && len(l.calls) > 0 { // to the end of the turn
		a.order = append(a.order[1:], l)
	}
	c.turn <- nil
}

// close refuses what waits, and all that comes.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for len(a.order) > 0 {
		l := a.order[0]
		c := l.calls[0]
		a.remove(l, c)
		c.turn <- errDraining()
	}
}

func (a *admission) counts() (running, queued int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued
}

func errDraining() error {
	return wire.New(errcode.Unavailable, "the server is draining; try another, or again later")
}
