package server

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
)

// requestStream is where the requests of a stream come from.
type requestStream[Req any] interface {
	Recv() (*Req, error)
	Context() context.Context
}

// serveRequests answers the requests of a stream one after the other, until its client ends it, or the server drains,
// or nothing came for as long as idle says (0: for ever). first, if there is one, sees each request as soon as it
// comes, while others are being answered; where it returns false, there is nothing to answer.
func serveRequests[Req any](
	s *Server, stream requestStream[Req], idle time.Duration, first func(*Req) bool, answer func(*Req) error,
) error {
	requests, failed := make(chan *Req), make(chan error, 1)
	// It ends with the stream, which ends when this function's caller returns.
	go func() { failed <- readRequests(stream, first, requests) }()
	var timer *time.Timer
	var late <-chan time.Time
	if idle > 0 {
		timer = time.NewTimer(idle)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case req := <-requests:
			if timer != nil {
				timer.Stop()
			}
			if err := answer(req); err != nil {
				return err
			}
			if timer != nil {
				timer.Reset(idle)
			}
		case <-late:
			return wire.New(errcode.Closed, "the session was closed: no request for %v", idle)
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-s.drain:
			return errDraining()
		}
	}
}

// readRequests hands requests on, until the stream ends; it says why.
func readRequests[Req any](stream requestStream[Req], first func(*Req) bool, requests chan<- *Req) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if first != nil && !first(req) {
			continue
		}
		select {
		case requests <- req:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
