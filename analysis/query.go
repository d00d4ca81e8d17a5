package analysis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// query is one line of input.
type query struct {
	ID     json.RawMessage `json:"id"`
	Action string          `json:"action"`

	Moves        []move                     `json:"moves"`
	Seed         uint64                     `json:"seed"` // of the first state
	AnalyzeTurns []int                      `json:"analyzeTurns"`
	MaxVisits    *int                       `json:"maxVisits"`
	MaxTime      *float64                   `json:"maxTime"` // seconds
	Priority     int                        `json:"priority"`
	Priorities   []int                      `json:"priorities"` // one a turn
	Report       *float64                   `json:"reportDuringSearchEvery"`
	Policy       bool                       `json:"includePolicy"`
	PVVisits     bool                       `json:"includePVVisits"`
	PVLength     *int                       `json:"analysisPVLen"`
	Settings     map[string]json.RawMessage `json:"overrideSettings"`
	Avoid        []moveSet                  `json:"avoidMoves"`
	Allow        []moveSet                  `json:"allowMoves"`

	TerminateID json.RawMessage `json:"terminateId"`
	TurnNumbers []int           `json:"turnNumbers"`
}

// moveSet is moves that are to be avoided, or the only ones, at the root.
type moveSet struct {
	Player     string   `json:"player"`
	Moves      []string `json:"moves"`
	UntilDepth int      `json:"untilDepth"`
}

// move is an action as people write it.
type move string

// UnmarshalJSON reads "Q4", 3, ["B", "Q4"] or ["B", 3].
func (m *move) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if json.Unmarshal(b, &pair) == nil {
		if len(pair) != 2 {
			return fmt.Errorf("a move is %s; want [player, move], or the move alone", b)
		}
		b = pair[1]
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		*m = move(text)
		return nil
	}
	var number int
	if err := json.Unmarshal(b, &number); err != nil {
		return fmt.Errorf("a move is %.40s; want a name or a number", b)
	}
	*m = move(fmt.Sprint(number))
	return nil
}

// known are the fields that mean something here; goOnly those that are about Go, and are not used.
var (
	known = []string{
		"id", "action", "moves", "seed", "analyzeTurns", "maxVisits", "maxTime", "priority", "priorities",
		"reportDuringSearchEvery", "includePolicy", "includePVVisits", "analysisPVLen", "overrideSettings", "avoidMoves",
		"allowMoves", "terminateId", "turnNumbers",
	}
	goOnly = []string{
		"rules", "komi", "whiteHandicapBonus", "boardXSize", "boardYSize", "initialStones", "initialPlayer",
		"includeOwnership", "includeOwnershipStdev", "includeMovesOwnership", "includeMovesOwnershipStdev",
		"includeNoResultValue", "rootFpuReductionMax", "rootPolicyTemperature",
	}
)

// problem is what is wrong with a field of a query.
type problem struct{ field, text string }

func (p *problem) Error() string { return p.field + ": " + p.text }

func bad(field, format string, args ...any) error {
	return &problem{field, fmt.Sprintf(format, args...)}
}

// parse reads a line. unused are fields that have no meaning here.
func parse(line []byte) (q *query, unused []string, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, nil, bad("", "the line is no JSON object: %v", err)
	}
	q = &query{ID: fields["id"]}
	for name := range fields {
		if slices.Contains(goOnly, name) {
			unused = append(unused, name)
		} else if !slices.Contains(known, name) {
			return q, nil, bad(name, "no such field; known: %s", strings.Join(known, ", "))
		}
	}
	slices.Sort(unused)
	if err := json.Unmarshal(line, q); err != nil {
		return q, nil, bad(badField(fields), "%v", err)
	}
	return q, unused, q.check()
}

// badField finds the field that can't be read.
func badField(fields map[string]json.RawMessage) string {
	for _, name := range known {
		if value, ok := fields[name]; ok {
			one, err := json.Marshal(map[string]json.RawMessage{name: value})
			if err != nil || json.Unmarshal(one, &query{}) != nil {
				return name
			}
		}
	}
	return ""
}

func (q *query) check() error {
	if len(q.ID) == 0 || q.ID[0] != '"' {
		return bad("id", "is %s; want a text", orNothing(q.ID))
	}
	if q.Action != "" {
		return nil
	}
	for i, turn := range q.AnalyzeTurns {
		if turn < 0 || turn > len(q.Moves) {
			return bad("analyzeTurns", "entry %d is %d; want 0 to %d, the number of moves", i, turn, len(q.Moves))
		}
	}
	switch {
	case q.MaxVisits != nil && (*q.MaxVisits < 1 || *q.MaxVisits > 1<<24):
		return bad("maxVisits", "is %d; want 1 to %d", *q.MaxVisits, 1<<24)
	case q.MaxTime != nil && !(*q.MaxTime > 0 && *q.MaxTime < 1e9):
		return bad("maxTime", "is %v; want seconds, above 0", *q.MaxTime)
	case q.Report != nil && !(*q.Report > 0 && *q.Report < 1e9):
		return bad("reportDuringSearchEvery", "is %v; want seconds, above 0", *q.Report)
	case q.PVLength != nil && *q.PVLength < 0:
		return bad("analysisPVLen", "is %d; want 0 or more", *q.PVLength)
	case len(q.Priorities) > 0 && len(q.Priorities) != len(q.AnalyzeTurns):
		return bad("priorities", "has %d entries; want %d, one for each of analyzeTurns", len(q.Priorities),
			len(q.AnalyzeTurns))
	case len(q.Avoid) > 0 && len(q.Allow) > 0:
		return bad("allowMoves", "goes not with avoidMoves; want one of them")
	case len(q.Allow) > 1:
		return bad("allowMoves", "has %d entries; want one", len(q.Allow))
	}
	for _, set := range slices.Concat(q.Avoid, q.Allow) {
		if set.UntilDepth > 1 {
			return bad("avoidMoves", "untilDepth is %d; want 1: moves can be chosen at the root only", set.UntilDepth)
		}
	}
	return nil
}

func orNothing(b json.RawMessage) string {
	if len(b) == 0 {
		return "not there"
	}
	return string(b)
}

// turns are the positions to be searched, by the number of moves before them.
func (q *query) turns() []int {
	if q.AnalyzeTurns == nil {
		return []int{len(q.Moves)}
	}
	return q.AnalyzeTurns
}

func (q *query) priority(i int) int {
	if len(q.Priorities) > 0 {
		return q.Priorities[i]
	}
	return q.Priority
}

func (q *query) every() time.Duration {
	if q.Report == nil {
		return 0
	}
	return time.Duration(*q.Report * float64(time.Second))
}
