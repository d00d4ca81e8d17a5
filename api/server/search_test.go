package server_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
)

// TestSearchIsTheSame: as in process, bit for bit, by all ways to name the roots, and with all kinds of evaluators.
func TestSearchIsTheSame(t *testing.T) {
	_, c := pair(t, server.Config{})
	env := connectFour(t)
	attach(t, c, client.Attach{Model: "m", MaxBatch: 5}, evaluator.Func(seen))
	rollout, err := evaluator.NewRollout(1, 10_000)
	require.NoError(t, err)
	for name, ev := range map[string]evaluator.Evaluator{
		"uniform": evaluator.Uniform{}, "rollout": rollout, "m": evaluator.Func(seen),
	} {
		for _, policy := range []tree.Policy{tree.Gumbel, tree.AlphaZero, tree.MuZero} {
			cfg := config(env, policy, 40)
			cfg.LeavesPerStep = 2
			positions := games(30)
			want := local(t, env, positions, ev, cfg, 7)
			request := client.Request{
				States: client.States{Env: client.Env{ID: c4}, Games: positions}, Model: name, Config: &cfg, Seed: 7,
			}
			got, err := c.Search(t.Context(), &request)
			require.NoError(t, err, name)
			requireSame(t, want, got)
		}
	}

	// The same by bytes and by handles.
	cfg := config(env, tree.Gumbel, 40)
	p, err := c.Open(t.Context(), client.Env{ID: c4}, pool.Config{NumEnvs: 1})
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	b := &pool.Batch{EnvID: make([]int32, 1)}
	_, err = p.Reset(t.Context(), nil, nil, b)
	require.NoError(t, err)
	root, err := p.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	blobs, err := p.Dump(t.Context(), root)
	require.NoError(t, err)
	want := local(t, env, make([]client.Game, 1), evaluator.Func(seen), cfg, 3)
	for _, states := range []client.States{
		{Env: client.Env{ID: c4}, Bytes: blobs}, {Pool: p, IDs: root}, {Env: client.Env{ID: c4},
			Games: []client.Game{{}}},
	} {
		got, err := c.Search(t.Context(), &client.Request{States: states, Model: "m", Config: &cfg, Seed: 3})
		require.NoError(t, err)
		requireSame(t, want, got)
	}
}

// TestSession: run, advance, run is what it is in process.
func TestSession(t *testing.T) {
	_, c := pair(t, server.Config{})
	env := connectFour(t)
	cfg := config(env, tree.AlphaZero, 60)
	positions := games(4)
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	states := make([]int32, 4)
	require.NoError(t, store.Reset(nil, make([]uint64, 4), states))
	for i, g := range positions {
		for _, a := range g.Actions {
			require.NoError(t, store.Simulate(states[i:i+1], []int32{a}, &statestore.Steps{Children: states[i : i+1]}))
		}
	}
	own, err := search.New(store, &search.Roots{States: states, Seeds: search.Seeds(5, 4)}, cfg, evaluator.Needs{})
	require.NoError(t, err)
	defer own.Close()

	s, err := c.Session(t.Context(), &client.Request{
		States: client.States{Env: client.Env{ID: c4}, Games: positions}, Model: "uniform", Config: &cfg, Seed: 5,
	})
	require.NoError(t, err)
	defer s.Close()
	for range 3 {
		require.NoError(t, own.Run(t.Context(), evaluator.Uniform{}))
		want := search.NewResult(4, 7)
		require.NoError(t, own.Result(want))
		got, err := s.Run(nil, 0)
		require.NoError(t, err)
		requireSame(t, want, got)
		require.NoError(t, own.Advance(want.Action))
		err = s.Advance([]int32{9, 0, 0, 0})
		require.ErrorIs(t, err, search.ErrAction)
		require.Equal(t, "advance.actions", wire.From(err).Path)
		require.Zero(t, wire.From(err).Row)
		require.NoError(t, s.Advance(got.Action)) // the session goes on after an error, and nothing was changed
	}
}

// TestSessionReports: results so far at times, and Stop ends a run with what it has.
func TestSessionReports(t *testing.T) {
	_, c := pair(t, server.Config{})
	env := connectFour(t)
	slow := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		time.Sleep(time.Millisecond)
		return seen(ctx, in, out)
	})
	attach(t, c, client.Attach{Model: "slow"}, slow)
	cfg := config(env, tree.AlphaZero, 100_000)
	s, err := c.Session(t.Context(), &client.Request{
		States: client.States{Env: client.Env{ID: c4}, Games: games(1)}, Model: "slow", Config: &cfg,
	})
	require.NoError(t, err)
	defer s.Close()
	reports := 0
	r, err := s.Run(func(r *search.Result) {
		if reports++; reports == 3 {
			require.NoError(t, s.Stop())
		}
	}, 10*time.Millisecond)
	require.NoError(t, err)
	require.GreaterOrEqual(t, reports, 3)
	require.Less(t, r.Stats.Simulations, 50_000)
	require.Positive(t, r.Stats.Simulations)
}

// TestB35OverTheWire: a bad row fails its own search by name, the others are as in a clean run, and the same root
// searched again works; a whole bad answer fails what was in the batch, and the server lives.
func TestB35OverTheWire(t *testing.T) {
	_, c := pair(t, server.Config{})
	env := connectFour(t)
	cfg := config(env, tree.AlphaZero, 30)
	bads := map[string]func(out *evaluator.Output, a int){
		"NaN logit":     func(out *evaluator.Output, _ int) { out.Logits[0] = float32(math.NaN()) },
		"+inf value":    func(out *evaluator.Output, _ int) { out.Value[0] = float32(math.Inf(1)) },
		"value 7":       func(out *evaluator.Output, _ int) { out.Value[0] = 7 },
		"all -inf":      func(out *evaluator.Output, a int) { fillWith(out.Logits[:a], float32(math.Inf(-1))) },
		"its own error": nil,
	}
	for name, spoil := range bads {
		var sick atomic.Bool
		ev := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
			if err := seen(ctx, in, out); err != nil || !sick.Load() {
				return err
			}
			sick.Store(false)
			if spoil == nil {
				return errors.New("out of memory")
			}
			spoil(out, in.Spec.NumActions)
			return nil
		})
		t.Run(name, func(t *testing.T) {
			stop := attach(t, c, client.Attach{Model: "m", Name: "sick one"}, ev)
			defer func() { _ = stop() }()
			want := local(t, env, games(4), evaluator.Func(seen), cfg, 1)
			request := &client.Request{
				States: client.States{Env: client.Env{ID: c4}, Games: games(4)}, Model: "m", Config: &cfg, Seed: 1,
			}
			sick.Store(true)
			got, err := c.Search(t.Context(), request)
			e := wire.From(err)
			require.Equal(t, errcode.Evaluator, e.Code, "%v", err)
			require.ErrorContains(t, err, "sick one")
			require.Equal(t, "model", e.Path)
			if spoil != nil {
				bad := e.Row
				require.ErrorIs(t, got.Errors[bad], search.ErrEvaluator)
				others := 0
				for row := range 4 {
					if row != bad {
						require.NoError(t, got.Errors[row])
						require.Equal(t, want.Visits[row*7:row*7+7], got.Visits[row*7:row*7+7])
						require.Equal(t, want.Value[row], got.Value[row])
						others++
					}
				}
				require.Equal(t, 3, others)
			}
			got, err = c.Search(t.Context(), request)
			require.NoError(t, err)
			requireSame(t, want, got)
		})
	}
}

func fillWith(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// TestBadRequests: each is refused whole, with the field, the row and what would be right.
func TestBadRequests(t *testing.T) {
	_, c := pair(t, server.Config{MaxNodes: 10_000})
	env := connectFour(t)
	cfg := config(env, tree.Gumbel, 16)
	good := client.States{Env: client.Env{ID: c4}, Games: games(2)}
	huge := cfg
	huge.NumSimulations = 1_000_000
	negative := cfg
	negative.DirichletFraction = -1
	for _, x := range []struct {
		name    string
		request client.Request
		code    errcode.Code
		path    string
		row     int
		text    string
	}{
		{"no such environment", client.Request{States: client.States{Env: client.Env{ID: "Chess-v9"}, Games: games(1)}},
			errcode.UnknownEnv, "env", -1, "Chess-v9"},
		{"no environment", client.Request{States: client.States{Games: games(1)}}, errcode.InvalidArgument, "env.id",
			-1, "isn't set"},
		{"keyword", client.Request{States: client.States{Env: client.Env{ID: c4,
			Keywords: envs.Keywords{"rose": []byte("1")}}, Games: games(1)}}, errcode.Keyword, "env", -1, "rose"},
		{"file of the server", client.Request{States: client.States{Env: client.Env{ID: "Table-v0",
			Keywords: envs.Keywords{"table": []byte(`"/etc/passwd"`)}}, Games: games(1)}}, errcode.Permission,
			"env.keywords.table", -1, "file"},
		{"illegal move", client.Request{States: client.States{Env: client.Env{ID: c4}, Games: []client.Game{{},
			{Actions: []int32{1, 7}}}}}, errcode.Action, "moves.games[1].actions[1]", 1, "0 to 6"},
		{"damaged state", client.Request{States: client.States{Env: client.Env{ID: c4}, Bytes: [][]byte{{1, 2, 3}}}},
			errcode.BadState, "states.states", 0, ""},
		{"model", client.Request{States: good, Model: "nobody", Config: &cfg}, errcode.UnknownModel, "model", -1,
			"nobody"},
		{"too many simulations", client.Request{States: good, Config: &huge}, errcode.InvalidArgument,
			"settings.num_simulations", -1, "10000"},
		{"setting", client.Request{States: good, Config: &negative}, errcode.InvalidArgument, "", -1,
			"dirichlet_fraction"},
		{"mask of another shape", client.Request{States: good, Config: &cfg, Roots: search.Roots{Invalid: make([]bool,
			10)}}, errcode.InvalidArgument, "invalid_actions", -1, "[2, 7]"},
		{"budget of a row", client.Request{States: good, Config: &cfg, Roots: search.Roots{Simulations: []int32{4,
			99}}}, errcode.InvalidArgument, "", 1, "99"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := c.Search(t.Context(), &x.request)
			e := wire.From(err)
			require.Equal(t, x.code, e.Code, "%v", err)
			require.Equal(t, x.path, e.Path, "%v", err)
			require.Equal(t, x.row, e.Row, "%v", err)
			require.ErrorContains(t, err, x.text)
		})
	}
	_, err := c.Search(t.Context(), &client.Request{States: good, Config: &cfg})
	require.NoError(t, err)
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, st.States)
}

// TestHugeSettings: what would take all memory is refused before any is taken.
func TestHugeSettings(t *testing.T) {
	_, c := pair(t, server.Config{})
	env := connectFour(t)
	nodes := config(env, tree.AlphaZero, 4)
	nodes.CountKept, nodes.MaxNodes = false, 1<<42
	leaves := config(env, tree.AlphaZero, 1)
	leaves.LeavesPerStep = 65536
	trees := config(env, tree.AlphaZero, 100_000)
	trees.KeepLogits = true
	for name, cfg := range map[string]*search.Config{"nodes": &nodes, "trees": &trees} {
		_, err := c.Search(t.Context(), &client.Request{
			States: client.States{Env: client.Env{ID: c4}, Games: games(8)}, Config: cfg, Model: "uniform",
		})
		require.Contains(t, []errcode.Code{errcode.InvalidArgument, errcode.TooLarge}, wire.From(err).Code, name)
	}
	s, err := c.Session(t.Context(), &client.Request{
		States: client.States{Env: client.Env{ID: c4}, Games: games(2000)}, Config: &leaves, Model: "uniform",
	})
	require.NoError(t, err, "there are never more leaves than simulations")
	_, err = s.Run(nil, 0)
	require.NoError(t, err)
	s.Close()
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	states := make([]int32, 2)
	require.NoError(t, store.Reset(nil, []uint64{0, 0}, states))
	_, err = search.New(store, &search.Roots{States: states, Seeds: []uint64{1, 2}}, nodes, evaluator.Needs{})
	require.ErrorIs(t, err, statestore.ErrBudget)
}

// TestDeadlines: a search whose time is up ends then, and leaves nothing behind.
func TestDeadlines(t *testing.T) {
	_, c := pair(t, server.Config{})
	env := connectFour(t)
	var rows atomic.Int64
	slow := evaluator.Func(func(ctx context.Context, in *evaluator.Batch, out *evaluator.Output) error {
		rows.Add(int64(in.N))
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		return seen(ctx, in, out)
	})
	attach(t, c, client.Attach{Model: "slow"}, slow)
	cfg := config(env, tree.AlphaZero, 100_000)
	for _, limit := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		_, err := c.Search(ctx, &client.Request{States: client.States{Env: client.Env{ID: c4}, Games: games(8)},
			Model: "slow", Config: &cfg})
		require.Equal(t, errcode.Deadline, wire.From(err).Code, "%v", err)
		require.Less(t, time.Since(began), limit+500*time.Millisecond)
		cancel()
	}
	require.Eventually(t, func() bool {
		st, err := c.Stats(t.Context())
		return err == nil && st.Running == 0 && st.States == 0
	}, 5*time.Second, 5*time.Millisecond)
	at := rows.Load()
	time.Sleep(30 * time.Millisecond)
	require.Equal(t, at, rows.Load(), "nothing is evaluated for the dead")

	// A time limit of a row is something else: it ends with what it has.
	r, err := c.Search(t.Context(), &client.Request{
		States: client.States{Env: client.Env{ID: c4}, Games: games(2)}, Model: "slow", Config: &cfg,
		Roots: search.Roots{Deadlines: []time.Time{time.Now().Add(50 * time.Millisecond),
			time.Now().Add(100 * time.Millisecond)}},
	})
	require.NoError(t, err)
	require.Positive(t, r.Stats.Simulations)
}
