package evaluator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
)

// Errors of a batcher.
var (
	ErrBatcher = errors.New("evaluator: bad batcher setting")
	ErrBusy    = errors.New("evaluator: the queue is full")
	ErrClosed  = errors.New("evaluator: closed")
)

// BatcherConfig is the settings of a [Batcher]. The zero value of a field means its default.
type BatcherConfig struct {
	MaxBatch int           // rows of a batch at most; default 256
	MaxWait  time.Duration // how long a row waits for others at most; default 2 ms
	Queue    int           // rows that may wait; default 16 * MaxBatch
	Streams  int           // batches that are evaluated at the same time; default 1
	Ahead    int           // batches that may be on their way beside those; default 0

	// Refuse makes a request that finds the queue full fail with ErrBusy. Else it waits for room.
	Refuse bool
}

func (c BatcherConfig) withDefaults() BatcherConfig {
	if c.MaxBatch == 0 {
		c.MaxBatch = 256
	}
	if c.MaxWait == 0 {
		c.MaxWait = 2 * time.Millisecond
	}
	if c.Queue == 0 {
		c.Queue = 16 * c.MaxBatch
	}
	if c.Streams == 0 {
		c.Streams = 1
	}
	return c
}

func (c *BatcherConfig) validate() error {
	switch {
	case c.MaxBatch < 1:
		return fmt.Errorf("%w: MaxBatch %d; want at least 1", ErrBatcher, c.MaxBatch)
	case c.MaxWait < 0:
		return fmt.Errorf("%w: MaxWait %v; want 0 or more", ErrBatcher, c.MaxWait)
	case c.Queue < 1:
		return fmt.Errorf("%w: Queue %d; want at least 1", ErrBatcher, c.Queue)
	case c.Streams < 1 || c.Ahead < 0:
		return fmt.Errorf("%w: Streams %d, Ahead %d; want at least 1 and 0", ErrBatcher, c.Streams, c.Ahead)
	}
	return nil
}

// Batcher merges the requests of many searches and clients into batches for one evaluator, whose device is
// used best by large ones. A batch begins when it is full, when its oldest row has waited for MaxWait, or when
// everyone who might add to it is waiting already (see [Client.Enter]): with one search alone nothing waits.
//
// Batches that would only wait for their turn behind others (Ahead) begin when they are full, or when nobody is left
// who could add to them and no other waits yet: begun sooner, they would make small batches of what comes a moment
// later.
//
// A batch is made of requests of the highest priority first, and among those each client gets the same number of
// rows, as long as it has any. Requests with different weights (Pinner) are never in one batch. An error, or a
// panic, of the evaluator fails the requests of its batch and no others.
type Batcher struct {
	ev   *weights // as they are at each call
	spec *envs.Spec
	cfg  BatcherConfig

	mu      sync.Mutex // guards everything below
	work    *sync.Cond // there may be a batch to make
	room    *sync.Cond // the queue may have room
	queue   []*request // that have rows to give away, in order of arrival
	rows    int        // of these that wait
	waiters []*request // for room, in order of arrival
	clients map[*Client]struct{}
	timer   *time.Timer // wakes work when the oldest row has waited long enough
	stats   BatcherStats
	closed  bool
	most    int // rows of a batch, at most cfg.MaxBatch
	devices int // batches that are evaluated at the same time
	wanted  int // streams; more than that end
	running int // streams
	busy    int // streams with a batch

	ctx     context.Context // of all batches; ends with Close
	cancel  context.CancelFunc
	streams sync.WaitGroup
}

// BatcherStats counts what a batcher did.
type BatcherStats struct {
	Requests, Rows, Batches   int           // done
	Full, Waited, Everyone    int           // batches by what began them
	Failed                    int           // batches that ended with an error
	Refused, Cancelled        int           // requests
	QueueRows, QueueRequests  int           // waiting now
	Wait, Busy                time.Duration // summed: of requests until their first batch, of evaluations
	LargestBatch, MaxRowsWait int           // the most that there ever were
}

// Fill is how full batches were, 0 to 1.
func (s *BatcherStats) Fill(maxBatch int) float64 {
	return float64(s.Rows) / float64(max(1, s.Batches*maxBatch))
}

// NewBatcher starts a batcher for an evaluator of an environment that reads observations. Close ends it.
func NewBatcher(ev Evaluator, spec *envs.Spec, cfg BatcherConfig) (*Batcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if ev.Needs().States {
		return nil, fmt.Errorf("%w: the evaluator reads states, which belong to one search each; want one that reads "+
			"observations", ErrBatcher)
	}
	b := &Batcher{ev: &weights{ev: ev}, spec: spec, cfg: cfg, clients: map[*Client]struct{}{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.work, b.room = sync.NewCond(&b.mu), sync.NewCond(&b.mu)
	b.timer = time.AfterFunc(time.Hour, b.wake)
	b.timer.Stop()
	b.Resize(cfg.Streams, cfg.Ahead, cfg.MaxBatch)
	return b, nil
}

// Resize changes how many batches are evaluated at the same time, how many may be on their way beside those, and how
// many rows one has at most, which the MaxBatch of the configuration bounds: for evaluators that come and go.
func (b *Batcher) Resize(streams, ahead, maxBatch int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.devices, b.most = max(1, streams), min(max(1, maxBatch), b.cfg.MaxBatch)
	b.wanted = b.devices + max(0, ahead)
	for ; !b.closed && b.running < b.wanted; b.running++ {
		b.streams.Go(b.stream)
	}
	b.work.Broadcast()
}

func (b *Batcher) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work.Broadcast()
}

// Stats returns what was done so far.
func (b *Batcher) Stats() BatcherStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.QueueRows, s.QueueRequests = b.rows, len(b.queue)
	return s
}

// Close ends the batcher: what waits fails with ErrClosed, and so does what is being evaluated, which is told to
// stop and waited for. A second call does nothing.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	for _, r := range b.queue {
		r.fail(ErrClosed)
	}
	b.queue, b.rows = nil, 0
	b.timer.Stop()
	b.cancel()
	b.work.Broadcast()
	b.room.Broadcast()
	b.mu.Unlock()
	b.streams.Wait()
}

// Client is somebody who evaluates through a batcher; it is an Evaluator, safe for concurrent use.
type Client struct {
	b        *Batcher
	priority int

	// guarded by Batcher.mu
	present int // users that said they are there (Enter)
	calls   int // calls of Evaluate going on
	taken   int // rows in the batch that is being made
}

// Client adds a client. Requests of a higher priority always go first. Close forgets it.
func (b *Batcher) Client(priority int) *Client {
	c := &Client{b: b, priority: priority}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients[c] = struct{}{}
	return c
}

// Close forgets the client, which must have no call going on.
func (c *Client) Close() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	delete(c.b.clients, c)
	c.b.work.Broadcast()
}

// Entrant is an evaluator that wants to know how many users it has.
type Entrant interface {
	// Enter says that one more user is there, who calls Evaluate again and again until leave.
	Enter() (leave func())
}

// Enter tells an evaluator that a user is there, if it wants to know.
func Enter(ev Evaluator) (leave func()) {
	if e, ok := ev.(Entrant); ok {
		return e.Enter()
	}
	return func() {}
}

// Enter says that a user is there, who will call Evaluate again and again until leave: while it is busy
// elsewhere, a batch may wait for its rows.
func (c *Client) Enter() (leave func()) {
	c.change(1)
	return sync.OnceFunc(func() { c.change(-1) })
}

func (c *Client) change(by int) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.present += by
	c.b.work.Broadcast()
}

// Needs is the observations.
func (*Client) Needs() Needs { return Needs{Obs: true} }

// Evaluate puts the rows into the queue and waits for their answers. When ctx ends, rows that wait are
// withdrawn, and the answers of others are dropped.
func (c *Client) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	return c.evaluate(ctx, c.b.ev, in, out)
}

// Pin pins the evaluator behind the batcher.
func (c *Client) Pin() (Evaluator, uint64, func()) {
	ev, version, release := Pin(c.b.ev.ev)
	w := &weights{ev: ev, version: version, release: release}
	return &pinnedClient{c, w}, version, func() {
		c.b.mu.Lock()
		w.released = true
		free := w.free()
		c.b.mu.Unlock()
		free()
	}
}

// pinnedClient is a client with weights of its own.
type pinnedClient struct {
	*Client
	weights *weights
}

func (p *pinnedClient) Evaluate(ctx context.Context, in *Batch, out *Output) error {
	return p.evaluate(ctx, p.weights, in, out)
}

// Pin is itself: its weights don't change any more.
func (p *pinnedClient) Pin() (Evaluator, uint64, func()) { return p, p.weights.version, func() {} }
