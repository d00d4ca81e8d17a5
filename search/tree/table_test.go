package tree

import (
	"testing"

	"github.com/azserve/azserve/internal/rng"
)

// branch is one way to go on.
type branch struct {
	next             int
	reward, discount float64
	chance           float32
}

// randomTable is a small random game or decision process.
type randomTable struct {
	states, actions int
	outcomes        int          // 0 without chance
	branches        [][][]branch // [state][action][outcome], one without chance
	logits          [][]float64
	legal           [][]bool
	terminal        []bool
	value           []float64
}

func newTable(r *rng.Stream) *randomTable {
	m := &randomTable{states: 2 + r.IntN(12), actions: 1 + r.IntN(5)}
	two, ends, masks := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	if r.IntN(4) == 0 {
		m.outcomes = 1 + r.IntN(3)
	}
	turn := make([]int, m.states)
	for s := range m.states {
		turn[s] = r.IntN(2)
		m.terminal = append(m.terminal, ends && s > 0 && r.IntN(4) == 0)
		m.value = append(m.value, 2*r.Float64()-1)
	}
	for s := range m.states {
		branches := make([][]branch, m.actions)
		logits, legal := make([]float64, m.actions), make([]bool, m.actions)
		for a := range m.actions {
			logits[a] = 4*r.Float64() - 2
			for range max(1, m.outcomes) {
				b := branch{next: r.IntN(m.states), reward: 2*r.Float64() - 1, discount: 0.9, chance: float32(r.Float64())}
				if two && turn[b.next] != turn[s] {
					b.discount = -1
				}
				if m.terminal[b.next] {
					b.discount = 0
				}
				branches[a] = append(branches[a], b)
			}
			sum := float32(0)
			for _, b := range branches[a] {
				sum += b.chance
			}
			for o := range branches[a] {
				branches[a][o].chance /= sum
			}
			legal[a] = !masks || r.IntN(3) > 0
		}
		legal[r.IntN(m.actions)] = true
		m.branches = append(m.branches, branches)
		m.logits, m.legal = append(m.logits, logits), append(m.legal, legal)
	}
	return m
}

func narrow(x []float64) (out []float32) {
	for _, v := range x {
		out = append(out, float32(v))
	}
	return out
}

// walker is the simulator and the evaluator of a tree over a random table.
type walker struct {
	tr     *Tree
	m      *randomTable
	states map[int32]int
	from   map[int32][2]int // of chance nodes: the state and the action before
}

// apply evaluates a leaf; one that is a chance node is passed.
func (w *walker) apply(l Leaf) {
	m := w.m
	if l.Chance {
		chances := make([]float32, 0, m.outcomes)
		for _, o := range m.branches[w.states[l.Parent]][l.Action] {
			chances = append(chances, o.chance)
		}
		w.from[l.Node] = [2]int{w.states[l.Parent], int(l.Action)}
		l = w.tr.Through(l, 0, chances)
	}
	at, outcome := [2]int{w.states[l.Parent], int(l.Action)}, int32(0)
	if l.Outcome {
		at, outcome = w.from[l.Parent], l.Action
	}
	b := m.branches[at[0]][at[1]][outcome]
	w.states[l.Node] = b.next
	v := &Evaluation{Reward: float32(b.reward), Discount: float32(b.discount)}
	if v.Ended = m.terminal[b.next]; !v.Ended {
		v.Logits, v.Legal, v.Value = narrow(m.logits[b.next]), m.legal[b.next], float32(m.value[b.next])
	}
	w.tr.Apply(l, v)
}

func runTable(t *testing.T, params *Params, m *randomTable, noise []float32, invalid []bool) *Output {
	tr := &Tree{}
	tr.Reset(params, m.actions)
	tr.SetRoot(&RootInput{
		Logits: narrow(m.logits[0]), Value: float32(m.value[0]), Legal: m.legal[0], Invalid: invalid, Gumbel: noise,
	})
	w := &walker{tr: tr, m: m, states: map[int32]int{}, from: map[int32][2]int{}}
	leaves := make([]Leaf, params.LeavesPerStep)
	for !tr.Done() {
		for _, l := range leaves[:tr.Select(leaves)] {
			w.apply(l)
		}
		checkInFlight(t, tr)
	}
	out := &Output{Visits: make([]int32, m.actions), QValues: make([]float32, m.actions)}
	tr.Output(out, &Draw{})
	return out
}
