package server_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// cycle is what every environment of a script does again and again: a game of 7 moves that its first player wins.
const cycle = 7

// scriptActions are the actions of step k of each of n environments, which begin their columns at different places.
func scriptActions(k, n int) []int32 {
	out := make([]int32, n)
	for e := range out {
		out[e] = int32((e + k%2) % 7)
	}
	return out
}

// digest is a key of all that an answer says of its rows.
func digest(m *pb.RecvResponse) uint64 {
	h := fnv.New64a()
	rest := []*pb.Tensor{m.EnvId, m.Reward, m.Terminated, m.ToPlay, m.ElapsedStep, m.ActionMask}
	for _, t := range append(slices.Clone(m.Obs), rest...) {
		_, _ = h.Write(t.GetData())
	}
	for _, t := range m.FinalObs {
		_, _ = h.Write(t.GetData())
	}
	return h.Sum64()
}

// scriptAnswers are the answers to a cycle of steps, by a pool in this process.
func scriptAnswers(t testing.TB, n int) (out [cycle]uint64) {
	env := connectFour(t)
	p, err := pool.New(env, pool.Config{NumEnvs: n})
	require.NoError(t, err)
	defer p.Close()
	spec := env.Spec()
	b := &pool.Batch{EnvID: make([]int32, n), Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
		Reward: make([]float32, n), Terminated: make([]bool, n), Truncated: make([]bool, n), ToPlay: make([]int32, n),
		Elapsed: make([]int32, n), Final: envs.NewArrays(spec.Obs, n), Failed: make([]bool, n)}
	require.NoError(t, p.AsyncReset(nil, nil, nil))
	_, err = p.Recv(-1, b)
	require.NoError(t, err)
	ends := 0
	for k := range 2 * cycle {
		require.NoError(t, p.Send(scriptActions(k%cycle, n), nil))
		_, err = p.Recv(-1, b)
		require.NoError(t, err)
		m := &pb.RecvResponse{Obs: wire.Arrays(spec.Obs, b.Obs, n), EnvId: wire.Vector(b.EnvID),
			Reward: wire.Vector(b.Reward), Terminated: wire.Vector(b.Terminated), ToPlay: wire.Vector(b.ToPlay),
			ElapsedStep: wire.Vector(b.Elapsed), ActionMask: wire.Of(b.Mask, n, spec.NumActions)}
		if b.Done > 0 {
			require.Equal(t, n, b.Done)
			m.FinalObs = wire.Arrays(spec.Obs, b.Final, n)
			ends++
		}
		if k >= cycle {
			require.Equal(t, out[k-cycle], digest(m), "the cycle is none")
		}
		out[k%cycle] = digest(m)
	}
	require.Equal(t, 2, ends)
	sorted := out
	slices.Sort(sorted[:])
	require.Len(t, slices.Compact(sorted[:]), cycle, "the steps of a cycle look different")
	return out
}

// stepper steps a pool over a stream, with several requests under way.
type stepper struct {
	stream  pb.Envs_StreamClient
	pool    string
	n       int
	want    [cycle]uint64
	sent    atomic.Int64
	got     atomic.Int64
	stop    atomic.Bool // send nothing more
	deaf    atomic.Bool // read nothing
	failure atomic.Value
	done    sync.WaitGroup
}

// newStepper opens a pool on a connection of its own, and begins. window is how many requests are under way at most;
// with 0 it sends without end, and reads nothing.
func newStepper(t testing.TB, at string, n int, want [cycle]uint64, window int64) *stepper {
	c := dial(t, at, client.Config{NoRetry: true})
	ec := pb.NewEnvsClient(c.Conn())
	p, err := ec.Open(t.Context(), &pb.OpenRequest{Env: &pb.EnvRef{Id: c4}, NumEnvs: int32(n)})
	require.NoError(t, err)
	_, err = ec.Reset(t.Context(), &pb.ResetRequest{Pool: p.Pool})
	require.NoError(t, err)
	s := &stepper{pool: p.Pool, n: n, want: want}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s.stream, err = ec.Stream(ctx)
	require.NoError(t, err)
	s.deaf.Store(window == 0)
	s.done.Go(func() { s.send(window) })
	s.done.Go(s.receive)
	return s
}

func (s *stepper) send(window int64) {
	defer func() { _ = s.stream.CloseSend() }()
	for k := 0; !s.stop.Load(); {
		if window > 0 && s.sent.Load()-s.got.Load() >= window {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		step := &pb.SendRequest{Pool: s.pool, Actions: wire.Vector(scriptActions(k%cycle, s.n))}
		if err := s.stream.Send(&pb.StreamRequest{Call: &pb.StreamRequest_Step{Step: step}}); err != nil {
			s.failure.CompareAndSwap(nil, fmt.Errorf("send: %w", err))
			return
		}
		s.sent.Add(1)
		k++
	}
}

func (s *stepper) receive() {
	for k := 0; ; k++ {
		for s.deaf.Load() {
			time.Sleep(time.Millisecond)
		}
		m, err := s.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err == nil && m.GetRecv() == nil:
			err = fmt.Errorf("%v", m)
		case err == nil && digest(m.GetRecv()) != s.want[k%cycle]:
			err = fmt.Errorf("is another than in process")
		}
		if err != nil {
			s.failure.CompareAndSwap(nil, fmt.Errorf("answer %d: %w", k, err))
			s.stop.Store(true)
			return
		}
		s.got.Add(1)
	}
}

// finish waits until all that was sent is answered.
func (s *stepper) finish(t testing.TB, name string) {
	t.Helper()
	s.stop.Store(true)
	s.deaf.Store(false)
	s.done.Wait()
	require.Nil(t, s.failure.Load(), name)
	require.Equal(t, s.sent.Load(), s.got.Load(), "%s: answers are lost or doubled", name)
}

// TestB38SlowClient: one that sends and doesn't read is held up alone; the others keep their rate, and when it reads
// again every answer is there, in its order.
func TestB38SlowClient(t *testing.T) {
	const n = 64
	_, at := start(t, server.Config{})
	want := scriptAnswers(t, n)
	var good []*stepper
	for range 7 {
		good = append(good, newStepper(t, at, n, want, 8))
	}
	total := func() (sum int64) {
		for _, s := range good {
			sum += s.got.Load()
		}
		return sum
	}
	window := span(1200 * time.Millisecond)
	rate := func() float64 {
		before, began := total(), time.Now()
		time.Sleep(window)
		return float64(total()-before) / time.Since(began).Seconds()
	}
	time.Sleep(window / 4)
	first, before := rate(), heap()
	slow := newStepper(t, at, n, want, 0)
	stuck := int64(-1)
	for end := time.Now().Add(10 * time.Second); stuck != slow.sent.Load() && time.Now().Before(end); {
		stuck = slow.sent.Load() // until its sending blocks
		time.Sleep(window)
	}
	beside := rate()
	require.Equal(t, stuck, slow.sent.Load(), "it still sends, though it doesn't read")
	require.Positive(t, stuck)
	grown := heap() - before
	slow.finish(t, "slow")
	after := rate()
	t.Logf("batches of %d steps a second: %.0f without the slow client, %.0f beside it, %.0f after; it sent %d "+
		"before it was held up; the heap grew by %.1f MiB", n, first, beside, after, stuck, float64(grown)/mib)
	require.GreaterOrEqual(t, beside, share(0.8)*min(first, after))
	require.Less(t, grown, int64(64*mib))
	for i, s := range good {
		s.finish(t, fmt.Sprint("client ", i))
		require.Greater(t, s.got.Load(), int64(size(500)))
	}
}

// TestB38StalledSession: one that lets a session report and reads nothing of it doesn't keep the place in which it
// works from others.
func TestB38StalledSession(t *testing.T) {
	_, at := start(t, server.Config{MaxConcurrent: 1})
	c, other := dial(t, at, client.Config{NoRetry: true}), dial(t, at, client.Config{NoRetry: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := pb.NewSearchClient(c.Conn()).Session(ctx)
	require.NoError(t, err)
	games := slices.Repeat([]*pb.Game{{}}, 1000)
	begin := &pb.Begin{Search: &pb.SearchRequest{Env: &pb.EnvRef{Id: c4},
		Roots:    &pb.SearchRequest_Moves{Moves: &pb.Games{Games: games}},
		Settings: &pb.SearchSettings{NumSimulations: proto.Int64(200)}}}
	require.NoError(t, stream.Send(&pb.SessionRequest{Call: &pb.SessionRequest_Begin{Begin: begin}}))
	_, err = stream.Recv()
	require.NoError(t, err)
	began := time.Now()
	run := &pb.SessionRequest{Call: &pb.SessionRequest_Run{Run: &pb.RunSearch{ReportEveryMs: 1}}}
	require.NoError(t, stream.Send(run))
	reports := 0
	for { // one that reads is done soon
		m, err := stream.Recv()
		require.NoError(t, err)
		require.NotNil(t, m.GetResult())
		if !m.GetResult().Partial {
			break
		}
		reports++
	}
	took := time.Since(began)
	t.Logf("read, the run took %v, with %d reports", took, reports)
	require.Greater(t, reports, 10)
	advance := &pb.Advance{Actions: wire.Vector(make([]int32, len(games)))}
	require.NoError(t, stream.Send(&pb.SessionRequest{Call: &pb.SessionRequest_Advance{Advance: advance}}))
	m, err := stream.Recv()
	require.NoError(t, err)
	require.NotNil(t, m.GetDone(), "%v", m)
	require.NoError(t, stream.Send(run))
	time.Sleep(200 * time.Millisecond)
	began = time.Now()
	late, end := context.WithTimeout(t.Context(), 3*took+2*time.Second)
	defer end()
	cfg := config(connectFour(t), tree.Gumbel, 8)
	one := client.States{Env: client.Env{ID: c4}, Games: make([]client.Game, 1)}
	_, err = other.Search(late, &client.Request{States: one, Config: &cfg})
	t.Logf("another's search of 8 simulations took %v: %v", time.Since(began), err)
	require.NoError(t, err)
}
