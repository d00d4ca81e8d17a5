package server_test

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// resources are what a process holds.
type resources struct{ goroutines, files, threads, rss int }

func measure(t testing.TB) (r resources) {
	debug.FreeOSMemory()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(t, err)
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return resources{runtime.NumGoroutine(), len(files), len(threads), pages * os.Getpagesize()}
}

// settled measures again and again until all counts are at most so many above another measurement, for 5 s at most.
func settled(t testing.TB, before resources, above int) (now resources) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		now = measure(t)
		ok := now.goroutines <= before.goroutines+above && now.files <= before.files+above &&
			now.threads <= before.threads+above
		if ok || time.Now().After(end) {
			return now
		}
	}
}

// abandon opens a pool, a session and a stream on a connection of its own, and leaves in the middle of it, on one of
// several ways. Nothing is closed in good order.
func abandon(t testing.TB, at string, way int) {
	c, err := client.Dial(at, client.Config{NoRetry: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ec, sc := pb.NewEnvsClient(c.Conn()), pb.NewSearchClient(c.Conn())
	p, err := ec.Open(ctx, &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: 16})
	require.NoError(t, err)
	_, err = ec.Reset(ctx, &pb.ResetRequest{Pool: p.Pool})
	require.NoError(t, err)
	states, err := ec.Snapshot(ctx, &pb.EnvIds{Pool: p.Pool})
	require.NoError(t, err)
	session, err := sc.Session(ctx)
	require.NoError(t, err)
	begin := &pb.Begin{Search: &pb.SearchRequest{Settings: &pb.SearchSettings{NumSimulations: proto.Int64(400)},
		Roots: &pb.SearchRequest_PoolStates{PoolStates: &pb.PoolStates{Pool: p.Pool, StateId: states.StateId}}}}
	require.NoError(t, session.Send(&pb.SessionRequest{Call: &pb.SessionRequest_Begin{Begin: begin}}))
	stream, err := ec.Stream(ctx)
	require.NoError(t, err)
	for k := range 4 {
		step := &pb.SendRequest{Pool: p.Pool, Actions: wire.Vector(scriptActions(k, 16))}
		require.NoError(t, stream.Send(&pb.StreamRequest{Call: &pb.StreamRequest_Step{Step: step}}))
	}
	if way%2 == 0 {
		_, err = session.Recv()
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	run := &pb.SessionRequest{Call: &pb.SessionRequest_Run{Run: &pb.RunSearch{ReportEveryMs: 1}}}
	require.NoError(t, session.Send(run))
	switch way % 3 {
	case 0:
		cancel()
	case 1:
		time.Sleep(time.Millisecond)
		cancel()
	}
	_ = c.Close()
}

// TestB39Leaks: clients that vanish leave nothing behind.
func TestB39Leaks(t *testing.T) {
	log := &panicLog{}
	_, at := start(t, server.Config{Lease: 100 * time.Millisecond, Log: slog.New(log)})
	c := dial(t, at, client.Config{NoRetry: true})
	check := checker(t, c, "uniform", evaluator.Uniform{})
	empty := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			st, err := c.Stats(t.Context())
			return err == nil && st.Pools == 0 && st.Sessions == 0 && st.States == 0 && st.Running+st.Queued == 0
		}, 5*time.Second, 10*time.Millisecond, "pools, sessions and states go")
	}
	cycles := func(n int) {
		for i := range n {
			abandon(t, at, i)
		}
	}
	check()
	cycles(12)
	before := settled(t, resources{}, math.MaxInt32)
	time.Sleep(300 * time.Millisecond)
	before = settled(t, before, 0)
	n, began := size(200), time.Now()
	cycles(n)
	first := settled(t, before, 5)
	t.Logf("%d cycles in %v; %+v before, %+v after", n, time.Since(began), before, first)
	cycles(n)
	second := settled(t, before, 5)
	t.Logf("%+v after %d more; the memory is %.3f of that after the first", second, n,
		float64(second.rss)/float64(first.rss))
	for _, now := range []resources{first, second} {
		require.InDelta(t, before.goroutines, now.goroutines, 5, "goroutines")
		require.InDelta(t, before.files, now.files, 5, "open files")
		require.LessOrEqual(t, now.threads, before.threads+5, "threads")
	}
	require.LessOrEqual(t, float64(second.rss), 1.05*float64(first.rss)+8*mib)
	empty()
	check()
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, st.Expired, int64(2*n))
	log.requireNone(t)
}

// TestB39ReleasedTwice: a handle that was released is stale over the wire too, and another in its place isn't it.
func TestB39ReleasedTwice(t *testing.T) {
	_, c := pair(t, server.Config{})
	p, err := c.Open(t.Context(), client.Env{ID: c4}, pool.Config{NumEnvs: 2})
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	_, err = p.Reset(t.Context(), nil, nil, &pool.Batch{})
	require.NoError(t, err)
	for range 50 {
		states, err := p.Snapshot(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, p.Release(t.Context(), states))
		err = p.Release(t.Context(), states)
		require.ErrorIs(t, err, statestore.ErrStale)
		require.Equal(t, errcode.StaleState, wire.From(err).Code)
		require.Equal(t, "state_id", wire.From(err).Path)
		_, err = p.Dump(t.Context(), states)
		require.ErrorIs(t, err, statestore.ErrStale)
	}
}

// TestB39Drain: what is idle doesn't hold up the end of a server; what works has the grace time, and is ended then.
func TestB39Drain(t *testing.T) {
	request := func(simulations int, model string) *client.Request {
		cfg := config(connectFour(t), tree.AlphaZero, simulations)
		states := client.States{Env: client.Env{ID: c4}, Games: games(2)}
		return &client.Request{States: states, Model: model, Config: &cfg}
	}
	t.Run("idle", func(t *testing.T) {
		s, c := pair(t, server.Config{Grace: 20 * time.Second})
		session, err := c.Session(t.Context(), request(20, "uniform"))
		require.NoError(t, err)
		defer session.Close()
		_, err = session.Run(nil, 0)
		require.NoError(t, err)
		stream, err := pb.NewEnvsClient(c.Conn()).Stream(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pb.StreamRequest{}))
		_, err = stream.Recv()
		require.NoError(t, err)
		began := time.Now()
		s.Drain(t.Context())
		t.Logf("it took %v", time.Since(began))
		require.Less(t, time.Since(began), time.Second)
		_, err = stream.Recv()
		require.Equal(t, errcode.Unavailable, wire.From(wire.FromStatus(err)).Code, "%v", err)
		_, err = session.Run(nil, 0)
		require.Equal(t, errcode.Unavailable, wire.From(err).Code, "%v", err)
	})
	for _, model := range []string{"slow", "rollout"} {
		t.Run("running on "+model, func(t *testing.T) {
			const grace = 300 * time.Millisecond
			s, at := start(t, server.Config{Grace: grace})
			c, far := dial(t, at, client.Config{NoRetry: true}), dial(t, at, client.Config{NoRetry: true})
			slow := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
				time.Sleep(2 * time.Millisecond)
				return seen(ctx, in, out)
			})
			served := make(chan error, 1)
			a := client.Attach{Model: "slow", MaxBatch: 64}
			go func() { served <- far.ServeEvaluator(t.Context(), a, slow) }()
			require.Eventually(t, func() bool { return evaluators(t, c, "slow") == 1 }, 5*time.Second,
				time.Millisecond)
			session, err := c.Session(t.Context(), request(500_000, model))
			require.NoError(t, err)
			defer session.Close()
			ended := make(chan error, 1)
			go func() {
				_, err := session.Run(nil, 0)
				ended <- err
			}()
			require.Eventually(t, func() bool {
				st, err := c.Stats(t.Context())
				return err == nil && st.Running == 1
			}, 5*time.Second, time.Millisecond)
			began := time.Now()
			s.Drain(t.Context())
			took := time.Since(began)
			err = <-ended
			t.Logf("it took %v; the run: %v; the evaluator: %v", took, err, <-served)
			require.GreaterOrEqual(t, took, grace)
			require.Less(t, took, grace+time.Second)
			require.Error(t, err)
			require.Contains(t, []errcode.Code{errcode.Unavailable, errcode.Cancelled}, wire.From(err).Code)
		})
	}
}
