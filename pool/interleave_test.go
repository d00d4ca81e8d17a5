package pool_test

import (
	"slices"
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/pool"
	"github.com/stretchr/testify/require"
)

// recvIn receives in a goroutine and returns a channel of the environments that came.
func recvIn(p *pool.Pool) <-chan []int32 {
	out := make(chan []int32, 1)
	go func() {
		b := newBatch(p)
		n, err := p.Recv(5*time.Second, b)
		if err != nil {
			n = 0
		}
		out <- b.EnvID[:n]
	}()
	return out
}

// An environment that is sent something while another one is busy gets a thread of its own.
func TestNobodyWaitsForASlowOne(t *testing.T) {
	for _, mode := range []dispatch.Mode{dispatch.Auto, dispatch.Threads} {
		p := counters(t, counter{limit: 100, sleep: 500 * time.Millisecond}, pool.Config{
			NumEnvs: 4, BatchSize: 1, NumThreads: 4, Dispatch: mode,
		})
		b := newBatch(p)
		require.NoError(t, p.AsyncReset(nil, nil, nil))
		for range 4 {
			_, err := p.Recv(-1, b)
			require.NoError(t, err)
		}
		require.NoError(t, p.Send([]int32{1}, []int32{0}))
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		require.NoError(t, p.Send([]int32{0}, []int32{1}))
		_, err := p.Recv(-1, b)
		require.NoError(t, err)
		require.Equal(t, int32(1), b.EnvID[0])
		require.Less(t, time.Since(start), 300*time.Millisecond)
		_, err = p.Recv(-1, b)
		require.NoError(t, err)
	}
}

// What is sent while a Recv waits belongs to that Recv; no row comes before it is ready, and none is lost.
func TestSendWhileARecvWaits(t *testing.T) {
	p := counters(t, counter{limit: 100, sleep: 200 * time.Millisecond}, pool.Config{
		NumEnvs: 4, NumThreads: 4, Dispatch: dispatch.Threads,
	})
	b := newBatch(p)
	reset(t, p, b, nil)
	require.NoError(t, p.Send([]int32{1, 1}, []int32{0, 1}))
	first := recvIn(p)
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, p.Send([]int32{0, 0}, []int32{2, 3}))
	require.Equal(t, []int32{0, 1, 2, 3}, <-first)
	require.Zero(t, p.Pending())
	step(t, p, b, 0, 0, 0, 0)
	require.Equal(t, []int32{2, 2, 2, 2}, b.Obs[0].I32)
}

// Two threads send and receive, one with a timeout, so that work is handed over while the other does its own.
func TestHandOverBesideAnInlineRecv(t *testing.T) {
	p := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 2, NumThreads: 2})
	b := newBatch(p)
	reset(t, p, b, nil)
	done := make(chan struct{}, 2)
	loop := func(e int32, timeout time.Duration) {
		b := newBatch(p)
		for range 300 {
			if err := p.Send([]int32{0}, []int32{e}); err != nil {
				continue // the other thread's Recv took this one's row, or will
			}
			_, _ = p.Recv(timeout, b)
		}
		done <- struct{}{}
	}
	go loop(0, -1)
	go loop(1, 2*time.Second)
	for range 2 {
		select {
		case <-done:
		case <-time.After(time.Minute):
			// A Recv without timeout may have lost its row to the other thread; nothing else may hang.
			require.Fail(t, "a Recv hangs")
		}
	}
	for p.Pending() > 0 {
		_, err := p.Recv(time.Second, b)
		require.NoError(t, err)
	}
	step(t, p, b, 0, 0)
}

// seeded shows its seed, and goes on with its own stream; action 2 panics.
type seeded struct{}

type seededState struct{ Seed, Episode uint64 }

func (seeded) Spec() envs.Spec {
	return envs.Spec{
		ID: "Seeded-v0", NumActions: 3, NumPlayers: 1, RewardHigh: 1,
		Obs: []envs.ArraySpec{{Name: "seed", DType: envs.Int32, Low: []float64{0}, High: []float64{1e9}}},
	}
}
func (seeded) Reset(s *seededState, seed uint64) { *s = seededState{Seed: seed % 1e6} }
func (seeded) Restart(s *seededState)            { s.Episode++ }
func (seeded) Step(_ *seededState, a int32) envs.Outcome {
	if a == 2 {
		panic("boom")
	}
	return envs.Outcome{}
}
func (seeded) Observe(s *seededState, row envs.Row) { row.Int32(0)[0] = int32(s.Seed) }

// After a panic the next episodes are different ones, of each environment's own seed.
func TestSeedsAfterAPanic(t *testing.T) {
	env, err := envs.Define(seeded{})
	require.NoError(t, err)
	p := openPool(t, env, pool.Config{NumEnvs: 2, Seeds: []uint64{101, 102}})
	b := newBatch(p)
	b.Failed = make([]bool, 2)
	reset(t, p, b, nil)
	require.Equal(t, []int32{101, 102}, b.Obs[0].I32)
	require.NoError(t, p.Send([]int32{2, 2}, nil))
	_, err = p.Recv(-1, b)
	require.ErrorContains(t, err, "env_id 0: panic: boom")
	require.ErrorContains(t, err, "env_id 1: panic: boom")
	require.Equal(t, []bool{true, true}, b.Failed)
	reset(t, p, b, nil)
	require.NotEqual(t, b.Obs[0].I32[0], b.Obs[0].I32[1])
	require.NotContains(t, b.Obs[0].I32, int32(0))
}

// boxed is a game of two whose state has a pointer, nil before the first reset.
type boxed struct{}

type boxedState struct{ Moves *int32 }

func (boxed) Spec() envs.Spec {
	return envs.Spec{
		ID: "Boxed-v0", NumActions: 1, NumPlayers: 2, RewardHigh: 1,
		Obs: []envs.ArraySpec{{Name: "moves", DType: envs.Int32, Low: []float64{0}, High: []float64{1e9}}},
	}
}
func (boxed) Reset(s *boxedState, _ uint64)            { s.Moves = new(int32) }
func (boxed) Step(s *boxedState, _ int32) envs.Outcome { *s.Moves++; return envs.Outcome{Reward: 1} }
func (boxed) Observe(s *boxedState, row envs.Row)      { row.Int32(0)[0] = *s.Moves }
func (boxed) ToPlay(s *boxedState) int32               { return *s.Moves % 2 }
func (boxed) Clone(dst, src *boxedState)               { m := *src.Moves; dst.Moves = &m }
func (boxed) Append(dst []byte, s *boxedState) []byte  { return append(dst, byte(*s.Moves)) }
func (boxed) Decode(s *boxedState, src []byte) error   { m := int32(src[0]); s.Moves = &m; return nil }

func TestStatesWithPointersAndTwoPlayers(t *testing.T) {
	env, err := envs.Define(boxed{})
	require.NoError(t, err)
	for _, mode := range modes {
		p := openPool(t, env, pool.Config{NumEnvs: 2, Dispatch: mode})
		b := newBatch(p)
		b.Rewards = make([]float32, 4)
		reset(t, p, b, nil)
		step(t, p, b, 0, 0)
		require.Equal(t, []float32{1, -1, 1, -1}, b.Rewards)
	}
}

// slowMask takes its time to say what is legal.
type slowMask struct{ counter }

func (slowMask) Mask(_ *int32, legal []bool) {
	time.Sleep(100 * time.Millisecond)
	for i := range legal {
		legal[i] = true
	}
}

// The rules are asked without the lock: others go on, but not with the environments in question.
func TestSlowMaskHoldsUpNobody(t *testing.T) {
	env, err := envs.Define(slowMask{counter{limit: 100}})
	require.NoError(t, err)
	p := openPool(t, env, pool.Config{NumEnvs: 4, Dispatch: dispatch.Threads})
	b := newBatch(p)
	b.Mask = nil
	reset(t, p, b, nil)
	sent := make(chan error)
	go func() { sent <- p.Send([]int32{0, 0, 0}, []int32{0, 1, 2}) }()
	time.Sleep(20 * time.Millisecond)
	start := time.Now()
	require.Zero(t, p.Pending())
	require.ErrorIs(t, p.Snapshot([]int32{1}, make([]int32, 1)), pool.ErrBusy)
	require.NoError(t, p.Snapshot([]int32{3}, make([]int32, 1)))
	require.Less(t, time.Since(start), 80*time.Millisecond)
	require.NoError(t, <-sent)
	require.Equal(t, 3, p.Pending())
}

// Restoring an ended state: the next step begins an episode, or must be a reset.
func TestRestoreEnded(t *testing.T) {
	for _, mode := range []pool.Autoreset{pool.SameStep, pool.NextStep, pool.Disabled} {
		p := newPool(t, "TicTacToe-v0", `{}`, pool.Config{NumEnvs: 1, Autoreset: mode})
		b := newBatch(p)
		reset(t, p, b, nil)
		start, end := make([]int32, 1), make([]int32, 1)
		require.NoError(t, p.Snapshot([]int32{0}, start))
		for _, a := range []int32{0, 3, 1, 4} {
			step(t, p, b, a)
		}
		require.NoError(t, p.Restore([]int32{0}, start))
		step(t, p, b, 5)
		require.Equal(t, int32(1), b.Elapsed[0])
		ended := playToTheEnd(t, p, start[0])
		copy(end, ended)
		require.NoError(t, p.Restore([]int32{0}, end))
		err := p.Send([]int32{8}, nil)
		if mode == pool.Disabled {
			require.ErrorIs(t, err, pool.ErrEnded)
			continue
		}
		require.NoError(t, err)
		_, err = p.Recv(-1, b)
		require.NoError(t, err)
		require.False(t, b.Terminated[0])
		require.False(t, slices.Contains(b.Obs[0].Bool, true), "not a new board")
		require.Zero(t, b.Elapsed[0])
	}
}

// playToTheEnd forks a first state until player 0 has won.
func playToTheEnd(t *testing.T, p *pool.Pool, state int32) []int32 {
	h := []int32{state}
	for _, a := range []int32{0, 3, 1, 4, 2} {
		out := newSteps(1)
		require.NoError(t, p.Store().Simulate(h, []int32{a}, out))
		h = out.Children
	}
	return h
}

// The pool's own states, logs included, don't count against the user's budget.
func TestRecordLeavesTheBudget(t *testing.T) {
	p := newPool(t, "Maze-v0", `{}`, pool.Config{NumEnvs: 8, MaxStates: 4, MaxBytes: 4 * 600, Record: true})
	b := newBatch(p)
	reset(t, p, b, nil)
	step(t, p, b, make([]int32, 8)...)
	h := make([]int32, 4)
	require.NoError(t, p.Snapshot([]int32{0, 1, 2, 3}, h))
	step(t, p, b, make([]int32, 8)...)
}

// fragile steps whole batches, and panics at action 2.
type fragile struct{ counter }

func (f fragile) StepBatch(states []*int32, actions []int32, out []envs.Outcome) {
	for i, s := range states {
		if actions[i] == 2 {
			panic("boom")
		}
		*s++
		out[i] = envs.Outcome{}
	}
}

// When rules that step whole batches panic, nobody knows how far they came: the whole batch has failed.
func TestPanicInABatch(t *testing.T) {
	env, err := envs.Define(fragile{counter{limit: 100}})
	require.NoError(t, err)
	p := openPool(t, env, pool.Config{NumEnvs: 3, Dispatch: dispatch.Inline})
	b := newBatch(p)
	b.Failed = make([]bool, 3)
	reset(t, p, b, nil)
	require.NoError(t, p.Send([]int32{0, 0, 2}, nil))
	_, err = p.Recv(-1, b)
	require.ErrorContains(t, err, "env_id 0: panic: boom")
	require.Equal(t, []bool{true, true, true}, b.Failed)
	reset(t, p, b, nil)
	step(t, p, b, 0, 0, 0)
	require.Equal(t, []int32{1, 1, 1}, b.Obs[0].I32)
}

// Close gives back what was put aside for steps that were never taken.
func TestCloseWithWorkWaiting(t *testing.T) {
	p := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 4, Dispatch: dispatch.Inline})
	b := newBatch(p)
	reset(t, p, b, nil)
	h := make([]int32, 4)
	require.NoError(t, p.Snapshot([]int32{0, 1, 2, 3}, h))
	require.NoError(t, p.Send(make([]int32, 4), nil))
	require.NoError(t, p.Store().Release(h))
	p.Close()
	require.Zero(t, p.Store().Stats().States)
}
