package server_test

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/evaluator"
	"github.com/stretchr/testify/require"
)

// flood opens connections that send what next returns, n pieces in all, each connection on and on; those that the
// server ends are opened again. Answers are read, unless deaf is set. It returns how many pieces were sent, and on
// how many connections.
func flood(t testing.TB, at string, n int, deaf bool, next func(stream uint32) []byte) (sent, conns int64) {
	var wg sync.WaitGroup
	var pieces, opened atomic.Int64
	for range 4 {
		wg.Go(func() {
			for pieces.Load() < int64(n) {
				conn, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				opened.Add(1)
				read := make(chan struct{})
				go func() {
					defer close(read)
					if !deaf {
						_, _ = io.Copy(io.Discard, conn)
					}
				}()
				_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second)) // a deaf one is stopped by the server
				out := appendFrame([]byte(preface), frameSettings, 0, 0, nil)
				for stream := uint32(1); pieces.Load() < int64(n) && stream < 1<<30; stream += 2 {
					if out = append(out, next(stream)...); len(out) > 4096 {
						if _, err = conn.Write(out); err != nil {
							break
						}
						out = out[:0]
					}
					pieces.Add(1)
				}
				_, _ = conn.Write(out)
				if !deaf { // until the server has done all of it
					_ = conn.(*net.TCPConn).CloseWrite()
					_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					<-read
				}
				_ = conn.Close()
				<-read
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
			}
		})
	}
	wg.Wait()
	return pieces.Load(), opened.Load()
}

// busy is a good client that searches until stop is called, which returns how often, and how long the longest took.
func busy(t testing.TB, check func()) (stop func() (n int, worst time.Duration)) {
	end := make(chan struct{})
	type outcome struct {
		n     int
		worst time.Duration
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { done <- o }()
		for {
			select {
			case <-end:
				return
			default:
			}
			began := time.Now()
			check()
			o.n, o.worst = o.n+1, max(o.worst, time.Since(began))
		}
	}()
	return func() (int, time.Duration) {
		close(end)
		o := <-done
		return o.n, o.worst
	}
}

// TestAbuseRapidReset: calls that are begun and taken back at once, and floods of frames that have to be answered,
// neither stop a good client nor fill the memory.
func TestAbuseRapidReset(t *testing.T) {
	log := &panicLog{}
	_, at := start(t, server.Config{Log: slog.New(log), Lease: 200 * time.Millisecond})
	c := dial(t, at, client.Config{NoRetry: true})
	check := checker(t, c, "uniform", evaluator.Uniform{})
	check()
	games := slices.Repeat([]*pb.Game{{Actions: []int32{3}}}, 16)
	bodies := map[string][]byte{
		"/azserve.v1.Search/Run": callBody(&pb.SearchRequest{Env: &pb.EnvRef{Id: c4},
			Roots: &pb.SearchRequest_Moves{Moves: &pb.Games{Games: games}}}),
		"/azserve.v1.Envs/Open":      callBody(&pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 8}),
		"/azserve.v1.Envs/Stream":    callBody(&pb.StreamRequest{}),
		"/azserve.v1.Search/Session": callBody(&pb.SessionRequest{}),
	}
	methods := []string{"/azserve.v1.Search/Run", "/azserve.v1.Search/Run", "/azserve.v1.Envs/Stream",
		"/azserve.v1.Search/Session", "/azserve.v1.Envs/Open"}
	reset := func(stream uint32) []byte {
		method := methods[int(stream/2)%len(methods)]
		b := appendFrame(nil, frameHeaders, flagEndHeaders, stream, callHeaders(method))
		b = appendFrame(b, frameData, flagEndStream, stream, bodies[method])
		return appendFrame(b, frameReset, 0, stream, []byte{0, 0, 0, 8})
	}
	bare := func(stream uint32) []byte {
		b := appendFrame(nil, frameHeaders, flagEndHeaders, stream, callHeaders("/azserve.v1.Search/Run"))
		return appendFrame(b, frameReset, 0, stream, []byte{0, 0, 0, 8})
	}
	settings := func(stream uint32) []byte { // the window of streams
		return appendFrame(nil, frameSettings, 0, 0, []byte{0, 4, 0, 0, byte(stream >> 8), byte(stream)})
	}
	ping := func(stream uint32) []byte {
		return appendFrame(nil, framePing, 0, 0, binary.BigEndian.AppendUint64(nil, uint64(stream)))
	}
	endless := func(stream uint32) []byte { // header fields that never end
		if stream == 1 {
			return appendFrame(nil, frameHeaders, 0, 1, callHeaders("/azserve.v1.Search/Run"))
		}
		return appendFrame(nil, frameContinuation, 0, 1, literal(nil, 0, "x", strings.Repeat("y", 100)))
	}
	goroutines, before := runtime.NumGoroutine(), heap()
	for _, x := range []struct {
		name string
		n    int
		deaf bool
		next func(stream uint32) []byte
	}{
		{"calls with their message, reset", 20_000, false, reset}, {"calls without, reset", 20_000, false, bare},
		{"settings", 100_000, false, settings}, {"settings, deaf", 100_000, true, settings},
		{"pings", 100_000, false, ping}, {"pings, deaf", 100_000, true, ping},
		{"endless headers", 100_000, false, endless},
	} {
		stop, peak, began := busy(t, check), peakHeap(), time.Now()
		sent, conns := flood(t, at, size(x.n), x.deaf, x.next)
		took := time.Since(began)
		if took < 100*time.Millisecond {
			time.Sleep(100 * time.Millisecond)
		}
		n, worst := stop()
		most := peak() - before
		t.Logf("%s: %d on %d connections in %v; %d good searches, the longest %v; the heap grew by %.1f MiB at most",
			x.name, sent, conns, took, n, worst, float64(most)/mib)
		require.Positive(t, n, x.name)
		require.Less(t, worst, 3*time.Second, x.name)
		require.Less(t, most, int64(256*mib), x.name) // with what the collector has not freed yet
		require.GreaterOrEqual(t, sent, int64(size(x.n)/10), x.name)
	}
	check()
	requireGoroutines(t, goroutines)
	require.Eventually(t, func() bool {
		st, err := c.Stats(t.Context())
		return err == nil && st.Pools == 0 && st.Sessions == 0 && st.Running+st.Queued == 0
	}, 5*time.Second, 10*time.Millisecond)
	requireHeap(t, before)
	log.requireNone(t)
}
