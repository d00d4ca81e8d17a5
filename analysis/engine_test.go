package analysis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/azserve/azserve/analysis"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/statestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func engine(t testing.TB, id string, ev evaluator.Evaluator) analysis.Config {
	env, err := envs.Make(id, nil)
	require.NoError(t, err)
	store, err := statestore.New(env, statestore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return analysis.Config{
		Env: env, Store: store, Evaluator: ev, Model: "m", Version: "1", Threads: 4, Search: analysis.Default(env),
	}
}

type line = map[string]any

// ask sends lines and returns the answers.
func ask(t testing.TB, cfg analysis.Config, queries ...string) (out []line) {
	var answers bytes.Buffer
	require.NoError(t, analysis.Run(t.Context(), cfg, strings.NewReader(strings.Join(queries, "\n")), &answers))
	decoder := json.NewDecoder(&answers)
	for decoder.More() {
		var l line
		require.NoError(t, decoder.Decode(&l))
		out = append(out, l)
	}
	require.Zero(t, cfg.Store.Stats().Live, "states left behind")
	return out
}

// TestIsTheSearch: the numbers are those of the same search.
func TestIsTheSearch(t *testing.T) {
	cfg := engine(t, "ConnectFour-v0", evaluator.Uniform{})
	out := ask(t, cfg,
		`{"id": "q", "moves": [["B", "3"], "3", 2], "maxVisits": 200, "includePolicy": true, "includePVVisits": true}`)
	require.Len(t, out, 1)
	states := make([]int32, 1)
	require.NoError(t, cfg.Store.Reset(nil, []uint64{0}, states))
	for _, a := range []int32{3, 3, 2} {
		require.NoError(t, cfg.Store.Simulate(states, []int32{a}, &statestore.Steps{Children: states}))
	}
	want := search.NewResult(1, 7)
	settings := cfg.Search
	settings.NumSimulations = 200
	roots := &search.Roots{States: states, Seeds: []uint64{0}}
	require.NoError(t, search.Run(t.Context(), cfg.Store, nil, roots, evaluator.Uniform{}, settings, want))
	a := out[0]
	require.Equal(t, "q", a["id"])
	require.EqualValues(t, 3, a["turnNumber"])
	require.Equal(t, false, a["isDuringSearch"])
	root := a["rootInfo"].(line)
	require.EqualValues(t, 1, root["currentPlayer"])
	require.EqualValues(t, 201, root["visits"])
	require.InDelta(t, want.Value[0], root["utility"], 1e-6)
	require.InDelta(t, (want.Value[0]+1)/2, root["winrate"], 1e-6)
	moves := a["moveInfos"].([]any)
	require.Len(t, moves, 7)
	for order, m := range moves {
		m := m.(line)
		action := int(m["action"].(float64))
		require.EqualValues(t, order, m["order"])
		require.EqualValues(t, want.Visits[action], m["visits"])
		require.InDelta(t, want.QValues[action], m["utility"], 1e-6)
		require.Equal(t, fmt.Sprint(action), m["move"])
		pv, visits := m["pv"].([]any), m["pvVisits"].([]any)
		require.Equal(t, m["move"], pv[0])
		require.Equal(t, m["visits"], visits[0])
		require.Len(t, visits, len(pv))
	}
	require.EqualValues(t, want.Action[0], moves[0].(line)["action"])
	require.Len(t, a["policy"], 7)
}

// TestTurnsAndPriorities: a position for each turn; with one thread the most urgent first.
func TestTurnsAndPriorities(t *testing.T) {
	cfg := engine(t, "TicTacToe-v0", evaluator.Uniform{})
	out := ask(t, cfg, `{"id": "a", "moves": [0, 1, 2, 3, 4, 5, 6], "analyzeTurns": [0, 3, 7], "maxVisits": 20}`)
	require.Len(t, out, 3)
	seen := map[float64]bool{}
	for _, a := range out {
		seen[a["turnNumber"].(float64)] = true
		if a["turnNumber"] == 7.0 { // 2, 4 and 6 are a line: the game is over
			require.Equal(t, true, a["rootInfo"].(line)["ended"])
			require.Empty(t, a["moveInfos"])
		}
	}
	require.Len(t, seen, 3)
}

// TestBadQueries: each is refused by field, and others are answered.
func TestBadQueries(t *testing.T) {
	cfg := engine(t, "ConnectFour-v0", evaluator.Uniform{})
	for _, x := range []struct{ query, field, text string }{
		{`hello`, "", "no JSON"},
		{`{"moves": []}`, "id", "not there"},
		{`{"id": 7}`, "id", "want a text"},
		{`{"id": "a", "rose": 1}`, "rose", "no such field"},
		{`{"id": "a", "moves": [["B", "3"], ["W", "8"]]}`, "moves", "move 1"},
		{`{"id": "a", "moves": [["B", "3", 4]]}`, "moves", "[player, move]"},
		{`{"id": "a", "moves": [1], "analyzeTurns": [2]}`, "analyzeTurns", "0 to 1"},
		{`{"id": "a", "maxVisits": 0}`, "maxVisits", "want 1"},
		{`{"id": "a", "maxVisits": "many"}`, "maxVisits", ""},
		{`{"id": "a", "overrideSettings": {"rose": 1}}`, "overrideSettings", "rose"},
		{`{"id": "a", "allowMoves": [{"moves": ["9"]}]}`, "allowMoves", "legal"},
		{`{"id": "a", "action": "dance"}`, "action", "query_version"},
		{`{"id": "a", "action": "terminate"}`, "terminateId", "want"},
	} {
		out := ask(t, cfg, x.query, `{"id": "good", "maxVisits": 5}`)
		require.Len(t, out, 2, x.query)
		require.Contains(t, out[0]["error"], x.text, x.query)
		if x.field != "" {
			require.Equal(t, x.field, out[0]["field"], x.query)
		}
		require.Equal(t, "good", out[1]["id"])
	}
	out := ask(t, cfg, `{"id": "a", "komi": 7.5, "maxVisits": 5}`)
	require.Len(t, out, 2)
	require.Equal(t, "komi", out[0]["field"])
	require.NotEmpty(t, out[0]["warning"])
}

func TestMovesAtTheRoot(t *testing.T) {
	cfg := engine(t, "ConnectFour-v0", evaluator.Uniform{})
	out := ask(t, cfg,
		`{"id": "a", "allowMoves": [{"player": "B", "moves": ["1", "5"], "untilDepth": 1}], "maxVisits": 50}`)
	require.Len(t, out[0]["moveInfos"], 2)
	out = ask(t, cfg,
		`{"id": "a", "avoidMoves": [{"player": "B", "moves": ["1", "5"], "untilDepth": 1}], "maxVisits": 50}`)
	require.Len(t, out[0]["moveInfos"], 5)
}

// TestTerminate: a search that goes on ends with what it has, one that waits has no results; reports come meanwhile.
func TestTerminate(t *testing.T) {
	var rounds atomic.Int64
	slow := evaluator.Func(func(_ context.Context, _ *evaluator.Batch, out *evaluator.Output) error {
		rounds.Add(1)
		time.Sleep(time.Millisecond)
		out.Uniform = true
		clear(out.Value)
		return nil
	})
	cfg := engine(t, "ConnectFour-v0", slow)
	cfg.Threads = 1
	in, w := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- analysis.Run(t.Context(), cfg, in, out); _ = out.Close() }()
	lines := json.NewDecoder(answers)
	next := func() (l line) {
		require.NoError(t, lines.Decode(&l))
		return l
	}
	_, err := io.WriteString(w,
		`{"id": "long", "maxVisits": 1000000, "reportDuringSearchEvery": 0.02}`+"\n"+`{"id": "later"}`+"\n")
	require.NoError(t, err)
	for range 3 {
		require.Equal(t, true, next()["isDuringSearch"])
	}
	go func() {
		_, _ = io.WriteString(w, `{"id": "t1", "action": "terminate", "terminateId": "later"}`+"\n")
		_, _ = io.WriteString(w, `{"id": "t2", "action": "terminate_all"}`+"\n")
		_ = w.Close()
	}()
	var got []line
	for lines.More() {
		if l := next(); l["isDuringSearch"] != true {
			got = append(got, l)
		}
	}
	require.NoError(t, <-done)
	require.Len(t, got, 4)
	byID := map[any]line{}
	for _, l := range got {
		byID[l["id"]] = l
	}
	require.Equal(t, true, byID["later"]["noResults"])
	require.Greater(t, byID["long"]["rootInfo"].(line)["visits"], 10.0)
	require.Less(t, rounds.Load(), int64(100_000))
	require.Equal(t, "terminate_all", byID["t2"]["action"])
}

func TestActions(t *testing.T) {
	cfg := engine(t, "Pig-v0", evaluator.Uniform{})
	out := ask(t, cfg, `{"id": "v", "action": "query_version"}`, `{"id": "m", "action": "query_models"}`,
		`{"id": "c", "action": "clear_cache"}`, `{"id": "pig", "maxVisits": 30}`)
	require.Len(t, out, 4)
	require.Equal(t, "1", out[0]["version"])
	require.Equal(t, "m", out[1]["models"].([]any)[0].(line)["name"])
}

func FuzzQueries(f *testing.F) {
	f.Add(`{"id": "a", "moves": [["B", "3"], 3], "analyzeTurns": [0, 2], "maxVisits": 3, "overrideSettings": {"lcb": 5}}`)
	f.Add(`{"id": "a", "action": "terminate", "terminateId": "a", "turnNumbers": [1]}`)
	cfg := engine(f, "TicTacToe-v0", evaluator.Uniform{})
	cfg.Search.NumSimulations = 5
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "maxVisits") && len(text) > 200 {
			t.Skip()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, analysis.Run(ctx, cfg, strings.NewReader(text), io.Discard))
	})
}
