package evaluator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/evaluatortest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makeEnv(t testing.TB, id string) *envs.Env {
	env, err := envs.Make(id, nil)
	require.NoError(t, err)
	return env
}

// weighted is a network in miniature: sums of the observation with weights that make every cell count.
func weighted(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	a := in.Spec.NumActions
	row := make([]float32, in.Obs[0].Size())
	for i := range in.N {
		in.Obs[0].Floats(i, row)
		s := float64(0)
		for j, x := range row {
			s += float64(x) * math.Sin(float64(j))
		}
		out.Value[i] = float32(math.Tanh(s))
		for k := range a {
			out.Logits[i*a+k] = float32(math.Cos(s + float64(k)))
		}
	}
	return ctx.Err()
}

func TestBattery(t *testing.T) {
	four := makeEnv(t, "ConnectFour-v0")
	rollout, err := evaluator.NewRollout(2, 100)
	require.NoError(t, err)
	random, err := evaluator.NewSymmetry(evaluator.Func(weighted), four, evaluator.SymmetryRandom)
	require.NoError(t, err)
	average, err := evaluator.NewSymmetry(evaluator.Func(weighted), four, evaluator.SymmetryAverage)
	require.NoError(t, err)
	batcher, err := evaluator.NewBatcher(evaluator.Func(weighted), four.Spec(), evaluator.BatcherConfig{MaxBatch: 16, Streams: 2})
	require.NoError(t, err)
	client := batcher.Client(0)
	for name, c := range map[string]struct {
		ev    evaluator.Evaluator
		close func()
	}{
		"uniform":           {evaluator.Uniform{}, nil},
		"func":              {evaluator.Func(weighted), nil},
		"rollout":           {rollout, nil},
		"checked":           {evaluator.NewChecked("weighted", evaluator.Func(weighted), four.Spec()), nil},
		"symmetry, random":  {random, nil},
		"symmetry, average": {average, nil},
		"batcher":           {client, batcher.Close},
	} {
		t.Run(name, func(t *testing.T) { evaluatortest.Battery(t, four, c.ev, 48, c.close) })
	}
	out := evaluator.Output{Logits: make([]float32, 7), Value: make([]float32, 1)}
	b := evaluatortest.Positions(four, 1, 1)
	require.ErrorIs(t, client.Evaluate(context.Background(), b, &out), evaluator.ErrClosed)
}

// With averaged symmetries the answers of a board and of its mirror image are mirror images.
func TestSymmetryAverage(t *testing.T) {
	for _, id := range []string{"ConnectFour-v0", "TicTacToe-v0", "Gomoku-v0"} {
		env := makeEnv(t, id)
		average, err := evaluator.NewSymmetry(evaluator.Func(weighted), env, evaluator.SymmetryAverage)
		require.NoError(t, err)
		plain, err := evaluator.NewSymmetry(evaluator.Func(weighted), env, evaluator.SymmetryRandom)
		require.NoError(t, err)
		b := evaluatortest.Positions(env, 30, 2)
		want := evaluatortest.Evaluate(t, average, b)
		a := env.Spec().NumActions
		turned := 0
		for _, sym := range env.Symmetries() {
			m := evaluatortest.Rows(b, make([]int, b.N)...)
			for i := range b.N {
				m.Obs[0].TurnRow(i, &b.Obs[0], i, sym.Obs[0])
				envs.Apply(sym.Actions, b.Legal[i*a:(i+1)*a], m.Legal[i*a:(i+1)*a])
			}
			got := evaluatortest.Evaluate(t, average, m)
			for i := range b.N {
				require.InDelta(t, want.Value[i], got.Value[i], 1e-5, sym.Name)
				for k, from := range sym.Actions {
					if b.Legal[i*a+from] {
						require.InDelta(t, want.Logits[i*a+from], got.Logits[i*a+k], 1e-4, sym.Name)
					}
				}
			}
		}
		raw, random := evaluatortest.Evaluate(t, evaluator.Func(weighted), b), evaluatortest.Evaluate(t, plain, b)
		for i := range b.N {
			if raw.Value[i] != random.Value[i] {
				turned++
			}
		}
		require.Greater(t, turned, 3, "random symmetries turn some positions")
	}
	_, err := evaluator.NewSymmetry(evaluator.Uniform{}, makeEnv(t, "CartPole-v1"), evaluator.SymmetryRandom)
	require.ErrorIs(t, err, evaluator.ErrSymmetry)
	_, err = evaluator.NewSymmetry(evaluator.Uniform{}, makeEnv(t, "TicTacToe-v0"), "all")
	require.ErrorContains(t, err, `want "random" or "average"`)
}

// B19: a symmetry turns board and policy by the same permutation. The evaluator's logits say what is on each cell of
// the board it sees; turned back, they must say what is on each cell of the board that was asked about.
func TestB19SymmetryTurnsBoth(t *testing.T) {
	env := makeEnv(t, "TicTacToe-v0")
	cells := evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		row := make([]float32, in.Obs[0].Size())
		planes := len(row) / 9
		for i := range in.N {
			in.Obs[0].Floats(i, row)
			for k := range 9 {
				for p := range planes {
					out.Logits[i*9+k] = 3*out.Logits[i*9+k] + row[k*planes+p]
				}
			}
		}
		return nil
	})
	b := evaluatortest.Positions(env, 100, 5)
	want := evaluatortest.Evaluate(t, cells, b)
	random, err := evaluator.NewSymmetry(cells, env, evaluator.SymmetryRandom)
	require.NoError(t, err)
	require.Equal(t, want.Logits, evaluatortest.Evaluate(t, random, b).Logits)
}

// faulty spoils the answer of one row.
func faulty(spoil func(out *evaluator.Output, logits []float32, row int)) evaluator.Evaluator {
	return evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		err := weighted(ctx, in, out)
		a := in.Spec.NumActions
		spoil(out, out.Logits[2*a:3*a], 2)
		return err
	})
}

// B35: what an evaluator should not say fails its row alone, by name.
func TestB35Checked(t *testing.T) {
	env := makeEnv(t, "ConnectFour-v0")
	b := evaluatortest.Positions(env, 4, 3)
	for want, spoil := range map[string]func(out *evaluator.Output, logits []float32, row int){
		"value is NaN":  func(o *evaluator.Output, _ []float32, i int) { o.Value[i] = float32(math.NaN()) },
		"value is +Inf": func(o *evaluator.Output, _ []float32, i int) { o.Value[i] = float32(math.Inf(1)) },
		"value is 7; want -1 to 1": func(o *evaluator.Output, _ []float32, i int) {
			o.Value[i] = 7
		},
		"logit of action 3 is NaN": func(_ *evaluator.Output, l []float32, _ int) { l[3] = float32(math.NaN()) },
		"the logits of all legal actions are -Inf": func(_ *evaluator.Output, l []float32, _ int) {
			for a := range l {
				l[a] = float32(math.Inf(-1))
			}
		},
	} {
		out := evaluatortest.Evaluate(t, evaluator.NewChecked("net", faulty(spoil), env.Spec()), b)
		require.Len(t, out.Errors, 4, want)
		var answer *evaluator.AnswerError
		require.ErrorAs(t, out.Errors[2], &answer)
		require.Equal(t, 2, answer.Row)
		require.ErrorContains(t, answer, "evaluator net: row 2: "+want)
		clean := evaluatortest.Evaluate(t, evaluator.Func(weighted), b)
		for _, i := range []int{0, 1, 3} {
			require.NoError(t, out.Errors[i])
			require.Equal(t, clean.Value[i], out.Value[i])
			require.Equal(t, clean.Logits[7*i:7*i+7], out.Logits[7*i:7*i+7])
		}
	}
	broken := evaluator.Func(func(context.Context, *evaluator.Batch, *evaluator.Output) error { return errors.New("no device") })
	out := evaluator.Output{Logits: make([]float32, 28), Value: make([]float32, 4)}
	err := evaluator.NewChecked("net", broken, env.Spec()).Evaluate(context.Background(), b, &out)
	require.EqualError(t, err, "evaluator net: no device")
	// One player's values may be anything finite.
	cart := makeEnv(t, "CartPole-v1")
	big := evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		for i := range in.N {
			out.Value[i] = 400
		}
		return nil
	})
	require.Nil(t, evaluatortest.Evaluate(t, evaluator.NewChecked("net", big, cart.Spec()), evaluatortest.Positions(cart, 2, 1)).Errors)
}

// B35: an answer has no rows of an earlier, larger batch.
func TestB35NoStaleRows(t *testing.T) {
	env := makeEnv(t, "ConnectFour-v0")
	sum := evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		row := make([]float32, in.Obs[0].Size())
		for i := range in.N {
			in.Obs[0].Floats(i, row)
			for _, v := range row {
				out.Value[i] += v
			}
		}
		return nil
	})
	batcher, err := evaluator.NewBatcher(evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		clear(out.Value[:in.N])
		return sum(ctx, in, out)
	}), env.Spec(), evaluator.BatcherConfig{MaxBatch: 10})
	require.NoError(t, err)
	defer batcher.Close()
	client := batcher.Client(0)
	for k, n := range []int{10, 2, 10} {
		b := evaluatortest.Positions(env, n, uint64(k))
		require.Equal(t, evaluatortest.Evaluate(t, sum, b).Value, evaluatortest.Evaluate(t, client, b).Value, fmt.Sprint(n))
	}
}
