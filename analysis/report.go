package analysis

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/azserve/azserve/statestore"
)

// answer is a report on a position.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Turn   int             `json:"turnNumber"`
	During bool            `json:"isDuringSearch"`
	Moves  []moveInfo      `json:"moveInfos"`
	Root   rootInfo        `json:"rootInfo"`
	Policy []float32       `json:"policy,omitempty"` // by actions; -1 where illegal
}

// moveInfo is a move of the root; the best comes first.
type moveInfo struct {
	Move     string   `json:"move"`
	Action   int32    `json:"action"` // its number
	Visits   int32    `json:"visits"`
	Winrate  *float64 `json:"winrate,omitempty"` // 0 to 1; in games of two players
	Utility  float64  `json:"utility"`
	Prior    float64  `json:"prior"`
	Weight   float64  `json:"weight"` // in the improved policy
	Order    int      `json:"order"`
	PV       []string `json:"pv"`
	PVVisits []int32  `json:"pvVisits,omitempty"`
}

type rootInfo struct {
	Player     int32    `json:"currentPlayer"`
	Visits     int32    `json:"visits"`
	Winrate    *float64 `json:"winrate,omitempty"`
	Utility    float64  `json:"utility"`
	RawUtility float64  `json:"rawUtility"`
	Proven     bool     `json:"proven,omitempty"`
	Ended      bool     `json:"ended,omitempty"` // the game is over here
	Version    string   `json:"modelVersion,omitempty"`
}

// report writes what a search says now.
func (e *Engine) report(j *job, s *search.Search, during bool) error {
	spec := e.cfg.Env.Spec()
	out := search.NewResult(1, spec.NumActions)
	out.Proven = make([]bool, 1)
	if err := s.Result(out); err != nil {
		return err
	}
	x := s.Tree(0).Export()
	legal, turn := make([]bool, spec.NumActions), make([]int32, 1)
	if err := e.cfg.Store.Read([]int32{j.state}, statestore.View{Mask: legal, ToPlay: turn}); err != nil {
		return err
	}
	prior := make([]float32, spec.NumActions)
	vecmath.Softmax(x.ChildrenPriorLogits[:spec.NumActions], prior)
	a := &answer{ID: j.q.ID, Turn: j.turn, During: during, Moves: []moveInfo{}}
	a.Root = rootInfo{
		Player: turn[0], Visits: x.NodeVisits[0], Winrate: e.winrate(out.Value[0]), Utility: float64(out.Value[0]),
		RawUtility: float64(out.Raw[0]), Proven: out.Proven[0], Ended: !slices.Contains(legal, true),
	}
	if out.Version != 0 {
		a.Root.Version = fmt.Sprintf("%016x", out.Version)
	}
	for action := range spec.NumActions {
		if out.Visits[action] == 0 {
			continue
		}
		m := moveInfo{
			Action: int32(action), Visits: out.Visits[action], Winrate: e.winrate(out.QValues[action]),
			Utility: float64(out.QValues[action]), Prior: float64(prior[action]), Weight: float64(out.Weights[action]),
		}
		if err := e.variation(j, x, int32(action), &m); err != nil {
			return err
		}
		a.Moves = append(a.Moves, m)
	}
	order(a.Moves, out.Action[0])
	if j.q.Policy && !a.Root.Ended {
		a.Policy = prior
		for action, ok := range legal {
			if !ok {
				a.Policy[action] = -1
			}
		}
	}
	e.send(a)
	return nil
}

// order puts the chosen move first, then the most visited.
func order(moves []moveInfo, chosen int32) {
	sort.SliceStable(moves, func(i, j int) bool {
		a, b := &moves[i], &moves[j]
		if (a.Action == chosen) != (b.Action == chosen) {
			return a.Action == chosen
		}
		return a.Visits > b.Visits
	})
	for i := range moves {
		moves[i].Order = i
	}
}

// winrate turns a value into a share of wins, in games of two players.
func (e *Engine) winrate(value float32) *float64 {
	spec := e.cfg.Env.Spec()
	top := float64(max(spec.RewardHigh, -spec.RewardLow))
	if spec.NumPlayers != 2 || top <= 0 || math.IsInf(top, 0) {
		return nil
	}
	w := min(max((float64(value)/top+1)/2, 0), 1)
	return &w
}

// longestVariation is how many moves a variation has, where the query doesn't say.
const longestVariation = 15

// variation writes the moves that the search expects after an action of the root, with their names.
func (e *Engine) variation(j *job, x *tree.Export, action int32, m *moveInfo) error {
	length := longestVariation
	if j.q.PVLength != nil {
		length = *j.q.PVLength
	}
	width := len(x.ChildrenIndex) / len(x.NodeVisits)
	state := j.state
	if err := e.cfg.Store.Retain([]int32{state}); err != nil {
		return err
	}
	defer func() { _ = e.cfg.Store.Release([]int32{state}) }()
	m.PV = []string{}
	for node := int32(0); action >= 0; {
		name, err := e.cfg.Store.ActionName(state, action)
		if err != nil {
			return err
		}
		if m.Move == "" {
			m.Move = name
		}
		if len(m.PV) >= max(1, length) || e.cfg.Env.Spec().NumOutcomes > 0 && len(m.PV) > 0 {
			return nil // after a roll of dice there is no one line
		}
		at := int(node)*width + int(action)
		m.PV = append(m.PV, name)
		if j.q.PVVisits {
			m.PVVisits = append(m.PVVisits, x.ChildrenVisits[at])
		}
		if node = x.ChildrenIndex[at]; node < 0 {
			return nil
		}
		out := statestore.Steps{Children: make([]int32, 1)}
		if err := e.cfg.Store.Simulate([]int32{state}, []int32{action}, &out); err != nil {
			return err
		}
		_ = e.cfg.Store.Release([]int32{state})
		state = out.Children[0]
		action = mostVisited(x.ChildrenVisits[int(node)*width : (int(node)+1)*width])
	}
	return nil
}

// mostVisited returns the first of the most visited actions, -1 if none is.
func mostVisited(visits []int32) int32 {
	best := int32(-1)
	for a, n := range visits {
		if n > 0 && (best < 0 || n > visits[best]) {
			best = int32(a)
		}
	}
	return best
}

// action finds the action that a text means in a state: its name, or its number.
func (e *Engine) action(state int32, text string) (int32, error) {
	legal := make([]bool, e.cfg.Env.Spec().NumActions)
	if err := e.cfg.Store.Read([]int32{state}, statestore.View{Mask: legal}); err != nil {
		return 0, err
	}
	var names []string
	for a, ok := range legal {
		if !ok {
			continue
		}
		name, err := e.cfg.Store.ActionName(state, int32(a))
		if err != nil {
			return 0, err
		}
		if strings.EqualFold(name, text) || fmt.Sprint(a) == text {
			return int32(a), nil
		}
		names = append(names, name)
	}
	return 0, fmt.Errorf("%q is illegal; legal: %s", text, strings.Join(names, " "))
}

// mask returns the actions that are not to be chosen at a root, nil for none.
func (e *Engine) mask(q *query, state int32) ([]bool, error) {
	if len(q.Avoid)+len(q.Allow) == 0 {
		return nil, nil
	}
	invalid := make([]bool, e.cfg.Env.Spec().NumActions)
	sets, field, mark := q.Avoid, "avoidMoves", true
	if len(q.Allow) > 0 {
		sets, field, mark = q.Allow, "allowMoves", false
		for a := range invalid {
			invalid[a] = true
		}
	}
	for _, set := range sets {
		for _, text := range set.Moves {
			action, err := e.action(state, text)
			if err != nil {
				return nil, bad(field, "%v", err)
			}
			invalid[action] = mark
		}
	}
	return invalid, nil
}
