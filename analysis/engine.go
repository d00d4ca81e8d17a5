package analysis

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/safe"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// Config is an engine's settings.
type Config struct {
	Env       *envs.Env
	Store     *statestore.Store   // of the environment
	Evaluator evaluator.Evaluator // several searches use it at the same time
	Model     string              // its name
	Version   string              // of azserve
	Threads   int                 // positions that are searched at the same time; at least 1
	Search    search.Config       // settings of queries that don't say
	Cache     *evaluator.Cache    // nil: none
}

// Engine answers queries.
type Engine struct {
	cfg Config

	accepting sync.Mutex // held while a line is accepted; taken before mu

	mu     sync.Mutex // guards everything below
	wake   *sync.Cond
	jobs   []*job // that wait, in the order in which they came
	active []*job
	ended  bool // no more jobs will come
	gone   bool // the caller has left: nothing is accepted or written any more
	out    *json.Encoder
	failed error // of the output
}

// job is a position to be searched.
type job struct {
	q        *query
	turn     int
	priority int
	state    int32
	cfg      search.Config
	invalid  []bool
	stop     bool // guarded by Engine.mu: end with what there is
}

// Run reads queries until the input ends and everything is answered, or until ctx ends.
func Run(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	e := &Engine{cfg: cfg, out: json.NewEncoder(out)}
	e.wake = sync.NewCond(&e.mu)
	stop := context.AfterFunc(ctx, e.abandon)
	defer stop()
	var workers sync.WaitGroup
	for range cfg.Threads {
		workers.Go(func() { e.work(ctx) })
	}
	// A read that goes on when ctx ends can't be ended: it ends with the input.
	read := make(chan error, 1)
	go func() { read <- e.read(ctx, in) }()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	e.mu.Lock()
	e.ended = true
	e.wake.Broadcast()
	e.mu.Unlock()
	workers.Wait()
	e.accepting.Lock() // a line may be in progress
	defer e.accepting.Unlock()
	e.abandon()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	return errors.Join(err, e.failed)
}

// longestLine is how many bytes a query may have.
const longestLine = 16 << 20

func (e *Engine) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), longestLine)
	for lines.Scan() && ctx.Err() == nil {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			e.accept(line)
		}
	}
	return lines.Err()
}

// abandon ends what is being searched, and forgets what waits.
func (e *Engine) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range e.jobs {
		e.release(j)
	}
	e.jobs, e.ended = nil, true
	e.wake.Broadcast()
}

func (e *Engine) release(j *job) { _ = e.cfg.Store.Release([]int32{j.state}) }

// send writes a line.
func (e *Engine) send(answer any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return
	}
	if err := e.out.Encode(answer); err != nil && e.failed == nil {
		e.failed = err
	}
}

// accept does what a line asks, or puts its positions into the queue.
func (e *Engine) accept(line []byte) {
	e.accepting.Lock()
	defer e.accepting.Unlock()
	e.mu.Lock()
	gone := e.gone
	e.mu.Unlock()
	if gone {
		return
	}
	q, unused, err := parse(line)
	if err == nil && q.Action != "" {
		err = e.act(q, line)
	} else if err == nil {
		err = safe.Call(func() error { return e.enqueue(q) })
	}
	if err != nil {
		answer := map[string]any{"error": err.Error()}
		if p, ok := errors.AsType[*problem](err); ok && p.field != "" {
			answer["error"], answer["field"] = p.text, p.field
		}
		if q != nil && len(q.ID) > 0 {
			answer["id"] = q.ID
		}
		e.send(answer)
		return
	}
	for _, field := range unused {
		e.send(map[string]any{
			"id": q.ID, "field": field, "warning": fmt.Sprintf("not used: %s has nothing of the kind", e.cfg.Env.Spec().ID),
		})
	}
}

// act does what a query with an action asks, and answers with the query itself.
func (e *Engine) act(q *query, line []byte) error {
	var answer map[string]any
	if err := json.Unmarshal(line, &answer); err != nil {
		return bad("", "%v", err)
	}
	switch q.Action {
	case "query_version":
		answer["version"], answer["git_hash"] = e.cfg.Version, ""
	case "query_models":
		answer["models"] = []map[string]any{{"name": e.cfg.Model, "internalName": e.cfg.Model,
			"env": e.cfg.Env.Spec().ID}}
	case "clear_cache":
		if e.cfg.Cache != nil {
			e.cfg.Cache.Forget()
		}
	case "terminate":
		if len(q.TerminateID) == 0 {
			return bad("terminateId", "isn't set; want the id of a query")
		}
		e.terminate(func(j *job) bool { return bytes.Equal(j.q.ID, q.TerminateID) && wants(q.TurnNumbers, j.turn) })
	case "terminate_all":
		e.terminate(func(j *job) bool { return wants(q.TurnNumbers, j.turn) })
	default:
		return bad("action", "is %q; want query_version, query_models, clear_cache, terminate or terminate_all", q.Action)
	}
	e.send(answer)
	return nil
}

func wants(turns []int, turn int) bool { return len(turns) == 0 || slices.Contains(turns, turn) }

// terminate ends searches with what they have; those that have not begun are answered with no results.
func (e *Engine) terminate(which func(*job) bool) {
	e.mu.Lock()
	var gone []*job
	e.jobs = slices.DeleteFunc(e.jobs, func(j *job) bool {
		if which(j) {
			gone = append(gone, j)
			return true
		}
		return false
	})
	for _, j := range e.active {
		j.stop = j.stop || which(j)
	}
	e.mu.Unlock()
	for _, j := range gone {
		e.release(j)
		e.send(map[string]any{"id": j.q.ID, "turnNumber": j.turn, "isDuringSearch": false, "noResults": true})
	}
}

// enqueue plays a query's moves and puts its positions into the queue; all or none.
func (e *Engine) enqueue(q *query) error {
	jobs, err := e.prepare(q)
	if err != nil {
		for _, j := range jobs {
			e.release(j)
		}
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, jobs...)
	e.wake.Broadcast()
	return nil
}

func (e *Engine) prepare(q *query) (jobs []*job, err error) {
	cfg, err := e.settings(q)
	if err != nil {
		return nil, err
	}
	path, err := e.play(q)
	defer func() { _ = e.cfg.Store.Release(path) }()
	if err != nil {
		return nil, err
	}
	for i, turn := range q.turns() {
		j := &job{q: q, turn: turn, priority: q.priority(i), state: path[turn], cfg: cfg}
		if err := e.cfg.Store.Retain(path[turn : turn+1]); err != nil {
			return jobs, err
		}
		jobs = append(jobs, j)
		if j.invalid, err = e.mask(q, j.state); err != nil {
			return jobs, err
		}
	}
	return jobs, nil
}

func (e *Engine) settings(q *query) (search.Config, error) {
	cfg := e.cfg.Search
	if err := cfg.Apply(q.Settings); err != nil {
		return cfg, bad("overrideSettings", "%v", err)
	}
	if q.MaxVisits != nil {
		cfg.NumSimulations = *q.MaxVisits
	}
	cfg.KeepLogits, cfg.Cache = true, e.cfg.Cache
	if e.cfg.Evaluator.Needs().States {
		cfg.Cache = nil
	}
	return cfg, nil
}

// play makes the states along a query's moves; they are to be released.
func (e *Engine) play(q *query) (path []int32, err error) {
	path = make([]int32, 1)
	if err := e.cfg.Store.Reset(nil, []uint64{q.Seed}, path); err != nil {
		return nil, err
	}
	for i, m := range q.Moves {
		at := path[len(path)-1]
		action, err := e.action(at, string(m))
		if err != nil {
			return path, bad("moves", "move %d: %v", i, err)
		}
		out := statestore.Steps{Children: make([]int32, 1)}
		if err := e.cfg.Store.Simulate([]int32{at}, []int32{action}, &out); err != nil {
			return path, bad("moves", "move %d: %v", i, err)
		}
		path = append(path, out.Children[0])
	}
	return path, nil
}

// work searches positions, the most urgent first.
func (e *Engine) work(ctx context.Context) {
	for {
		j := e.next()
		if j == nil {
			return
		}
		err := safe.Call(func() error { return e.search(ctx, j) })
		e.mu.Lock()
		e.active = slices.DeleteFunc(e.active, func(x *job) bool { return x == j })
		e.mu.Unlock()
		e.release(j)
		if err != nil {
			e.send(map[string]any{"id": j.q.ID, "turnNumber": j.turn, "error": err.Error()})
		}
	}
}

func (e *Engine) next() *job {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.jobs) == 0 {
		if e.ended {
			return nil
		}
		e.wake.Wait()
	}
	best := 0
	for i, j := range e.jobs {
		if j.priority > e.jobs[best].priority {
			best = i
		}
	}
	j := e.jobs[best]
	e.jobs = slices.Delete(e.jobs, best, best+1)
	e.active = append(e.active, j)
	return j
}

func (e *Engine) stopped(j *job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return j.stop
}

// search searches a position and reports.
func (e *Engine) search(ctx context.Context, j *job) error {
	roots := &search.Roots{States: []int32{j.state}, Seeds: []uint64{j.q.Seed}, Invalid: j.invalid}
	s, err := search.New(e.cfg.Store, roots, j.cfg, e.cfg.Evaluator.Needs())
	if err != nil {
		return err
	}
	defer s.Close()
	ev, version, release := evaluator.Pin(e.cfg.Evaluator)
	defer release()
	defer evaluator.Enter(ev)()
	s.Pinned(version)
	began, last := time.Now(), time.Now()
	for !e.stopped(j) {
		more, err := s.Round(ctx, ev)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		now := time.Now()
		if j.q.MaxTime != nil && now.Sub(began).Seconds() > *j.q.MaxTime {
			break
		}
		if every := j.q.every(); every > 0 && now.Sub(last) >= every {
			last = now
			if err := e.report(j, s, true); err != nil {
				return err
			}
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return e.report(j, s, false)
}

// Default returns the settings of an engine: AlphaZero's, without noise, the most visited move first.
func Default(env *envs.Env) search.Config {
	cfg := search.Default(tree.AlphaZero, env.Spec())
	cfg.NumSimulations, cfg.DirichletFraction, cfg.Temperature = 500, 0, 0
	return cfg
}
