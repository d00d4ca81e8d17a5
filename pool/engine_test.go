package pool_test

import (
	"testing"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/dispatch"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

var modes = []dispatch.Mode{dispatch.Inline, dispatch.Threads}

// Some environments are reset, with a seed of their own or none; the others stay as they are.
func TestPartialReset(t *testing.T) {
	for _, mode := range modes {
		p := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 4, Dispatch: mode, Seeds: seeds(7, 4)})
		b := newBatch(p)
		reset(t, p, b, nil)
		step(t, p, b, 0, 1, 0, 1)
		before := append([]float32(nil), b.Obs[0].F32...)
		require.NoError(t, p.AsyncReset([]int32{2, 0}, []uint64{10, 99}, []bool{true, false}))
		n, err := p.Recv(-1, b)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, []int32{2, 0}, b.EnvID[:2])
		other := newPool(t, "CartPole-v1", `{}`, pool.Config{NumEnvs: 2, Seeds: []uint64{10, 7}})
		want := newBatch(other)
		reset(t, other, want, nil)
		require.Equal(t, want.Obs[0].F32[:4], b.Obs[0].F32[:4], "seed 10")
		require.NoError(t, other.AsyncReset([]int32{1}, nil, nil))
		_, err = other.Recv(-1, want)
		require.NoError(t, err)
		require.Equal(t, want.Obs[0].F32[:4], b.Obs[0].F32[4:8], "the stream of seed 7 goes on")
		require.NotEqual(t, before[:4], b.Obs[0].F32[4:8])
		require.ErrorIs(t, p.AsyncReset([]int32{0}, []uint64{1, 2}, nil), pool.ErrConfig)
		require.ErrorIs(t, p.AsyncReset([]int32{4}, nil, nil), pool.ErrEnvID)
		require.NoError(t, p.Send([]int32{0}, []int32{1}))
		require.ErrorIs(t, p.AsyncReset([]int32{1}, nil, nil), pool.ErrBusy)
	}
}

// three is a game of three in turn; each move takes 2 from the mover, and gives 1 to each of the others.
type three struct{}

type threeState struct{ Moves int32 }

func (three) Spec() envs.Spec {
	return envs.Spec{
		ID: "Three-v0", NumActions: 1, NumPlayers: 3, RewardLow: -2, RewardHigh: 1,
		Obs: []envs.ArraySpec{{Name: "moves", DType: envs.Int32, Low: []float64{0}, High: []float64{4}}},
	}
}
func (three) Reset(s *threeState, _ uint64) { *s = threeState{} }
func (three) Step(s *threeState, _ int32) envs.Outcome {
	s.Moves++
	return envs.Outcome{Reward: -2, Terminated: s.Moves == 4}
}
func (three) Observe(s *threeState, row envs.Row) { row.Int32(0)[0] = s.Moves }
func (three) ToPlay(s *threeState) int32          { return s.Moves % 3 }
func (three) Rewards(s *threeState, rewards []float32) {
	for i := range rewards {
		rewards[i] = 1
	}
	rewards[(s.Moves+2)%3] = -2
}

// Every player's reward, by rules of three players and by the opposite in a game of two; also in the
// step that resets.
func TestRewards(t *testing.T) {
	env, err := envs.Define(three{})
	require.NoError(t, err)
	for _, mode := range modes {
		p := openPool(t, env, pool.Config{NumEnvs: 2, Dispatch: mode})
		b := newBatch(p)
		b.Rewards = make([]float32, 2*3)
		reset(t, p, b, nil)
		require.Equal(t, make([]float32, 6), b.Rewards)
		for i := range 8 {
			step(t, p, b, 0, 0)
			want := []float32{1, 1, 1, 1, 1, 1}
			want[i%4%3], want[3+i%4%3] = -2, -2
			require.Equal(t, want, b.Rewards, "step %d", i)
		}
		ttt := newPool(t, "TicTacToe-v0", `{}`, pool.Config{NumEnvs: 1, Dispatch: mode})
		b = newBatch(ttt)
		b.Rewards = make([]float32, 2)
		reset(t, ttt, b, nil)
		for _, a := range []int32{0, 1, 3, 4, 8, 7} { // player 1 gets the middle column
			step(t, ttt, b, a)
		}
		require.Equal(t, []float32{-1, 1}, b.Rewards)
		require.Equal(t, float32(1), b.Reward[0])
	}
	_, err = envs.Define(noRewards{})
	require.ErrorContains(t, err, "3 players but no Rewards method")
}

// noRewards hides the method of three.
type noRewards struct{ inner three }

func (n noRewards) Spec() envs.Spec                          { return n.inner.Spec() }
func (n noRewards) Reset(s *threeState, seed uint64)         { n.inner.Reset(s, seed) }
func (n noRewards) Step(s *threeState, a int32) envs.Outcome { return n.inner.Step(s, a) }
func (n noRewards) Observe(s *threeState, row envs.Row)      { n.inner.Observe(s, row) }
func (n noRewards) ToPlay(s *threeState) int32               { return n.inner.ToPlay(s) }

// The info arrays come with the results, and with the end of the old episode when the new one began.
func TestInfo(t *testing.T) {
	for _, mode := range modes {
		p := newPool(t, "Maze-v0", `{"layout":["S.G","..."]}`, pool.Config{NumEnvs: 2, Dispatch: mode})
		b, spec := newBatch(p), p.Env().Spec()
		b.Info = envs.NewArrays(spec.Info, 2)
		b.FinalInfo = envs.NewArrays(spec.Info, 2)
		reset(t, p, b, nil)
		step(t, p, b, 0, 1)
		require.Equal(t, []bool{true, false}, b.Info[0].Bool)
		for range 4 {
			step(t, p, b, 2, 3)
		}
		step(t, p, b, 0, 3)
		require.Equal(t, 2, b.Done, "six steps are the limit")
		require.Equal(t, []bool{false, false}, b.Info[0].Bool)
		require.Equal(t, []bool{false, true}, b.FinalInfo[0].Bool)
	}
}

// A slow environment is named; the fast ones aren't.
func TestTiming(t *testing.T) {
	p := counters(t, counter{limit: 1000, sleep: 3 * time.Millisecond}, pool.Config{NumEnvs: 5, NumThreads: 2})
	b := newBatch(p)
	reset(t, p, b, nil)
	require.Empty(t, p.Timing().Stragglers)
	for range 12 {
		step(t, p, b, 0, 0, 0, 1, 0)
	}
	got := p.Timing()
	require.Equal(t, []int32{3}, got.Stragglers)
	require.InDelta(t, 3e-3, got.P50[3].Seconds(), 2.5e-3)
	require.GreaterOrEqual(t, got.P99[3], got.P50[3])
	require.Less(t, got.P50[0], time.Millisecond)
}

// Every state of an episode is made again, bit by bit, whatever threads did the steps.
func TestReplay(t *testing.T) {
	for _, mode := range modes {
		p := newPool(t, "CartPole-v1", `{"max_episode_steps":6}`, pool.Config{NumEnvs: 3, Dispatch: mode, Record: true})
		b := newBatch(p)
		reset(t, p, b, nil)
		for range 8 { // the second episode is two steps old then
			step(t, p, b, 0, 1, 0)
		}
		bytes := func(h []int32) [][]byte {
			out, err := p.Store().Dump(h)
			require.NoError(t, err)
			return out
		}
		now, again := make([]int32, 3), make([]int32, 3)
		want := [][][]byte{}
		for range 3 {
			require.NoError(t, p.Snapshot([]int32{0, 1, 2}, now))
			want = append(want, bytes(now))
			require.NoError(t, p.Store().Release(now))
			step(t, p, b, 1, 1, 0)
		}
		for k, w := range want {
			at := int32(2 + k)
			require.NoError(t, p.Replay([]int32{0, 1, 2}, []int32{at, at, at}, again))
			require.Equal(t, w, bytes(again), "step %d", at)
			require.NoError(t, p.Store().Release(again))
		}
		actions, err := p.Actions(1)
		require.NoError(t, err)
		require.Equal(t, []int32{1, 1, 1, 1, 1}, actions)
		require.ErrorContains(t, p.Replay([]int32{0}, []int32{6}, again[:1]), "step 6 of env_id 0; want 0 to 5")
		require.NoError(t, p.Snapshot([]int32{0, 1, 2}, now))
		require.NoError(t, p.Restore([]int32{1}, now[:1]))
		require.NoError(t, p.Replay([]int32{1}, []int32{0}, again[:1]))
		require.Equal(t, bytes(now[:1]), bytes(again[:1]), "a restored state is the start of the log")
		require.NoError(t, p.Store().Release(append(again[:1], now...)))
		require.Zero(t, p.Store().Stats().Live)
		p.Close()
		require.Zero(t, p.Store().Stats().States, "the logs held states beyond Close")
	}
	p := newPool(t, "TicTacToe-v0", `{}`, pool.Config{NumEnvs: 1})
	_, err := p.Actions(0)
	require.ErrorIs(t, err, pool.ErrConfig)
}

// A handle is stale once it was released, although the environment is still in that state: a second release
// must not free it, nor may the handle show what the environment does next.
func TestReleasedSnapshotOfALiveState(t *testing.T) {
	p := newPool(t, "TicTacToe-v0", `{}`, pool.Config{NumEnvs: 2})
	b := newBatch(p)
	reset(t, p, b, nil)
	ids, again := make([]int32, 2), make([]int32, 2)
	require.NoError(t, p.Snapshot([]int32{0, 1}, ids))
	require.NoError(t, p.Snapshot([]int32{0, 1}, again))
	require.Equal(t, ids, again, "one state, one handle")
	require.NoError(t, p.Store().Release(ids))
	require.NoError(t, p.Store().Release(ids), "retained twice")
	require.ErrorIs(t, p.Store().Release(ids), statestore.ErrStale)
	_, err := p.Store().Dump(ids)
	require.ErrorIs(t, err, statestore.ErrStale)
	require.NoError(t, p.Snapshot([]int32{0, 1}, again))
	require.NotEqual(t, ids, again)
	_, err = p.Store().Dump(ids)
	require.ErrorIs(t, err, statestore.ErrStale)
	require.ErrorIs(t, p.Store().Release([]int32{again[0], again[0]}), statestore.ErrStale, "refused whole")
	require.Equal(t, 2, p.Store().Stats().Live)
	require.NoError(t, p.Store().Release(again))
	step(t, p, b, 4, 5)
	require.Equal(t, 2, p.Store().Stats().States)
}
