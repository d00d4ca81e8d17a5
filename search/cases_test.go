package search_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// The tests named Bxx are public bug reports of other systems, retold.

type tables = map[string]any

// B01: a two-player backup must turn the sign at every change of mover, the leaf's included.
func TestB01TwoPlayerSign(t *testing.T) {
	r := tableRig(t, tables{ // states S0, S1, S2, END
		"next_state": [][]int{{1, 2}, {3, 3}, {3, 3}, {3, 3}},
		"reward":     [][]float32{{0, 0}, {1, 0}, {0, 0}, {0, 0}},
		"to_play":    []int{0, 1, 1, 0}, "terminal": []int{0, 0, 0, 1},
	})
	for n, want := range map[int][]int32{64: {4, 60}, 256: {9, 247}} {
		out := r.search(r.plain(tree.MuZero, n), r.start(1)[0])
		require.Equal(t, want, out.Visits)
		q := map[int]float64{64: -0.75, 256: -7.0 / 9}[n]
		require.Equal(t, int32(1), out.Action[0])
		require.Zero(t, out.QValues[1])
		require.InDelta(t, q, out.QValues[0], 1e-6)
	}
	require.InDelta(t, -0.0462, r.search(r.plain(tree.MuZero, 64), r.start(1)[0]).Value[0], 1e-4)
	for _, p := range []tree.Policy{tree.AlphaZero, tree.Gumbel} {
		out := r.search(r.plain(p, 64), r.start(1)[0])
		require.Equal(t, int32(1), out.Action[0], p)
		require.LessOrEqual(t, out.QValues[0], float32(-0.3), p)
		require.Zero(t, out.QValues[1], p)
	}
}

func ticTacToe(t testing.TB) *rig {
	env, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	return newRig(t, env, evaluator.Uniform{})
}

// B02: the winner of a finished game is the one who moved.
func TestB02WinnerMoved(t *testing.T) {
	r := ticTacToe(t)
	for _, c := range []struct {
		moves []int32
		win   int32
		mctx  int32
	}{{[]int32{0, 3, 1, 4}, 2, 92}, {[]int32{0, 3, 1, 4, 8}, 5, 91}} {
		out := r.search(r.plain(tree.MuZero, 100), r.play(c.moves...))
		require.Equal(t, c.win, out.Action[0])
		require.Equal(t, float32(1), out.QValues[c.win])
		require.InDelta(t, c.mctx, out.Visits[c.win], 1) // mctx breaks ties by noise
		out = r.search(r.plain(tree.AlphaZero, 100), r.play(c.moves...))
		require.Equal(t, c.win, out.Action[0])
		require.GreaterOrEqual(t, out.Visits[c.win], int32(60))
	}
}

// B04: a draw is worth 0 and is an end.
func TestB04Draw(t *testing.T) {
	r := ticTacToe(t)
	r.ev = evaluator.Func(func(_ context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		for i := range in.N {
			out.Value[i] = 0.9
		}
		clear(out.Logits)
		return nil
	})
	last := r.play(0, 1, 2, 4, 3, 5, 7, 6)
	for _, p := range r.policies() {
		out := r.search(r.plain(p, 10), last)
		require.Equal(t, int32(10), out.Visits[8])
		require.Zero(t, out.QValues[8])
		require.InDelta(t, 0.9/11, out.Value[0], 1e-6)
	}
}

// recorder notes the states that an evaluator is asked for.
type recorder struct {
	evaluator.Evaluator
	calls [][]int32
}

func (r *recorder) Evaluate(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
	r.calls = append(r.calls, append([]int32(nil), in.Obs[0].I32[:in.N]...))
	return r.Evaluator.Evaluate(ctx, in, out)
}

// fan is a root with n children that aren't terminal and lead to themselves.
func fan(n int, values []float32, prior []float32) tables {
	next, reward, turn := make([][]int, n+1), make([][]float32, n+1), make([]int, n+1)
	logits := make([][]float32, n+1)
	for s := range next {
		next[s], reward[s], logits[s] = make([]int, n), make([]float32, n), make([]float32, n)
		for a := range n {
			next[s][a] = s
			if s == 0 {
				next[s][a] = a + 1
			}
		}
		turn[s] = min(s, 1)
	}
	for a, p := range prior {
		logits[0][a] = float32(math.Log(float64(p)))
	}
	return tables{"next_state": next, "reward": reward, "to_play": turn, "value": values,
		"prior_logits": logits}
}

// B05: leaves in flight spread out, and leave no trace.
func TestB05LeavesInFlight(t *testing.T) {
	values := []float32{0, 0, .1, .2, .3, .4, .5, .6, .7}
	r := tableRig(t, fan(8, values, nil))
	for _, p := range []tree.Policy{tree.AlphaZero, tree.MuZero} {
		rec := &recorder{Evaluator: r.ev}
		cfg := r.plain(p, 8)
		cfg.LeavesPerStep = 8
		rr := *r
		rr.ev = rec
		out := rr.search(cfg, r.start(1)[0])
		require.Len(t, rec.calls, 2, "the root, then one batch")
		require.ElementsMatch(t, []int32{1, 2, 3, 4, 5, 6, 7, 8}, rec.calls[1])
		require.Equal(t, []int32{1, 1, 1, 1, 1, 1, 1, 1}, out.Visits)
		for i := range 8 {
			require.InDelta(t, -float64(i)/10, out.QValues[i], 1e-6)
		}
		checkCounts(t, r, cfg, 64)
	}
}

// checkCounts searches with leaves in flight and recounts the tree.
func checkCounts(t *testing.T, r *rig, cfg search.Config, n int) {
	cfg.NumSimulations = n
	s, err := search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, cfg, r.ev.Needs())
	require.NoError(t, err)
	defer s.Close()
	out := evaluator.Output{Logits: make([]float32, 64*8), Value: make([]float32, 64)}
	for {
		batch, err := s.Select()
		require.NoError(t, err)
		if batch.N == 0 {
			break
		}
		require.NoError(t, r.ev.Evaluate(context.Background(), batch, &out))
		require.NoError(t, s.Expand(out.Logits, out.Value))
		leaves, counts := s.Tree(0).InFlight()
		require.Zero(t, leaves)
		require.Zero(t, counts)
	}
	x, a := s.Tree(0).Export(), r.env.Spec().NumActions
	require.Equal(t, int32(n+1), x.NodeVisits[0])
	for i := range x.NodeVisits {
		visits, sum := int32(1), float64(x.NodeRawValues[i])
		for at := i * a; at < (i+1)*a; at++ {
			visits += x.ChildrenVisits[at]
			q := x.ChildrenRewards[at] + x.ChildrenDiscounts[at]*x.ChildrenValues[at]
			sum += float64(q) * float64(x.ChildrenVisits[at])
		}
		if x.NodeVisits[i] > 0 {
			require.Equal(t, visits, x.NodeVisits[i], "node %d", i)
			require.InDelta(t, sum/float64(visits), x.NodeValues[i], 1e-5, "node %d", i)
		}
	}
}

// B06: games that go in circles.
func TestB06Cycles(t *testing.T) {
	r := tableRig(t, tables{"next_state": [][]int{{1, 1}, {0, 0}}, "reward": [][]float32{{0, 0}, {0, 0}}})
	cfg := r.plain(tree.MuZero, 200)
	cfg.MaxDepth = 5
	s, err := search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, cfg, r.ev.Needs())
	require.NoError(t, err)
	defer s.Close()
	for {
		batch, err := s.Select()
		require.NoError(t, err)
		if batch.N == 0 {
			break
		}
		require.NoError(t, s.Expand(nil, make([]float32, batch.N)))
	}
	out := search.NewResult(1, 2)
	require.NoError(t, s.Result(out))
	require.Equal(t, []int32{100, 100}, out.Visits)
	require.Equal(t, 5, out.Stats.MaxDepth)
	nodes := 0
	for _, v := range s.Tree(0).Export().NodeVisits {
		if v > 0 {
			nodes++
		}
	}
	require.LessOrEqual(t, nodes, 63)
	for _, p := range r.policies() {
		cfg := r.plain(p, 5000)
		cfg.MaxDepth = 64
		got := r.search(cfg, r.start(1)[0])
		require.Equal(t, int32(5000), got.Visits[0]+got.Visits[1])
		got = r.search(r.plain(p, 500), r.start(1)[0])
		require.Equal(t, int32(500), got.Visits[0]+got.Visits[1])
	}
}

// B09: all prior mass on illegal actions leaves the legal ones equal.
func TestB09PriorOnIllegal(t *testing.T) {
	for _, logits := range [][]any{{0, 0, -2000, -2000}, {0, 0, "-Inf", "-Inf"}} {
		r := tableRig(t, tables{
			"next_state": [][]int{{1, 1, 1, 1}, {1, 1, 1, 1}}, "reward": [][]float32{{0, 0, 0, 0}, {0, 0, 0, 0}},
			"legal":    [][]int{{0, 0, 1, 1}, {0, 0, 0, 0}},
			"terminal": []int{0, 1}, "prior_logits": [][]any{logits, {0, 0, 0, 0}},
		})
		for _, p := range r.policies() {
			out := r.search(r.plain(p, 20), r.start(1)[0])
			require.Equal(t, []int32{0, 0, 10, 10}, out.Visits, p)
			require.InDeltaSlice(t, []float32{0, 0, .5, .5}, out.Weights, 1e-6, p)
			require.Contains(t, []int32{2, 3}, out.Action[0], p)
		}
	}
}

// B10: the first selection follows the prior.
func TestB10FirstSelection(t *testing.T) {
	r := tableRig(t, fan(4, nil, []float32{.1, .2, .6, .1}))
	for _, p := range r.policies() {
		out := r.search(r.plain(p, 1), r.start(1)[0])
		require.Equal(t, []int32{0, 0, 1, 0}, out.Visits, p)
		require.Equal(t, int32(2), out.Action[0], p)
		if p != tree.Gumbel {
			require.Equal(t, []float32{0, 0, 1, 0}, out.Weights, p)
		}
	}
	// No simulation: equal shares (MuZero, as mctx; AlphaZero over what is legal); Gumbel refuses.
	out := r.search(r.plain(tree.MuZero, 0), r.start(1)[0])
	require.Equal(t, []float32{.25, .25, .25, .25}, out.Weights)
	_, err := search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, r.plain(tree.Gumbel, 0),
		r.ev.Needs())
	require.ErrorIs(t, err, search.ErrConfig)
	require.ErrorContains(t, err, "num_simulations=0; want 1 to")

	inner := tableRig(t, tables{ // one legal action, then the fan
		"next_state": [][]int{{1, 1, 1, 1}, {2, 3, 4, 5}, {2, 2, 2, 2}, {3, 3, 3, 3}, {4, 4, 4, 4}, {5, 5, 5, 5}},
		"reward":     make4(6), "legal": [][]int{{1, 0, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}},
		"prior_logits": [][]float64{{0, 0, 0, 0}, {math.Log(.1), math.Log(.2), math.Log(.6), math.Log(.1)},
			{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
	})
	for _, p := range r.policies() {
		rec := &recorder{Evaluator: inner.ev}
		rr := *inner
		rr.ev = rec
		rr.search(inner.plain(p, 2), inner.start(1)[0])
		require.Equal(t, [][]int32{{0}, {1}, {4}}, rec.calls, p)
	}
}

func make4(n int) [][]float32 {
	out := make([][]float32, n)
	for i := range out {
		out[i] = make([]float32, 4)
	}
	return out
}

// B11: noise is over legal actions, at the root only, and drawn once a search.
func TestB11Noise(t *testing.T) {
	const a = 362
	next, reward, legal := [][]int{make([]int, a), make([]int, a)}, [][]float32{make([]float32, a), make([]float32, a)}, [][]int{make([]int, a), make([]int, a)}
	for i := range a {
		next[0][i], next[1][i], legal[1][i] = 1, 1, 1
		if i%36 == 0 && i <= 324 {
			legal[0][i] = 1
		}
	}
	r := tableRig(t, tables{"next_state": next, "reward": reward, "legal": legal})
	for _, p := range []tree.Policy{tree.AlphaZero, tree.MuZero} {
		cfg := r.plain(p, 1)
		cfg.DirichletFraction, cfg.DirichletAlpha, cfg.KeepLogits = 1, 0.03, true
		const seeds = 2000
		mean := make([]float64, a)
		root := r.start(1)[0]
		seen := map[string]bool{}
		for seed := range seeds {
			priors, _ := rootPriors(t, r, cfg, root, uint64(seed))
			sum := 0.0
			for i, q := range priors {
				if legal[0][i] == 0 {
					require.Zero(t, q)
				}
				sum += q
				mean[i] += q / seeds
			}
			require.InDelta(t, 1, sum, 1e-6)
			seen[fmt.Sprint(priors)] = true
		}
		for i := 0; i <= 324; i += 36 {
			require.InDelta(t, 0.1, mean[i], 0.03)
		}
		require.Greater(t, len(seen), seeds*9/10, "different seeds differ")
		again, _ := rootPriors(t, r, cfg, root, 5)
		first, _ := rootPriors(t, r, cfg, root, 5)
		require.Equal(t, first, again)
	}
	two := tableRig(t, fan(4, nil, []float32{.1, .2, .6, .1}))
	cfg := two.plain(tree.MuZero, 30)
	cfg.DirichletFraction, cfg.KeepLogits = 0.25, true
	before, x := rootPriors(t, two, cfg, two.start(1)[0], 9)
	require.NotEqual(t, []float64{.1, .2, .6, .1}, before)
	for i := 1; i < len(x.NodeVisits); i++ {
		if x.NodeVisits[i] > 0 {
			require.Equal(t, []float32{0, 0, 0, 0}, x.ChildrenPriorLogits[4*i:4*i+4], "inner priors are the evaluator's")
		}
	}
}

// rootPriors runs a search and returns the root's priors, after checking that they stay the same.
func rootPriors(t *testing.T, r *rig, cfg search.Config, root int32, seed uint64) ([]float64, *tree.Export) {
	s, err := search.New(r.store, &search.Roots{States: []int32{root}, Seeds: []uint64{seed}}, cfg, evaluator.Needs{})
	require.NoError(t, err)
	defer s.Close()
	var first []float64
	for {
		batch, err := s.Select()
		require.NoError(t, err)
		if batch.N == 0 {
			break
		}
		require.NoError(t, s.Expand(nil, make([]float32, batch.N)))
		if first == nil {
			first = priorsOf(s.Tree(0).Export(), r.env.Spec().NumActions)
		}
	}
	x := s.Tree(0).Export()
	require.Equal(t, first, priorsOf(x, r.env.Spec().NumActions))
	return first, x
}

func priorsOf(x *tree.Export, a int) []float64 {
	out, sum := make([]float64, a), 0.0
	for i, l := range x.ChildrenPriorLogits[:a] {
		out[i] = math.Exp(float64(l))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// B12: low temperatures don't overflow.
func TestB12Temperature(t *testing.T) {
	for _, c := range []struct {
		visits []int32
		t      float32
		want   []float32
	}{
		{[]int32{100000, 99999, 1}, 0.01, []float32{.50025, .49975, 0}},
		{[]int32{100000, 99999, 1}, 1e-6, []float32{.999955, .000045, 0}},
		{[]int32{1000, 10, 0}, 100, []float32{.511511, .488489, 0}},
		{[]int32{3, 1, 0}, 0.5, []float32{.9, .1, 0}},
		{[]int32{3, 7, 7}, 0, []float32{0, 1, 0}},
		{[]int32{0, 0, 0}, 1, []float32{0, 0, 0}},
	} {
		got := make([]float32, 3)
		tree.Temperature(c.visits, c.t, got)
		require.InDeltaSlice(t, c.want, got, 1e-5)
	}
}

// B14: the mixed value of a node without visited children is its raw value.
func TestB14MixedValue(t *testing.T) {
	r := tableRig(t, fan(3, []float32{.3, .3, .3, .3}, []float32{.5, .3, .2}))
	out := r.search(r.plain(tree.Gumbel, 1), r.start(1)[0])
	for _, w := range out.Weights {
		require.False(t, math.IsNaN(float64(w)))
	}
}

// B16: scores belong to actions and not to child slots, and noise is fresh.
func TestB16SparseActions(t *testing.T) {
	const a = 1000
	next, reward, legal := [][]int{make([]int, a), make([]int, a)}, [][]float32{make([]float32, a), make([]float32, a)}, [][]int{make([]int, a), make([]int, a)}
	for i := range a {
		next[0][i], next[1][i] = 1, 1
	}
	legal[0][5], legal[0][500], legal[0][999] = 1, 1, 1
	reward[0][5], reward[0][500], reward[0][999] = -1, -1, 1
	r := tableRig(t, tables{"next_state": next, "reward": reward, "legal": legal, "terminal": []int{0, 1}})
	for p, want := range map[tree.Policy][3]int32{tree.MuZero: {1, 1, 10}, tree.Gumbel: {2, 5, 5}} {
		out := r.search(r.plain(p, 12), r.start(1)[0])
		require.Equal(t, int32(999), out.Action[0], p)
		got := []int32{out.Visits[5], out.Visits[500], out.Visits[999]}
		require.Equal(t, want[2], got[2], p)
		require.ElementsMatch(t, want, got, p) // the two losing actions are equal
	}
	eight := tableRig(t, fan(8, nil, nil))
	cfg := eight.plain(tree.Gumbel, 2)
	cfg.GumbelScale = 1
	root := eight.start(1)[0]
	states := make([]int32, 64)
	for i := range states {
		states[i] = root
	}
	run := func(seed uint64) []int32 {
		out := search.NewResult(64, 8)
		roots := &search.Roots{States: states, Seeds: search.Seeds(seed, 64)}
		require.NoError(t, search.Run(context.Background(), eight.store, nil, roots, eight.ev, cfg, out))
		return out.Action
	}
	distinct := map[int32]bool{}
	for _, x := range run(1) {
		distinct[x] = true
	}
	require.GreaterOrEqual(t, len(distinct), 5)
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// B08: counters and sums that are wide enough for endless analysis: visits beyond 2^24, where a float32 stands
// still, in a tree that stays small.
func TestB08Precision(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r := tableRig(t, tables{
		"next_state": [][]int{{1}, {1}}, "reward": [][]float32{{0.1}, {0}}, "terminal": []int{0, 1},
	})
	for _, p := range []tree.Policy{tree.MuZero, tree.AlphaZero, tree.UCT} {
		cfg := r.plain(p, 20_000_000)
		cfg.MaxNodes = 16
		out := r.search(cfg, r.start(1)[0])
		require.Equal(t, int32(20_000_000), out.Visits[0])
		require.InDelta(t, 0.1, out.QValues[0], 1e-4)
		require.InDelta(t, 0.1, out.Value[0], 1e-4)
	}
	cfg := r.plain(tree.MuZero, tree.MaxSimulations+1)
	_, err := search.New(r.store, &search.Roots{States: r.start(1), Seeds: []uint64{1}}, cfg, evaluator.Needs{})
	require.ErrorIs(t, err, search.ErrConfig, "refused, never negative")
}

// A mask of everything that is legal is answered as by mctx, and never with an illegal action.
func TestEverythingMasked(t *testing.T) {
	r := ticTacToe(t)
	state := r.play(0, 4)
	all := make([]bool, 9)
	for a := range all {
		all[a] = a != 0 && a != 4
	}
	for _, p := range r.policies() {
		out, err := r.run(r.plain(p, 20), &search.Roots{States: []int32{state}, Seeds: []uint64{1}, Invalid: all})
		require.NoError(t, err)
		require.Equal(t, []int32{0, 20, 0, 0, 0, 0, 0, 0, 0}, out.Visits, p)
		require.Equal(t, int32(1), out.Action[0])
		require.Zero(t, out.Weights[0]+out.Weights[4], p)
	}
}

// B35: a row that the evaluator answers badly ends its search alone, by an error that names evaluator and row; the
// others are as if nothing had been, no tree has a NaN, and the same root can be searched again.
func TestB35BadRow(t *testing.T) {
	r := connectFour(t, hashed)
	states := positions(r, 4)
	spec := r.store.Env().Spec()
	run := func(ev evaluator.Evaluator) (*search.Result, error) {
		out := search.NewResult(4, 7)
		roots := &search.Roots{States: states, Seeds: search.Seeds(1, 4)}
		return out, search.Run(context.Background(), r.store, nil, roots, ev, r.plain(tree.Gumbel, 32), out)
	}
	clean, err := run(evaluator.NewChecked("net", hashed, spec))
	require.NoError(t, err)
	for problem, spoil := range map[string]func(out *evaluator.Output){
		"logit of action 3 is NaN": func(out *evaluator.Output) { out.Logits[2*7+3] = float32(math.NaN()) },
		"value is +Inf":            func(out *evaluator.Output) { out.Value[2] = float32(math.Inf(1)) },
		"value is 7; want -1 to 1": func(out *evaluator.Output) { out.Value[2] = 7 },
		"the logits of all legal actions are -Inf": func(out *evaluator.Output) {
			for a := range 7 {
				out.Logits[2*7+a] = float32(math.Inf(-1))
			}
		},
	} {
		calls := 0
		out, err := run(evaluator.NewChecked("net", evaluator.Func(
			func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
				err := hashed(ctx, in, out)
				if calls++; calls == 1 {
					spoil(out)
				}
				return err
			}), spec))
		require.ErrorIs(t, err, search.ErrEvaluator)
		var answer *evaluator.AnswerError
		require.ErrorAs(t, err, &answer)
		require.Equal(t, &evaluator.AnswerError{Evaluator: "net", Row: 2, Problem: answer.Problem}, answer)
		require.Contains(t, answer.Problem, problem)
		require.ErrorContains(t, err, "row 2: evaluator net")
		for _, row := range []int{0, 1, 3} {
			require.Equal(t, clean.Visits[7*row:7*row+7], out.Visits[7*row:7*row+7])
			require.Equal(t, clean.Value[row], out.Value[row])
		}
		for _, v := range append(out.Value, out.Weights...) {
			require.False(t, math.IsNaN(float64(v)))
		}
		again, err := run(evaluator.NewChecked("net", hashed, spec))
		require.NoError(t, err)
		require.Equal(t, clean, again)
	}
}
