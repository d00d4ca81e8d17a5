// Package evaluatortest is the battery of tests that every evaluator must pass. An author calls Battery from a
// test of his own.
package evaluatortest

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// tolerance is how much an answer may depend on the batch: products of matrices add up in other orders.
const tolerance = 1e-4

// Battery checks an evaluator of an environment with batches of up to maxBatch rows. closing, if not nil, frees
// the evaluator; it is called twice at the end.
func Battery(t *testing.T, env *envs.Env, ev evaluator.Evaluator, maxBatch int, closing func()) {
	t.Helper()
	all := Positions(env, max(maxBatch, 16), 1)
	want := Evaluate(t, ev, all)
	t.Run("shapes", func(t *testing.T) { testShapes(t, ev, all, want) })
	t.Run("rows are independent", func(t *testing.T) { testRows(t, ev, all, want) })
	t.Run("any batch size", func(t *testing.T) { testSizes(t, ev, all, want, maxBatch) })
	t.Run("concurrency", func(t *testing.T) { testConcurrency(t, ev, all, want) })
	t.Run("cancellation", func(t *testing.T) { testCancellation(t, ev, all) })
	t.Run("pinned", func(t *testing.T) { testPinned(t, ev, all, want) })
	if closing != nil {
		closing()
		closing()
	}
}

// Positions returns n states of random games as a batch: observations, legal actions and the states themselves.
func Positions(env *envs.Env, n int, seed uint64) *evaluator.Batch {
	spec := env.Spec()
	a := env.NewArena(n)
	b := &evaluator.Batch{
		N: n, Spec: spec, Obs: envs.NewArrays(spec.Obs, n), Arena: a, Slots: make([]int32, n), Seeds: make([]uint64, n),
	}
	r := rng.New(seed)
	for i := range b.Slots {
		b.Slots[i], b.Seeds[i] = int32(i), r.Uint64()
	}
	a.Reset(b.Slots, nil, b.Seeds)
	action := make([]int32, 1)
	for i := range b.Slots {
		at := b.Slots[i : i+1]
		for range r.IntN(12) {
			if a.Pick(at, []uint64{r.Uint64()}, action); action[0] < 0 {
				break
			}
			out := make([]envs.Outcome, 1)
			a.Step(at, at, action, out)
			if out[0].Terminated || out[0].Truncated { // it is about states that go on
				a.Reset(at, nil, []uint64{r.Uint64()})
			}
		}
	}
	a.Observe(b.Slots, b.Obs, 0)
	if env.Capabilities().Masks {
		b.Legal = make([]bool, n*spec.NumActions)
		a.Mask(b.Slots, b.Legal)
	}
	return b
}

// Rows returns rows of a batch, in the order given, in memory of its own.
func Rows(b *evaluator.Batch, rows ...int) *evaluator.Batch {
	a := b.Spec.NumActions
	out := &evaluator.Batch{N: len(rows), Spec: b.Spec, Obs: envs.NewArrays(b.Spec.Obs, len(rows)), Arena: b.Arena}
	for i, row := range rows {
		for k := range out.Obs {
			out.Obs[k].CopyRow(i, &b.Obs[k], row)
		}
		if b.Legal != nil {
			out.Legal = append(out.Legal, b.Legal[row*a:(row+1)*a]...)
		}
		out.Slots, out.Seeds = append(out.Slots, b.Slots[row]), append(out.Seeds, b.Seeds[row])
	}
	return out
}

// span lists lo to hi-1.
func span(lo, hi int) (out []int) {
	for i := lo; i < hi; i++ {
		out = append(out, i)
	}
	return out
}

// Evaluate returns an evaluator's answer; logits that are all equal are written out.
func Evaluate(t testing.TB, ev evaluator.Evaluator, b *evaluator.Batch) evaluator.Output {
	t.Helper()
	out := output(b)
	require.NoError(t, ev.Evaluate(context.Background(), b, &out))
	finish(&out, b)
	return out
}

func output(b *evaluator.Batch) evaluator.Output {
	return evaluator.Output{Logits: make([]float32, b.N*b.Spec.NumActions), Value: make([]float32, b.N)}
}

func finish(out *evaluator.Output, b *evaluator.Batch) {
	if out.Uniform {
		clear(out.Logits[:b.N*b.Spec.NumActions])
	}
}

// same says whether row i of an answer is row j of another.
func same(got *evaluator.Output, i int, want *evaluator.Output, j, actions int) bool {
	if !near(got.Value[i], want.Value[j]) {
		return false
	}
	for a := range actions {
		if !near(got.Logits[i*actions+a], want.Logits[j*actions+a]) {
			return false
		}
	}
	return true
}

func near(x, y float32) bool {
	return x == y || math.Abs(float64(x-y)) <= tolerance*max(1, math.Abs(float64(y)))
}

// An answer is numbers, one value a row and a logit an action, and nothing beyond is written.
func testShapes(t *testing.T, ev evaluator.Evaluator, all *evaluator.Batch, want evaluator.Output) {
	a := all.Spec.NumActions
	b := Rows(all, span(0, 5)...)
	const canary = 12345
	out := evaluator.Output{Logits: make([]float32, 7*a), Value: make([]float32, 7)}
	for i := 5 * a; i < 7*a; i++ {
		out.Logits[i] = canary
	}
	out.Value[5], out.Value[6] = canary, canary
	require.NoError(t, ev.Evaluate(context.Background(), b, &out))
	require.Equal(t, []float32{canary, canary}, out.Value[5:])
	for _, l := range out.Logits[5*a:] {
		require.Equal(t, float32(canary), l)
	}
	require.Nil(t, want.Errors)
	for i, v := range want.Value {
		require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), "value of row %d is %v", i, v)
	}
	for i, l := range want.Logits {
		require.False(t, math.IsNaN(float64(l)) || math.IsInf(float64(l), 1), "logit %d is %v", i, l)
	}
	none := Rows(all)
	require.NoError(t, ev.Evaluate(context.Background(), none, &evaluator.Output{}), "no rows")
}

// A row's answer doesn't depend on the others, on its place, or on what was evaluated before.
func testRows(t *testing.T, ev evaluator.Evaluator, all *evaluator.Batch, want evaluator.Output) {
	r := rng.New(3)
	for range 10 {
		rows := make([]int, 1+r.IntN(min(all.N, 40)))
		for i := range rows {
			rows[i] = r.IntN(all.N)
		}
		got := Evaluate(t, ev, Rows(all, rows...))
		for i, row := range rows {
			require.True(t, same(&got, i, &want, row, all.Spec.NumActions), "row %d, number %d of %d", row, i, len(rows))
		}
	}
}

func testSizes(t *testing.T, ev evaluator.Evaluator, all *evaluator.Batch, want evaluator.Output, maxBatch int) {
	step := max(1, maxBatch/40)
	for n := 1; n <= maxBatch; n += step {
		got := Evaluate(t, ev, Rows(all, span(0, n)...))
		for i := range n {
			require.True(t, same(&got, i, &want, i, all.Spec.NumActions), "row %d of a batch of %d", i, n)
		}
	}
}

func testConcurrency(t *testing.T, ev evaluator.Evaluator, all *evaluator.Batch, want evaluator.Output) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rng.New(uint64(g))
			for range 20 {
				lo := r.IntN(all.N)
				hi := lo + 1 + r.IntN(min(all.N-lo, 9))
				b := Rows(all, span(lo, hi)...)
				got := output(b)
				if err := ev.Evaluate(context.Background(), b, &got); err != nil {
					t.Errorf("goroutine %d: %v", g, err)
					return
				}
				finish(&got, b)
				for i := range b.N {
					if !same(&got, i, &want, lo+i, b.Spec.NumActions) {
						t.Errorf("goroutine %d: row %d differs", g, lo+i)
					}
				}
			}
		})
	}
	wg.Wait()
}

// A context that has ended is its error; the evaluator works on afterwards.
func testCancellation(t *testing.T, ev evaluator.Evaluator, all *evaluator.Batch) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	out := output(all)
	require.ErrorIs(t, ev.Evaluate(ctx, all, &out), context.Canceled)
	for range 20 { // or in the middle
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		if err := ev.Evaluate(ctx, all, &out); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
	Evaluate(t, ev, all)
}

// Pinned, it answers the same.
func testPinned(t *testing.T, ev evaluator.Evaluator, all *evaluator.Batch, want evaluator.Output) {
	pinned, version, release := evaluator.Pin(ev)
	defer release()
	got := Evaluate(t, pinned, all)
	for i := range all.N {
		require.True(t, same(&got, i, &want, i, all.Spec.NumActions), "row %d", i)
	}
	_, again, release2 := evaluator.Pin(ev)
	release2()
	require.Equal(t, version, again)
	require.Equal(t, ev.Needs(), pinned.Needs())
}
