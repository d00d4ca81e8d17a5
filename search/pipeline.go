package search

import (
	"context"

	"github.com/azserve/azserve/evaluator"
)

// pair is two groups of rows that take turns: while the evaluator has the states of one, the other is
// searched. Batches are half as large, and the evaluator is never idle for longer than a group's search takes
// more than its evaluation. One evaluation runs at a time.
type pair struct {
	groups [2]*Search
	work   chan *Search // to the one goroutine that calls the evaluator
	done   chan error   // what it says of the group that was sent last
}

// runPair runs two groups to their end. The goroutine that it starts has ended when it returns.
func runPair(ctx context.Context, ev evaluator.Evaluator, a, b *Search) error {
	p := &pair{groups: [2]*Search{a, b}, work: make(chan *Search, 1), done: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := range p.work {
			p.done <- evaluate(ctx, ev, &s.leaves.batch, &s.leaves.out)
		}
	}()
	err := p.run(ctx)
	close(p.work)
	<-ended
	return err
}

func (p *pair) run(ctx context.Context) error {
	var away *Search                     // the group whose states the evaluator has
	for i, idle := 0, 0; idle < 2; i++ { // until both have nothing to do
		here := p.groups[i%2]
		err := ctx.Err()
		n := 0
		if err == nil {
			batch, e := here.Select()
			if err = e; e == nil {
				n = batch.N
			}
		}
		var answered *Search
		if away != nil {
			if e := <-p.done; e != nil && err == nil {
				err = e
			}
			answered, away = away, nil
		}
		if err != nil {
			return err
		}
		if n > 0 { // before the answer is expanded, so that the evaluator has work
			p.work <- here
			away = here
		}
		if answered != nil {
			if err := answered.expandOutput(); err != nil {
				return err
			}
		}
		if idle++; n > 0 || answered != nil {
			idle = 0
		}
	}
	return nil
}
