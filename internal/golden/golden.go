// Package golden reads searches that were made by running mctx 0.0.71: inputs, noise and results.
// testdata/README.md says how they were made and what each field means.
package golden

import (
	"embed"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/*.json
var files embed.FS

// Load decodes a file of cases.
func Load[T any](t testing.TB, name string) []T {
	t.Helper()
	data, err := files.ReadFile("testdata/" + name + ".json")
	require.NoError(t, err)
	var out []T
	require.NoError(t, json.Unmarshal(data, &out))
	require.NotEmpty(t, out)
	return out
}

// QTransform is a transform with its settings.
type QTransform struct {
	Name          string  `json:"name"`
	Epsilon       float32 `json:"epsilon"`
	MinValue      float32 `json:"min_value"`
	MaxValue      float32 `json:"max_value"`
	ValueScale    float32 `json:"value_scale"`
	MaxvisitInit  float32 `json:"maxvisit_init"`
	RescaleValues bool    `json:"rescale_values"`
	UseMixedValue bool    `json:"use_mixed_value"`
}

// Search is one search of a batch of roots.
type Search struct {
	Name      string   `json:"name"`
	Config    Config   `json:"config"`
	Model     Model    `json:"model"`
	RootState []int32  `json:"root_state"`
	Invalid   [][]int  `json:"invalid_actions"`
	Noise     Noise    `json:"noise"`
	Expected  Expected `json:"expected"`
}

// Config is a search's settings; what a policy doesn't have is 0.
type Config struct {
	NumSimulations   int        `json:"num_simulations"`
	MaxNodes         int        `json:"max_nodes"`
	MaxDepth         *int       `json:"max_depth"`
	QTransform       QTransform `json:"qtransform"`
	PbCInit          float32    `json:"pb_c_init"`
	PbCBase          float32    `json:"pb_c_base"`
	DirichletFrac    float32    `json:"dirichlet_fraction"`
	DirichletAlpha   float32    `json:"dirichlet_alpha"`
	Temperature      float32    `json:"temperature"`
	MaxNumConsidered int        `json:"max_num_considered_actions"`
	GumbelScale      float32    `json:"gumbel_scale"`
}

// Model is a game as tables.
type Model struct {
	NumStates   int         `json:"num_states"`
	NumActions  int         `json:"num_actions"`
	NextState   [][]int32   `json:"next_state"`
	Reward      [][]float32 `json:"reward"`
	Discount    [][]float32 `json:"discount"`
	PriorLogits [][]float32 `json:"prior_logits"`
	Value       []float32   `json:"value"`

	// Stochastic: tables over afterstates, and next_state etc. over [afterstate][outcome].
	NumChance       int         `json:"num_chance"`
	Afterstate      [][]int32   `json:"afterstate"`
	ChanceLogits    [][]float32 `json:"chance_logits"`
	AfterstateValue []float32   `json:"afterstate_value"`
}

// Noise is what was drawn; nil where nothing was.
type Noise struct {
	Dirichlet    [][]float32 `json:"dirichlet"`
	ActionGumbel [][]float32 `json:"action_gumbel"`
	RootGumbel   [][]float32 `json:"root_gumbel"`
}

// Subtree is searches one after the other, each but the first in what was kept of the tree.
type Subtree struct {
	Name   string `json:"name"`
	Config Config `json:"config"`
	Model  Model  `json:"model"`
	Steps  []Step `json:"steps"`
}

// Step is a search, the move after it, and the tree that is kept.
type Step struct {
	Search
	NumSimulations  int     `json:"num_simulations"`
	Child           []int32 `json:"child"`
	ExpectedSubtree Tree    `json:"expected_subtree"`
	Reset           []int   `json:"reset"`
}

// Resets says that row b starts anew after the step.
func (s *Step) Resets(b int) bool { return s.Reset != nil && s.Reset[b] != 0 }

// Expected is what mctx answered.
type Expected struct {
	Action        []int32     `json:"action"`
	ActionWeights [][]float32 `json:"action_weights"`
	Summary       struct {
		VisitCounts [][]int32   `json:"visit_counts"`
		Value       []float32   `json:"value"`
		QValues     [][]float32 `json:"qvalues"`
	} `json:"summary"`
	SimulationLeaf [][]int32 `json:"simulation_leaf"`
	Tree           Tree      `json:"tree"`
}

// Tree is mctx's tree, [B][N] and [B][N][A].
type Tree struct {
	NodeVisits          [][]int32     `json:"node_visits"`
	NodeValues          [][]float32   `json:"node_values"`
	NodeRawValues       [][]float32   `json:"node_raw_values"`
	Parents             [][]int32     `json:"parents"`
	ActionFromParent    [][]int32     `json:"action_from_parent"`
	ChildrenIndex       [][][]int32   `json:"children_index"`
	ChildrenVisits      [][][]int32   `json:"children_visits"`
	ChildrenRewards     [][][]float32 `json:"children_rewards"`
	ChildrenDiscounts   [][][]float32 `json:"children_discounts"`
	ChildrenValues      [][][]float32 `json:"children_values"`
	ChildrenPriorLogits [][][]float32 `json:"children_prior_logits"`
	IsDecisionNode      [][]int8      `json:"is_decision_node"`
	NextNodeIndex       []int         `json:"next_node_index"` // mctx-az
}

// InvalidRow returns row b of the mask, nil if the case has none.
func (s *Search) InvalidRow(b int) []bool {
	if s.Invalid == nil {
		return nil
	}
	out := make([]bool, len(s.Invalid[b]))
	for a, v := range s.Invalid[b] {
		out[a] = v != 0
	}
	return out
}

// Scale returns the largest value of the model, at least 1: errors are measured by it.
func (s *Search) Scale() float32 {
	m := float32(1)
	for _, v := range append(slices.Clone(s.Model.Value), s.Model.AfterstateValue...) {
		m = max(m, v, -v)
	}
	return m
}

// Close requires |got - want| <= 1e-6*scale + 1e-5*|want| for every element.
func Close(t testing.TB, want, got []float32, scale float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i, w := range want {
		d := got[i] - w
		if !(max(d, -d) <= 1e-6*scale+1e-5*max(w, -w)) {
			require.Failf(t, "numbers differ", "%s[%d] is %v; want %v", what, i, got[i], w)
		}
	}
}

// Flat joins rows.
func Flat[T any](rows [][]T) []T {
	var out []T
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}
