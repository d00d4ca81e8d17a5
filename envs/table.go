package envs

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"

	"github.com/azserve/azserve/internal/rng"
)

// Table is an environment given as explicit tables over S states and A actions, with the answers of
// an evaluator beside them. Every golden search and every bug report fits into one.
type Table struct {
	t        Tables
	s, a     int // states, actions
	m, c     int // afterstates, outcomes; 0 without chance
	chances  [][]float32
	logits   [][]float32 // PriorLogits as floats; nil where they aren't given
	players  int
	keywords string
}

// TableConfig holds the keywords.
type TableConfig struct {
	Table Tables `json:"table" file:"true" doc:"the tables, or the path of a JSON file of them"`
}

// Tables are the tables. Everything after Reward is optional. Rows of two-dimensional tables are
// states, columns actions.
type Tables struct {
	NextState [][]int32  `json:"next_state"` // [S][A]; with Afterstate [M][C], as Reward and Discount
	Reward    [][]Number `json:"reward"`     // [S][A], to the player who moves
	Discount  [][]Number `json:"discount"`   // [S][A]; default 0 into a terminal state, -1 where the mover changes, else 1
	Root      []int32    `json:"root"`       // environment i starts in Root[i mod len]; default state 0
	Legal     [][]Flag   `json:"legal"`      // [S][A]; default all
	ToPlay    []int32    `json:"to_play"`    // [S], the player to move; default 0
	Terminal  []Flag     `json:"terminal"`   // [S]; default none

	// With Afterstate there is chance: an action leads to one of M afterstates, and there nature draws one
	// of C outcomes, which NextState, Reward and Discount then are of. The observation of an afterstate is
	// S + its number.
	Afterstate      [][]int32  `json:"afterstate"`       // [S][A]; default none
	ChanceLogits    [][]Number `json:"chance_logits"`    // [M][C], of the outcomes' probabilities; default equal
	AfterstateValue []Number   `json:"afterstate_value"` // [M], from the view of who acted; default 0

	PriorLogits [][]Number `json:"prior_logits"` // [S][A], for the evaluator "table"; default 0
	Value       []Number   `json:"value"`        // [S], from the mover's view; default 0
}

// Number is a float32 that JSON may also write as "-Inf", "Inf" or "NaN".
type Number float32

// UnmarshalJSON reads a number, or one of the names.
func (n *Number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"-Inf"`:
		*n = Number(math.Inf(-1))
		return nil
	case `"Inf"`:
		*n = Number(math.Inf(1))
		return nil
	case `"NaN"`:
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float32)(n))
}

// Flag is a boolean that JSON may also write as 0 or 1.
type Flag bool

// UnmarshalJSON reads true, false, 1 or 0.
func (f *Flag) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "1", "true":
		*f = true
	case "0", "false":
		*f = false
	default:
		return fmt.Errorf("a flag is %s; want true, false, 1 or 0", clip(string(b)))
	}
	return nil
}

// UnmarshalJSON reads the tables, or the path of a file of them.
func (t *Tables) UnmarshalJSON(b []byte) error {
	var path string
	if json.Unmarshal(b, &path) == nil {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b = data
	}
	type plain Tables // without this method
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	return Keywords(raw).decode("Table-v0's table", (*plain)(t))
}

// TableState is one place in the tables.
type TableState struct {
	Index  int32   // S and more: an afterstate
	From   int32   // in an afterstate, the state before
	Factor float32 // discount of the step that led here; 1 at the start
	Ended  bool
	Draws  rng.Stream
}

// NewTable checks the tables and returns the rules.
func NewTable(c TableConfig) (*Table, error) {
	t := c.Table
	if len(t.NextState) == 0 || len(t.NextState[0]) == 0 {
		return nil, tableError("next_state is empty; want [S][A] with at least one of each")
	}
	g := &Table{t: t, s: len(t.NextState), a: len(t.NextState[0]), players: 1}
	if len(t.Afterstate) > 0 {
		g.m, g.c = g.s, g.a
		g.s, g.a = len(t.Afterstate), len(t.Afterstate[0])
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	g.softenChances()
	for _, row := range t.PriorLogits {
		g.logits = append(g.logits, floats(row))
	}
	if len(t.Root) == 0 {
		g.t.Root = []int32{0}
	}
	for _, p := range t.ToPlay {
		g.players = max(g.players, int(p)+1)
	}
	data, err := json.Marshal([]any{t.NextState, t.ToPlay, t.Terminal, t.Legal, t.Afterstate})
	if err != nil {
		return nil, tableError("%v", err)
	}
	g.keywords = fmt.Sprintf("states=%d actions=%d crc=%08x", g.s, g.a, crc32.ChecksumIEEE(data))
	return g, nil
}

func floats(row []Number) []float32 {
	out := make([]float32, len(row))
	for i, x := range row {
		out[i] = float32(x)
	}
	return out
}

func tableError(format string, args ...any) error {
	return fmt.Errorf("%w: Table-v0: %s", ErrKeyword, fmt.Sprintf(format, args...))
}

// check verifies shapes and ranges.
func (g *Table) check() error {
	rows, columns := g.s, g.a
	if g.m > 0 {
		rows, columns = g.m, g.c
	}
	for _, m := range []struct {
		name          string
		lens          []int
		must          bool
		rows, columns int
	}{
		{"next_state", lensOf(g.t.NextState), true, rows, columns},
		{"reward", lensOf(g.t.Reward), true, rows, columns},
		{"discount", lensOf(g.t.Discount), false, rows, columns},
		{"afterstate", lensOf(g.t.Afterstate), false, g.s, g.a},
		{"chance_logits", lensOf(g.t.ChanceLogits), false, g.m, g.c},
		{"afterstate_value", make([]int, len(g.t.AfterstateValue)), false, g.m, 0},
		{"legal", lensOf(g.t.Legal), false, g.s, g.a},
		{"prior_logits", lensOf(g.t.PriorLogits), false, g.s, g.a},
		{"to_play", make([]int, len(g.t.ToPlay)), false, g.s, 0},
		{"terminal", make([]int, len(g.t.Terminal)), false, g.s, 0},
		{"value", make([]int, len(g.t.Value)), false, g.s, 0},
	} {
		if len(m.lens) == 0 && !m.must {
			continue
		}
		if len(m.lens) != m.rows {
			return tableError("%s has %d rows; want %d", m.name, len(m.lens), m.rows)
		}
		for i, n := range m.lens {
			if n != m.columns {
				return tableError("%s[%d] has %d entries; want %d", m.name, i, n, m.columns)
			}
		}
	}
	return g.checkIndices()
}

func lensOf[T any](rows [][]T) []int {
	out := make([]int, len(rows))
	for i, r := range rows {
		out[i] = len(r)
	}
	return out
}

func (g *Table) checkIndices() error {
	for s, row := range g.t.NextState {
		for a, n := range row {
			if n < 0 || int(n) >= g.s {
				return tableError("next_state[%d][%d] is %d; want 0 to %d", s, a, n, g.s-1)
			}
		}
	}
	for s, row := range g.t.Afterstate {
		for a, m := range row {
			if m < 0 || int(m) >= g.m {
				return tableError("afterstate[%d][%d] is %d; want 0 to %d", s, a, m, g.m-1)
			}
		}
	}
	for i, r := range g.t.Root {
		if r < 0 || int(r) >= g.s {
			return tableError("root[%d] is %d; want 0 to %d", i, r, g.s-1)
		}
	}
	for s, p := range g.t.ToPlay {
		if p < 0 || p > 63 {
			return tableError("to_play[%d] is %d; want 0 to 63", s, p)
		}
	}
	for s, legal := range g.t.Legal {
		if !g.terminal(int32(s)) && !slices.Contains(legal, true) {
			return tableError("legal[%d] allows no action, and state %d isn't terminal", s, s)
		}
	}
	return nil
}

func (g *Table) terminal(s int32) bool { return len(g.t.Terminal) > 0 && bool(g.t.Terminal[s]) }

func (g *Table) mover(s int32) int32 {
	if len(g.t.ToPlay) == 0 {
		return 0
	}
	return g.t.ToPlay[s]
}

// Prior returns the evaluator's answer for a state: logits [A] (nil means all 0) and the value from
// the mover's view. An afterstate is S + its number.
func (g *Table) Prior(s int32) (logits []float32, value float32) {
	if m := int(s) - g.s; m >= 0 {
		if len(g.t.AfterstateValue) > 0 {
			value = float32(g.t.AfterstateValue[m])
		}
		return nil, value
	}
	if g.logits != nil {
		logits = g.logits[s]
	}
	if len(g.t.Value) > 0 {
		value = float32(g.t.Value[s])
	}
	return logits, value
}

// Spec describes the tables.
func (g *Table) Spec() Spec {
	lo, hi := float32(0), float32(0)
	for _, row := range g.t.Reward {
		for _, r := range row {
			lo, hi = min(lo, float32(r)), max(hi, float32(r))
		}
	}
	return Spec{
		ID: "Table-v0", Version: 2, Keywords: g.keywords,
		Obs: []ArraySpec{{
			Name: "state", DType: Int32, Low: []float64{0}, High: []float64{float64(g.s + g.m - 1)},
		}},
		NumActions: g.a, NumPlayers: g.players, NumOutcomes: g.c, RewardLow: lo, RewardHigh: hi,
	}
}

// Reset starts in the first root.
func (g *Table) Reset(s *TableState, seed uint64) { g.Start(s, 0, seed) }

// Start starts environment env in its own root.
func (g *Table) Start(s *TableState, env int, seed uint64) {
	root := g.t.Root[env%len(g.t.Root)]
	*s = TableState{Index: root, Factor: 1, Ended: g.terminal(root), Draws: rng.New(seed)}
}

// Step follows the tables.
func (g *Table) Step(s *TableState, action int32) Outcome {
	if s.Ended {
		return Outcome{Terminated: true}
	}
	if g.m > 0 {
		g.Decide(s, action)
		return g.Happen(s, drawOutcome(g.chances[int(s.Index)-g.s], &s.Draws))
	}
	return g.move(s, s.Index, s.Index, action)
}

// move takes column of a row of the tables; from is the state that the mover was in.
func (g *Table) move(s *TableState, from, row, column int32) Outcome {
	to := g.t.NextState[row][column]
	s.Factor = g.factor(from, to, row, column)
	s.Index, s.From, s.Ended = to, 0, g.terminal(to)
	return Outcome{Reward: float32(g.t.Reward[row][column]), Terminated: s.Ended}
}

func (g *Table) factor(from, to, row, column int32) float32 {
	switch {
	case len(g.t.Discount) > 0:
		return float32(g.t.Discount[row][column])
	case g.terminal(to):
		return 0
	case g.mover(from) != g.mover(to):
		return -1
	}
	return 1
}

// Discount returns the discount of the step that led to s.
func (g *Table) Discount(s *TableState) float32 { return s.Factor }

// Observe writes the state's index.
func (g *Table) Observe(s *TableState, row Row) { row.Int32(0)[0] = s.Index }

// Mask allows what the table does.
func (g *Table) Mask(s *TableState, legal []bool) {
	switch open := !s.Ended && int(s.Index) < g.s; {
	case !open:
		clear(legal)
	case len(g.t.Legal) == 0:
		for a := range legal {
			legal[a] = true
		}
	default:
		for a, ok := range g.t.Legal[s.Index] {
			legal[a] = bool(ok)
		}
	}
}

// ToPlay returns the player to move.
func (g *Table) ToPlay(s *TableState) int32 {
	if int(s.Index) >= g.s {
		return g.mover(s.From)
	}
	return g.mover(s.Index)
}

// Text shows the state's index.
func (g *Table) Text(s *TableState) string { return fmt.Sprintf("state %d\n", s.Index) }

// ActionName names an action by its column.
func (g *Table) ActionName(_ *TableState, a int32) string { return fmt.Sprint(a) }

// Hash is of the index: the tables say the rest.
func (g *Table) Hash(s *TableState) uint64 { return HashKey(uint64(s.Index), uint64(s.From)) }

// Validate refuses an index outside of the tables.
func (g *Table) Validate(s *TableState) error {
	if s.Index < 0 || int(s.Index) >= g.s {
		return fmt.Errorf("state %d; want 0 to %d", s.Index, g.s-1)
	}
	return nil
}
