package statestore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/race"
	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

func connectFour(t testing.TB) *envs.Env {
	t.Helper()
	env, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	return env
}

func newStore(t testing.TB, cfg statestore.Config) *statestore.Store {
	t.Helper()
	s, err := statestore.New(connectFour(t), cfg, nil)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func roots(t testing.TB, s *statestore.Store, n int) []int32 {
	t.Helper()
	out := make([]int32, n)
	require.NoError(t, s.Reset(nil, make([]uint64, n), out))
	return out
}

func simulate(s *statestore.Store, parents, actions []int32) ([]int32, error) {
	out := statestore.Steps{Children: make([]int32, len(parents))}
	return out.Children, s.Simulate(parents, actions, &out)
}

func TestForking(t *testing.T) {
	s := newStore(t, statestore.Config{})
	root := roots(t, s, 1)
	before, err := s.Dump(root)
	require.NoError(t, err)
	// One parent, expanded by every action twice.
	parents, actions := make([]int32, 14), make([]int32, 14)
	for i := range parents {
		parents[i], actions[i] = root[0], int32(i%7)
	}
	children, err := simulate(s, parents, actions)
	require.NoError(t, err)
	bytes, err := s.Dump(children)
	require.NoError(t, err)
	for i := range 7 {
		require.Equal(t, bytes[i], bytes[i+7])
		require.NotEqual(t, bytes[i], bytes[(i+1)%7])
	}
	after, err := s.Dump(root)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, 15, s.Stats().Live)
	require.NoError(t, s.Release(children))
	require.NoError(t, s.Release(root))
	require.Zero(t, s.Stats().Live)
	require.Zero(t, s.Stats().States)
	require.Equal(t, 15, s.Stats().Peak)
}

func TestReferences(t *testing.T) {
	s := newStore(t, statestore.Config{})
	h := roots(t, s, 2)
	require.NoError(t, s.Retain([]int32{h[0], h[0]}))
	// Four releases of three references: refused whole.
	err := s.Release([]int32{h[0], h[1], h[0], h[0], h[0]})
	require.ErrorIs(t, err, statestore.ErrStale)
	require.ErrorContains(t, err, "row 4")
	require.Equal(t, 4, s.Stats().Live)
	require.NoError(t, s.Release([]int32{h[0], h[0], h[0], h[1]}))
	for _, stale := range h {
		require.ErrorIs(t, s.Release([]int32{stale}), statestore.ErrStale)
		_, err := simulate(s, []int32{stale}, []int32{0})
		require.ErrorIs(t, err, statestore.ErrStale)
		require.ErrorContains(t, err, fmt.Sprint(stale))
	}
}

// A slot that is used again must not answer to its old handles.
func TestStaleAfterReuse(t *testing.T) {
	s := newStore(t, statestore.Config{MaxStates: 4})
	old := roots(t, s, 4)
	require.NoError(t, s.Release(old))
	for range 20 {
		h := roots(t, s, 4)
		require.ErrorIs(t, s.Read(old[:1], statestore.View{}), statestore.ErrStale)
		require.NoError(t, s.Release(h))
	}
}

func TestForeign(t *testing.T) {
	a, b := newStore(t, statestore.Config{}), newStore(t, statestore.Config{})
	h := roots(t, a, 1)
	roots(t, b, 1)
	for _, bad := range []int32{h[0], -1, 0, 7, 1<<31 - 1} {
		err := b.Release([]int32{bad})
		require.ErrorIs(t, err, statestore.ErrForeign, "%d", bad)
		require.ErrorContains(t, err, fmt.Sprint(bad))
	}
}

func TestFailedCallsChangeNothing(t *testing.T) {
	s := newStore(t, statestore.Config{MaxStates: 8})
	h := roots(t, s, 4)
	full := make([]int32, 6) // column 0 is full after six stones
	at := h[:1]
	for i := range full {
		next, err := simulate(s, at, []int32{0})
		require.NoError(t, err)
		if i > 0 {
			require.NoError(t, s.Release(at))
		}
		at = next
	}
	for _, c := range []struct {
		parents, actions []int32
		kind             error
		want             string
	}{
		{[]int32{h[0], h[1]}, []int32{0, 7}, statestore.ErrAction, "row 1: action 7; want 0 to 6"},
		{[]int32{h[0], h[1]}, []int32{0, -1}, statestore.ErrAction, "row 1: action -1"},
		{[]int32{h[0], at[0]}, []int32{0, 0}, statestore.ErrAction, "row 1: action 0 is illegal; legal: [1 2 3 4 5 6]"},
		{[]int32{h[0], h[1], h[2], h[3]}, []int32{1, 1, 1, 1}, statestore.ErrBudget, "4 states wanted, 5 of 8 in use"},
	} {
		before := s.Stats()
		_, err := simulate(s, c.parents, c.actions)
		require.ErrorIs(t, err, c.kind)
		require.ErrorContains(t, err, c.want)
		after := s.Stats()
		before.Peak, after.Peak = 0, 0
		require.Equal(t, before, after)
	}
	require.ErrorIs(t, s.Load([][]byte{{1, 2, 3}}, make([]int32, 1)), envs.ErrBadState)
	require.Equal(t, 5, s.Stats().Live)
}

func TestLoad(t *testing.T) {
	a, b := newStore(t, statestore.Config{}), newStore(t, statestore.Config{})
	h, err := simulate(a, roots(t, a, 2), []int32{3, 4})
	require.NoError(t, err)
	blobs, err := a.Dump(h)
	require.NoError(t, err)
	loaded := make([]int32, 2)
	require.NoError(t, b.Load(blobs, loaded))
	again, err := b.Dump(loaded)
	require.NoError(t, err)
	require.Equal(t, blobs, again)
}

// Random forks give the same states for any number of threads and any way to dispatch.
func TestThreadsGiveSameBits(t *testing.T) {
	var want [][]byte
	for _, threads := range []int{1, 2, 7} {
		for _, mode := range []string{"inline", "threads", "auto"} {
			w, err := pool.NewWorkers(threads)
			require.NoError(t, err)
			s, err := statestore.New(connectFour(t), statestore.Config{Dispatch: "threads"}, w)
			require.NoError(t, err)
			got := randomForks(t, s)
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "%d threads, %s", threads, mode)
			s.Close()
			w.Close()
		}
	}
}

func randomForks(t *testing.T, s *statestore.Store) [][]byte {
	rnd := rng.New(1)
	h := roots(t, s, 100)
	mask := make([]bool, 100*7)
	for range 30 {
		require.NoError(t, s.Read(h, statestore.View{Mask: mask}))
		parents, actions := make([]int32, 100), make([]int32, 100)
		for i := range parents {
			at := rnd.IntN(100)
			parents[i] = h[at]
			actions[i] = int32(rnd.IntN(7))
			for ended(mask[at*7:at*7+7]) == false && !mask[at*7+int(actions[i])] {
				actions[i] = int32(rnd.IntN(7))
			}
		}
		next, err := simulate(s, parents, actions)
		require.NoError(t, err)
		require.NoError(t, s.Release(h))
		h = next
	}
	out, err := s.Dump(h)
	require.NoError(t, err)
	return out
}

func ended(mask []bool) bool {
	for _, ok := range mask {
		if ok {
			return false
		}
	}
	return true
}

func TestSimulateAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := newStore(t, statestore.Config{})
	const n = 1024
	h, actions := roots(t, s, n), make([]int32, n)
	out := statestore.Steps{
		Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n),
		Truncated: make([]bool, n),
		View: statestore.View{
			Obs: envs.NewArrays(s.Env().Spec().Obs, n), Mask: make([]bool, n*7), ToPlay: make([]int32, n),
		},
	}
	step := func() {
		require.NoError(t, s.Simulate(h, actions, &out))
		require.NoError(t, s.Release(out.Children))
	}
	step()
	require.Less(t, testing.AllocsPerRun(20, step), 1.0)
}

// faulty panics on action 1 and is fine otherwise.
type faulty struct{}

func (faulty) Spec() envs.Spec {
	return envs.Spec{ID: "Faulty-v0", NumActions: 2, NumPlayers: 1, Obs: []envs.ArraySpec{
		{Name: "obs", DType: envs.Int32, Low: []float64{0}, High: []float64{9}},
	}}
}
func (faulty) Reset(s *int32, _ uint64) { *s = 0 }
func (faulty) Step(s *int32, a int32) envs.Outcome {
	if a == 1 {
		panic("boom")
	}
	*s++
	return envs.Outcome{}
}
func (faulty) Observe(s *int32, row envs.Row) { row.Int32(0)[0] = *s }

func TestPanicFailsOneCall(t *testing.T) {
	env, err := envs.Define(faulty{})
	require.NoError(t, err)
	s, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	h := roots(t, s, 3)
	_, err = simulate(s, h, []int32{0, 1, 0})
	require.ErrorContains(t, err, "Faulty-v0: row 1: panic: boom")
	require.Equal(t, 3, s.Stats().States)
	_, err = simulate(s, h, []int32{0, 0, 0})
	require.NoError(t, err)
}

// Many goroutines fork and release on one store; run with -race.
func TestConcurrentUse(t *testing.T) {
	w, err := pool.NewWorkers(3)
	require.NoError(t, err)
	defer w.Close()
	s, err := statestore.New(connectFour(t), statestore.Config{Dispatch: "threads"}, w)
	require.NoError(t, err)
	root := roots(t, s, 1)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				n := 1 + (g+i)%50
				parents, actions := make([]int32, n), make([]int32, n)
				for j := range parents {
					parents[j], actions[j] = root[0], int32(j%7)
				}
				c, err := simulate(s, parents, actions)
				if err != nil || s.Release(c) != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, s.Stats().Live)
}

func TestBlock(t *testing.T) {
	s := newStore(t, statestore.Config{MaxStates: 100})
	h := roots(t, s, 2)
	b, err := s.Block(90)
	require.NoError(t, err)
	require.Equal(t, 90, s.Stats().Reserved)
	_, err = s.Block(9)
	require.ErrorIs(t, err, statestore.ErrBudget)
	require.NoError(t, b.Fill([]int32{5, 6}, h))
	b.Release()
	b.Release()
	require.Zero(t, s.Stats().Reserved)
}

func TestClosed(t *testing.T) {
	s := newStore(t, statestore.Config{})
	h := roots(t, s, 1)
	s.Close()
	_, err := simulate(s, h, []int32{0})
	require.ErrorIs(t, err, statestore.ErrClosed)
	require.ErrorIs(t, s.Release(h), statestore.ErrClosed)
}

func BenchmarkSimulate(b *testing.B) {
	for _, id := range []string{"TicTacToe-v0", "ConnectFour-v0", "CartPole-v1"} {
		b.Run(id, func(b *testing.B) {
			env, err := envs.Make(id, nil)
			require.NoError(b, err)
			s, err := statestore.New(env, statestore.Config{}, nil)
			require.NoError(b, err)
			const n = 1024
			h, actions := roots(b, s, n), make([]int32, n)
			out := statestore.Steps{
				Children: make([]int32, n), Reward: make([]float32, n), Terminated: make([]bool, n),
				Truncated: make([]bool, n), Over: make([]bool, n),
				View: statestore.View{
					Obs: envs.NewArrays(env.Spec().Obs, n), Mask: make([]bool, n*env.Spec().NumActions), ToPlay: make([]int32, n),
				},
			}
			if p := env.Spec().NumPlayers; p > 1 {
				out.Rewards = make([]float32, n*p)
			}
			b.ReportAllocs()
			for b.Loop() {
				_ = s.Simulate(h, actions, &out)
				_ = s.Release(out.Children)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/state")
		})
	}
}

// A handle that occurs very often in one Release is stale afterwards, like any other.
func TestReleaseOfManyReferencesAtOnce(t *testing.T) {
	env, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	s, err := statestore.New(env, statestore.Config{MaxStates: 1 << 22}, nil)
	require.NoError(t, err)
	live, err := s.NewLive(1)
	require.NoError(t, err)
	live.Arena().Reset([]int32{0}, nil, []uint64{0})
	var h, again [1]int32
	many := make([]int32, 32) // as often as there are generations
	for i := range many {
		require.NoError(t, live.Snapshot([]int32{0}, many[i:i+1]))
	}
	require.NoError(t, s.Release(many))
	require.NoError(t, live.Snapshot([]int32{0}, again[:]))
	h[0] = many[0]
	require.NotEqual(t, h, again)
	require.ErrorIs(t, s.Release(h[:]), statestore.ErrStale)
}
