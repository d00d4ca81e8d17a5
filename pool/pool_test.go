package pool_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/internal/race"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The global pool that package ants starts is not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func newPool(t testing.TB, id, keywords string, cfg pool.Config) *pool.Pool {
	t.Helper()
	var kw envs.Keywords
	require.NoError(t, json.Unmarshal([]byte(keywords), &kw))
	env, err := envs.Make(id, kw)
	require.NoError(t, err)
	return openPool(t, env, cfg)
}

func openPool(t testing.TB, env *envs.Env, cfg pool.Config) *pool.Pool {
	t.Helper()
	p, err := pool.New(env, cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func newBatch(p *pool.Pool) *pool.Batch {
	n, spec := p.Config().NumEnvs, p.Env().Spec()
	return &pool.Batch{
		EnvID: make([]int32, n), Obs: envs.NewArrays(spec.Obs, n), Mask: make([]bool, n*spec.NumActions),
		Reward: make([]float32, n), Terminated: make([]bool, n), Truncated: make([]bool, n),
		ToPlay: make([]int32, n), Elapsed: make([]int32, n),
	}
}

func reset(t testing.TB, p *pool.Pool, b *pool.Batch, seeds []uint64) {
	t.Helper()
	require.NoError(t, p.AsyncReset(nil, seeds, nil))
	n, err := p.Recv(-1, b)
	require.NoError(t, err)
	require.Equal(t, p.Config().BatchSize, n)
}

func step(t testing.TB, p *pool.Pool, b *pool.Batch, actions ...int32) {
	t.Helper()
	require.NoError(t, p.Send(actions, nil))
	_, err := p.Recv(-1, b)
	require.NoError(t, err)
}

// counter counts its steps and ends at limit; action 1 sleeps, action 2 panics.
type counter struct {
	limit    int32
	truncate bool
	sleep    time.Duration
	steps    *atomic.Int64
}

func (c counter) Spec() envs.Spec {
	return envs.Spec{ID: "Counter-v0", NumActions: 3, NumPlayers: 1, RewardHigh: 1,
		Obs: []envs.ArraySpec{{Name: "obs", DType: envs.Int32, Low: []float64{0}, High: []float64{1e9}}}}
}
func (c counter) Reset(s *int32, _ uint64) { *s = 0 }
func (c counter) Step(s *int32, a int32) envs.Outcome {
	if c.steps != nil {
		c.steps.Add(1)
	}
	switch a {
	case 1:
		time.Sleep(c.sleep)
	case 2:
		panic("boom")
	}
	*s++
	over := *s >= c.limit
	return envs.Outcome{Reward: 1, Terminated: over && !c.truncate, Truncated: over && c.truncate}
}
func (c counter) Observe(s *int32, row envs.Row) { row.Int32(0)[0] = *s }

func counters(t testing.TB, c counter, cfg pool.Config) *pool.Pool {
	env, err := envs.Define(c)
	require.NoError(t, err)
	return openPool(t, env, cfg)
}

// B30: environments start differently, reproducibly, and share no memory.
func TestB30Seeds(t *testing.T) {
	p := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 8, Seeds: seeds(42, 8)})
	b := newBatch(p)
	reset(t, p, b, nil)
	first := append([]float32(nil), b.Obs[0].F32...)
	seen := map[[4]float32]bool{}
	for i := range 8 {
		require.Equal(t, int32(i), b.EnvID[i])
		seen[[4]float32(first[4*i:])] = true
	}
	require.Len(t, seen, 8)
	require.Equal(t, float32(0.027395604), first[0]) // gymnasium, seed 42
	reset(t, p, b, nil)
	require.NotEqual(t, first, b.Obs[0].F32, "a reset without seeds goes on")
	reset(t, p, b, seeds(42, 8))
	require.Equal(t, first, b.Obs[0].F32)
	reset(t, p, b, seeds(43, 8))
	require.Equal(t, first[4:32], b.Obs[0].F32[:28])
	require.ErrorIs(t, p.AsyncReset(nil, seeds(1, 3), nil), pool.ErrConfig)

	three := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 3, Seeds: []uint64{3, 5, 7}})
	b3 := newBatch(three)
	reset(t, three, b3, nil)
	for i, seed := range []uint64{3, 5, 7} {
		one := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 1, Seeds: []uint64{seed}})
		b1 := newBatch(one)
		reset(t, one, b1, nil)
		require.Equal(t, b1.Obs[0].F32, b3.Obs[0].F32[4*i:4*i+4])
	}

	step(t, p, b, 0, 0, 0, 1, 0, 1, 0, 0)
	for i := range 8 {
		require.Equal(t, i == 3 || i == 5, b.Obs[0].F32[4*i+3] < 0, "row %d", i)
	}
	start := append([]float32(nil), first[:4]...)
	for !b.Terminated[0] {
		step(t, p, b, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	require.NotEqual(t, start, b.Obs[0].F32[:4], "the second episode starts as the first did")
}

func seeds(first uint64, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = first + uint64(i)
	}
	return out
}

// B31: recv never waits for what can't come, and close ends every wait.
func TestB31RecvAndClose(t *testing.T) {
	for _, mode := range []dispatch.Mode{dispatch.Auto, dispatch.Inline, dispatch.Threads} {
		p := counters(t, counter{limit: 100, sleep: time.Second}, pool.Config{
			NumEnvs: 4, NumThreads: 2, Dispatch: mode,
		})
		b := newBatch(p)
		reset(t, p, b, nil)
		_, err := p.Recv(-1, b)
		require.ErrorIs(t, err, pool.ErrNothing)
		if mode == dispatch.Threads {
			require.NoError(t, p.Send([]int32{1, 0, 0, 0}, nil))
			start := time.Now()
			_, err = p.Recv(100*time.Millisecond, b)
			require.ErrorIs(t, err, pool.ErrTimeout)
			require.WithinRange(t, time.Now(), start.Add(100*time.Millisecond), start.Add(900*time.Millisecond))
			n, err := p.Recv(-1, b)
			require.NoError(t, err)
			require.Equal(t, 4, n)
			require.Equal(t, []int32{1, 1, 1, 1}, b.Obs[0].I32)
			blockedRecv(t, p)
		}
		p.Close()
		p.Close()
		_, err = p.Recv(-1, b)
		require.ErrorIs(t, err, pool.ErrClosed)
		require.ErrorIs(t, p.Send([]int32{0}, []int32{0}), pool.ErrClosed)
		require.ErrorIs(t, p.AsyncReset(nil, nil, nil), pool.ErrClosed)
		require.ErrorIs(t, p.Snapshot([]int32{0}, make([]int32, 1)), pool.ErrClosed)
	}
}

// blockedRecv closes a pool while a thread waits in Recv, with results unread.
func blockedRecv(t *testing.T, p *pool.Pool) {
	require.NoError(t, p.Send([]int32{0, 0, 0, 1}, nil))
	got := make(chan error)
	go func() {
		_, err := p.Recv(-1, newBatch(p))
		got <- err
	}()
	time.Sleep(20 * time.Millisecond)
	start := time.Now()
	go p.Close()
	require.ErrorIs(t, <-got, pool.ErrClosed)
	require.Less(t, time.Since(start), time.Second)
	p.Close()
	require.Less(t, time.Since(start), 2*time.Second)
}

// A slow environment doesn't hold up the others when a batch is smaller than the pool.
func TestFirstReadyFirst(t *testing.T) {
	p := counters(t, counter{limit: 1e6, sleep: 1500 * time.Millisecond}, pool.Config{
		NumEnvs: 4, BatchSize: 3, NumThreads: 2, Dispatch: dispatch.Threads,
	})
	b := newBatch(p)
	require.NoError(t, p.AsyncReset(nil, nil, nil))
	_, err := p.Recv(-1, b)
	require.NoError(t, err)
	require.NoError(t, p.Send([]int32{0, 0, 0}, b.EnvID[:3]))
	_, err = p.Recv(-1, b)
	require.NoError(t, err)
	slow := b.EnvID[0]
	require.NoError(t, p.Send([]int32{1, 0, 0}, b.EnvID[:3]))
	start := time.Now()
	for range 50 {
		_, err := p.Recv(-1, b)
		require.NoError(t, err)
		require.NotContains(t, b.EnvID[:3], slow)
		require.NoError(t, p.Send([]int32{0, 0, 0}, b.EnvID[:3]))
	}
	require.Less(t, time.Since(start), 1200*time.Millisecond, "the slow environment held up the others")
}

func TestAutoreset(t *testing.T) {
	for _, mode := range []dispatch.Mode{dispatch.Inline, dispatch.Threads} {
		t.Run(string(mode), func(t *testing.T) {
			t.Run("same_step", func(t *testing.T) { testSameStep(t, mode) })
			t.Run("next_step", func(t *testing.T) { testNextStep(t, mode) })
			t.Run("disabled", func(t *testing.T) { testDisabled(t, mode) })
		})
	}
}

func testSameStep(t *testing.T, mode dispatch.Mode) {
	p := counters(t, counter{limit: 3, truncate: true}, pool.Config{NumEnvs: 2, Dispatch: mode})
	b, final := newBatch(p), envs.NewArrays(p.Env().Spec().Obs, 2)
	b.Final, b.Over = final, make([]bool, 2)
	reset(t, p, b, nil)
	for i := 1; i <= 12; i++ {
		step(t, p, b, 0, 0)
		over := i%3 == 0
		require.Equal(t, []bool{over, over}, b.Truncated)
		require.Equal(t, []bool{false, false}, b.Terminated)
		want := int32(i % 3)
		require.Equal(t, []int32{want, want}, b.Obs[0].I32)
		require.Equal(t, []float32{1, 1}, b.Reward)
		if over {
			require.Equal(t, 2, b.Done)
			require.Equal(t, []int32{3, 3}, b.Elapsed)
			require.Equal(t, []bool{true, true}, b.Over)
			require.Equal(t, []int32{3, 3}, final[0].I32)
		}
	}
}

func testNextStep(t *testing.T, mode dispatch.Mode) {
	p := counters(t, counter{limit: 3}, pool.Config{NumEnvs: 2, Dispatch: mode, Autoreset: pool.NextStep})
	b := newBatch(p)
	reset(t, p, b, nil)
	var obs, rewards []int32
	for range 12 {
		step(t, p, b, 0, 0)
		obs, rewards = append(obs, b.Obs[0].I32[1]), append(rewards, int32(b.Reward[1]))
		require.Equal(t, obs[len(obs)-1] == 3, b.Terminated[1])
	}
	require.Equal(t, []int32{1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0}, obs)
	require.Equal(t, []int32{1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0}, rewards)
}

func testDisabled(t *testing.T, mode dispatch.Mode) {
	p := counters(t, counter{limit: 1}, pool.Config{NumEnvs: 2, Dispatch: mode, Autoreset: pool.Disabled})
	b := newBatch(p)
	reset(t, p, b, nil)
	step(t, p, b, 0, 0)
	require.Equal(t, []int32{1, 1}, b.Obs[0].I32)
	err := p.Send([]int32{0, 0}, nil)
	require.ErrorIs(t, err, pool.ErrEnded)
	require.ErrorContains(t, err, "row 0: env_id 0")
	reset(t, p, b, nil)
	require.Equal(t, []int32{0, 0}, b.Obs[0].I32)
}

// A bad row is named, and nothing is stepped.
func TestSendRefusesWhole(t *testing.T) {
	var steps atomic.Int64
	p := counters(t, counter{limit: 100, steps: &steps}, pool.Config{NumEnvs: 3})
	b := newBatch(p)
	require.ErrorIs(t, p.Send([]int32{0}, nil), pool.ErrNotStarted)
	reset(t, p, b, nil)
	for _, c := range []struct {
		actions, ids []int32
		kind         error
		want         string
	}{
		{[]int32{0, 0}, []int32{0, 3}, pool.ErrEnvID, "row 1: env_id 3; want 0 to 2"},
		{[]int32{0, 0}, []int32{0, -1}, pool.ErrEnvID, "row 1: env_id -1"},
		{[]int32{0, 0}, []int32{1, 1}, pool.ErrEnvID, "row 1: env_id 1 occurs twice"},
		{[]int32{0, 3}, []int32{1, 2}, statestore.ErrAction, "row 1: env_id 2: action 3; want 0 to 2"},
		{[]int32{0, 0, 0, 0}, nil, pool.ErrEnvID, "row 3: env_id 3"},
	} {
		err := p.Send(c.actions, c.ids)
		require.ErrorIs(t, err, c.kind)
		require.ErrorContains(t, err, c.want)
	}
	require.Error(t, p.Send([]int32{0, 0}, []int32{0}))
	require.NoError(t, p.Send([]int32{0}, []int32{2}))
	require.ErrorIs(t, p.Send([]int32{0}, []int32{2}), pool.ErrBusy)
	require.ErrorIs(t, p.Snapshot([]int32{2}, make([]int32, 1)), pool.ErrBusy)
	require.ErrorIs(t, p.AsyncReset(nil, nil, nil), pool.ErrBusy)
	n, err := p.Recv(-1, b)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, int64(1), steps.Load())
	require.NoError(t, p.Send([]int32{0, 0}, []int32{2, 0}))
	_, err = p.Recv(-1, b)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 0}, b.EnvID[:2], "rows come in the order they were sent")
	require.Equal(t, []int32{2, 1}, b.Obs[0].I32[:2])
}

func TestPanicFailsOneEnvironment(t *testing.T) {
	for _, mode := range []dispatch.Mode{dispatch.Inline, dispatch.Threads} {
		p := counters(t, counter{limit: 100}, pool.Config{NumEnvs: 3, Dispatch: mode})
		b := newBatch(p)
		reset(t, p, b, nil)
		require.NoError(t, p.Send([]int32{0, 2, 0}, nil))
		n, err := p.Recv(-1, b)
		require.ErrorContains(t, err, "env_id 1: panic: boom")
		require.Equal(t, 3, n)
		require.Equal(t, []int32{1, 1}, []int32{b.Obs[0].I32[0], b.Obs[0].I32[2]})
		require.ErrorIs(t, p.Send([]int32{0}, []int32{1}), pool.ErrNotStarted)
		require.NoError(t, p.Send([]int32{0, 0}, []int32{0, 2}))
		_, err = p.Recv(-1, b)
		require.NoError(t, err)
		reset(t, p, b, nil)
		step(t, p, b, 0, 0, 0)
		require.Equal(t, []int32{1, 1, 1}, b.Obs[0].I32)
	}
}

func TestSnapshotAndRestore(t *testing.T) {
	p := newPool(t, "ConnectFour-v0", `{}`, pool.Config{NumEnvs: 2})
	b := newBatch(p)
	reset(t, p, b, nil)
	step(t, p, b, 3, 4)
	snap := make([]int32, 2)
	require.NoError(t, p.Snapshot([]int32{0, 1}, snap))
	want, err := p.Store().Dump(snap)
	require.NoError(t, err)
	for range 5 {
		step(t, p, b, 3, 3)
	}
	kept, err := p.Store().Dump(snap)
	require.NoError(t, err)
	require.Equal(t, want, kept, "a snapshot moved")
	require.NoError(t, p.Restore([]int32{0, 1}, []int32{snap[1], snap[1]}))
	step(t, p, b, 0, 0)
	now := make([]int32, 2)
	require.NoError(t, p.Snapshot([]int32{0, 1}, now))
	bytes, err := p.Store().Dump(now)
	require.NoError(t, err)
	require.Equal(t, bytes[0], bytes[1])
	require.NoError(t, p.Store().Release(append(now, snap...)))
	require.Zero(t, p.Store().Stats().Live)
	require.Equal(t, 2, p.Store().Stats().States)
}

// The same seeds and actions give the same bits for any threads, batch size and dispatch.
func TestDeterminism(t *testing.T) {
	want := ""
	for _, threads := range []int{1, 2, 7} {
		for _, batch := range []int{1, 5, 16} {
			for _, mode := range []dispatch.Mode{dispatch.Auto, dispatch.Inline, dispatch.Threads} {
				p := newPool(t, "CartPole-v1", `{"max_episode_steps":30}`, pool.Config{
					NumEnvs: 16, BatchSize: batch, NumThreads: threads, Dispatch: mode, Seeds: seeds(9, 16),
				})
				got := playAll(t, p)
				if want == "" {
					want = got
				}
				require.Equal(t, want, got, "%d threads, batch %d, %s", threads, batch, mode)
				p.Close()
			}
		}
	}
}

// playAll steps environments until each has at least 40 results, and returns the first 40 of each.
func playAll(t *testing.T, p *pool.Pool) string {
	const steps = 40
	b, k := newBatch(p), p.Env().Spec().Obs[0].Len()
	seen := make([][]string, p.Config().NumEnvs)
	require.NoError(t, p.AsyncReset(nil, nil, nil))
	for short := len(seen); short > 0; {
		n, err := p.Recv(-1, b)
		require.NoError(t, err)
		actions := make([]int32, n)
		for i, e := range b.EnvID[:n] {
			seen[e] = append(seen[e], fmt.Sprint(b.Obs[0].F32[i*k:(i+1)*k], b.Terminated[i], b.Truncated[i],
				b.Elapsed[i], b.Reward[i]))
			if len(seen[e]) == steps {
				short--
			}
			actions[i] = int32(len(seen[e]) * int(e+1) / 2 % 2)
		}
		require.NoError(t, p.Send(actions, b.EnvID[:n]))
	}
	for i := range seen {
		seen[i] = seen[i][:steps]
	}
	return fmt.Sprint(seen)
}

func TestBadConfig(t *testing.T) {
	env, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	for _, cfg := range []pool.Config{
		{}, {NumEnvs: -1}, {NumEnvs: 2, BatchSize: 3}, {NumEnvs: 2, BatchSize: -1},
		{NumEnvs: 2, Seeds: []uint64{1}}, {NumEnvs: 2, Autoreset: "always"},
	} {
		_, err := pool.New(env, cfg)
		require.ErrorIs(t, err, pool.ErrConfig)
	}
	_, err = pool.New(env, pool.Config{NumEnvs: 1, NumThreads: -1})
	require.ErrorIs(t, err, pool.ErrThreads)
	_, err = pool.New(env, pool.Config{NumEnvs: 1, Dispatch: "gpu"})
	require.ErrorContains(t, err, `"gpu"; want "auto", "inline" or "threads"`)
}

func TestThreads(t *testing.T) {
	for _, c := range []struct {
		variable        string
		requested, want int
	}{{"3", 0, 3}, {"3", 5, 5}, {"", 2, 2}} {
		t.Setenv(pool.ThreadsVariable, c.variable)
		n, err := pool.Threads(c.requested, 100)
		require.NoError(t, err)
		require.Equal(t, c.want, n)
	}
	t.Setenv(pool.ThreadsVariable, "")
	n, err := pool.Threads(0, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	for _, bad := range []string{"0", "-1", "two", "1.5"} {
		t.Setenv(pool.ThreadsVariable, bad)
		_, err := pool.Threads(0, 0)
		require.ErrorIs(t, err, pool.ErrThreads)
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	p := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 256, Dispatch: dispatch.Inline})
	b, actions := newBatch(p), make([]int32, 256)
	reset(t, p, b, nil)
	run := func() {
		_ = p.Send(actions, nil)
		_, _ = p.Recv(-1, b)
	}
	run()
	require.Less(t, testing.AllocsPerRun(30, run), 30.0, "a batch of 256 may allocate, a step may not")
}

func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 256, 1024} {
		b.Run(fmt.Sprint("CartPole/N=", n), func(b *testing.B) {
			p := newPool(b, "CartPole-v1", `{}`, pool.Config{NumEnvs: n})
			batch, actions := newBatch(p), make([]int32, n)
			batch.Mask, batch.Final = nil, envs.NewArrays(p.Env().Spec().Obs, n)
			reset(b, p, batch, nil)
			for i := range actions {
				actions[i] = int32(i % 2)
			}
			for b.Loop() {
				_ = p.Send(actions, nil)
				_, _ = p.Recv(-1, batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/step")
		})
	}
}

// BenchmarkAsync sends and receives a quarter of the environments at a time.
func BenchmarkAsync(b *testing.B) {
	for _, n := range []int{256, 1024} {
		b.Run(fmt.Sprint("CartPole/N=", n), func(b *testing.B) {
			p := newPool(b, "CartPole-v1", `{}`, pool.Config{NumEnvs: n, BatchSize: n / 4})
			batch, actions := newBatch(p), make([]int32, n/4)
			batch.Mask = nil
			require.NoError(b, p.AsyncReset(nil, nil, nil))
			for b.Loop() {
				_, _ = p.Recv(-1, batch)
				_ = p.Send(actions, batch.EnvID[:n/4])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n/4), "ns/step")
		})
	}
}

// newSteps returns room for what Simulate writes of n states.
func newSteps(n int) *statestore.Steps {
	return &statestore.Steps{Children: make([]int32, n), Reward: make([]float32, n)}
}
