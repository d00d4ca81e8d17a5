package envs

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
)

// Table is an environment given as explicit tables over S states and A actions, with the answers of
// an evaluator beside them. Every golden search and every bug report fits into one.
type Table struct {
	t        Tables
	s, a     int
	players  int
	keywords string
}

// TableConfig holds the keywords.
type TableConfig struct {
	Table Tables `json:"table" doc:"the tables, or the path of a JSON file of them"`
}

// Tables are the tables. Everything after Reward is optional. Rows of two-dimensional tables are
// states, columns actions.
type Tables struct {
	NextState [][]int32  `json:"next_state"` // [S][A]
	Reward    [][]Number `json:"reward"`     // [S][A], to the player who moves
	Discount  [][]Number `json:"discount"`   // [S][A]; default 0 into a terminal state, -1 where the mover changes, else 1
	Root      []int32    `json:"root"`       // environment i starts in Root[i mod len]; default state 0
	Legal     [][]Flag   `json:"legal"`      // [S][A]; default all
	ToPlay    []int32    `json:"to_play"`    // [S], the player to move; default 0
	Terminal  []Flag     `json:"terminal"`   // [S]; default none

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
	Index  int32
	Factor float32 // discount of the step that led here; 1 at the start
	Ended  bool
}

// NewTable checks the tables and returns the rules.
func NewTable(c TableConfig) (*Table, error) {
	t := c.Table
	if len(t.NextState) == 0 || len(t.NextState[0]) == 0 {
		return nil, tableError("next_state is empty; want [S][A] with at least one of each")
	}
	g := &Table{t: t, s: len(t.NextState), a: len(t.NextState[0]), players: 1}
	if err := g.check(); err != nil {
		return nil, err
	}
	if len(t.Root) == 0 {
		g.t.Root = []int32{0}
	}
	for _, p := range t.ToPlay {
		g.players = max(g.players, int(p)+1)
	}
	data, err := json.Marshal([]any{t.NextState, t.ToPlay, t.Terminal, t.Legal})
	if err != nil {
		return nil, tableError("%v", err)
	}
	g.keywords = fmt.Sprintf("states=%d actions=%d crc=%08x", g.s, g.a, crc32.ChecksumIEEE(data))
	return g, nil
}

func tableError(format string, args ...any) error {
	return fmt.Errorf("%w: Table-v0: %s", ErrKeyword, fmt.Sprintf(format, args...))
}

// check verifies shapes and ranges.
func (g *Table) check() error {
	for _, m := range []struct {
		name    string
		lens    []int
		must    bool
		columns int
	}{
		{"next_state", lensOf(g.t.NextState), true, g.a},
		{"reward", lensOf(g.t.Reward), true, g.a},
		{"discount", lensOf(g.t.Discount), false, g.a},
		{"legal", lensOf(g.t.Legal), false, g.a},
		{"prior_logits", lensOf(g.t.PriorLogits), false, g.a},
		{"to_play", make([]int, len(g.t.ToPlay)), false, 0},
		{"terminal", make([]int, len(g.t.Terminal)), false, 0},
		{"value", make([]int, len(g.t.Value)), false, 0},
	} {
		if len(m.lens) == 0 && !m.must {
			continue
		}
		if len(m.lens) != g.s {
			return tableError("%s has %d rows; want %d, one a state", m.name, len(m.lens), g.s)
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
// the mover's view.
func (g *Table) Prior(s int32) (logits []Number, value float32) {
	if len(g.t.PriorLogits) > 0 {
		logits = g.t.PriorLogits[s]
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
		ID: "Table-v0", Version: 1, Keywords: g.keywords,
		Obs: []ArraySpec{{
			Name: "state", DType: Int32, Low: []float64{0}, High: []float64{float64(g.s - 1)},
		}},
		NumActions: g.a, NumPlayers: g.players, RewardLow: lo, RewardHigh: hi,
	}
}

// Reset starts in the first root.
func (g *Table) Reset(s *TableState, _ uint64) { g.Start(s, 0, 0) }

// Start starts environment env in its own root.
func (g *Table) Start(s *TableState, env int, _ uint64) {
	root := g.t.Root[env%len(g.t.Root)]
	*s = TableState{Index: root, Factor: 1, Ended: g.terminal(root)}
}

// Step follows the tables.
func (g *Table) Step(s *TableState, action int32) Outcome {
	if s.Ended {
		return Outcome{Terminated: true}
	}
	from, to := s.Index, g.t.NextState[s.Index][action]
	*s = TableState{Index: to, Factor: g.factor(from, to, action), Ended: g.terminal(to)}
	return Outcome{Reward: float32(g.t.Reward[from][action]), Terminated: s.Ended}
}

func (g *Table) factor(from, to, action int32) float32 {
	switch {
	case len(g.t.Discount) > 0:
		return float32(g.t.Discount[from][action])
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
	for a := range legal {
		legal[a] = !s.Ended && (len(g.t.Legal) == 0 || bool(g.t.Legal[s.Index][a]))
	}
}

// ToPlay returns the player to move.
func (g *Table) ToPlay(s *TableState) int32 { return g.mover(s.Index) }

// Text shows the state's index.
func (g *Table) Text(s *TableState) string { return fmt.Sprintf("state %d\n", s.Index) }

// ActionName names an action by its column.
func (g *Table) ActionName(_ *TableState, a int32) string { return fmt.Sprint(a) }

// Hash is of the index: the tables say the rest.
func (g *Table) Hash(s *TableState) uint64 { return HashKey(uint64(s.Index)) }

// Validate refuses an index outside of the tables.
func (g *Table) Validate(s *TableState) error {
	if s.Index < 0 || int(s.Index) >= g.s {
		return fmt.Errorf("state %d; want 0 to %d", s.Index, g.s-1)
	}
	return nil
}
