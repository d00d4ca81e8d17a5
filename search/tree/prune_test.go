package tree

import (
	"testing"
	"unsafe"

	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

func TestNodeBytes(t *testing.T) {
	require.EqualValues(t, nodeBytes, unsafe.Sizeof(node{}))
	require.EqualValues(t, edgeBytes, unsafe.Sizeof(edge{}))
}

// A tree in little room does all its simulations, whatever the settings; its nodes and edges stay within
// it, and every count adds up.
func TestPrune(t *testing.T) {
	pruned := 0
	for i := range 2000 {
		r := rng.New(uint64(i), 78)
		cfg, m := randomConfig(&r), newTable(&r)
		cfg.Outcomes, cfg.NumSimulations, cfg.LeavesPerStep = m.outcomes, 50+r.IntN(400), 1+r.IntN(4)
		cfg.MaxNodes = cfg.MinNodes(m.actions) + r.IntN(40)
		params, err := NewParams(cfg)
		require.NoError(t, err)
		tr := searchRandom(t, params, m)
		require.Equal(t, cfg.NumSimulations, tr.done, "%+v", cfg)
		require.LessOrEqual(t, len(tr.nodes), cfg.MaxNodes)
		live := tr.live()
		require.Equal(t, int(tr.last)+1, len(live)+len(tr.free))
		// Every move of a node's edges doubles their room, and a pruning moves them together.
		require.LessOrEqual(t, len(tr.slab), 8*len(tr.nodes)+4*len(tr.nodes)*m.actions)
		visits := int32(0)
		for _, e := range tr.edges(&tr.nodes[Root]) {
			visits += e.visits
		}
		require.EqualValues(t, cfg.NumSimulations, visits, "the root's visits are the answer, and stay")
		for _, i := range live {
			checkNode(t, tr, i)
		}
		pruned += tr.Pruned()
	}
	require.Positive(t, pruned)
}

// checkNode checks that a node's edges and children know each other, and its priors.
func checkNode(t *testing.T, tr *Tree, i int32) {
	n := &tr.nodes[i]
	require.Zero(t, n.inFlight)
	marked := int32(0)
	if n.kind == open && n.next != unranked {
		for _, p := range tr.priors(i) {
			if p == priorVisited {
				marked++
			}
		}
		require.EqualValues(t, n.count, marked)
	}
	for k, e := range tr.edges(n) {
		c := &tr.nodes[e.child]
		require.Equal(t, i, c.parent)
		require.EqualValues(t, k, c.via)
		require.LessOrEqual(t, e.visits, c.visits)
	}
}

// searchRandom searches a random table to the end.
func searchRandom(t *testing.T, params *Params, m *randomTable) *Tree {
	tr := &Tree{}
	tr.Reset(params, m.actions)
	tr.SetRoot(&RootInput{Logits: narrow(m.logits[0]), Value: float32(m.value[0]), Legal: m.legal[0]})
	w := &walker{tr: tr, m: m, states: map[int32]int{}, from: map[int32][2]int{}}
	leaves := make([]Leaf, params.LeavesPerStep)
	for steps := 0; !tr.Done(); steps++ {
		require.Less(t, steps, 10_000, "no progress: %+v", params.Config)
		for _, l := range leaves[:tr.Select(leaves)] {
			w.apply(l)
		}
		checkInFlight(t, tr)
	}
	return tr
}

// In enough room nothing is pruned, and the answer is the same as without a bound.
func TestPruneOnlyWhenFull(t *testing.T) {
	for i := range 300 {
		r := rng.New(uint64(i), 79)
		cfg, m := randomConfig(&r), newTable(&r)
		cfg.Outcomes = 0
		var got [2]Output
		for k, nodes := range []int{0, cfg.NumSimulations + 1} {
			cfg.MaxNodes = max(nodes, cfg.MinNodes(m.actions)) * min(k, 1)
			params, err := NewParams(cfg)
			require.NoError(t, err)
			got[k].Visits = make([]int32, m.actions)
			tr := searchRandom(t, params, m)
			require.Zero(t, tr.Pruned())
			tr.Output(&got[k], &Draw{})
		}
		require.Equal(t, got[0], got[1])
	}
}
