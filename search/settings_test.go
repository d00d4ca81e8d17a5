package search_test

import (
	"encoding/json"
	"testing"

	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	names := search.Settings()
	require.Subset(t, names, []string{"pb_c_init", "max_num_considered_actions", "dirichlet_fraction", "lcb", "max_bytes"})
	require.NotContains(t, names, "-")
	cfg := search.Default(tree.Gumbel, ticTacToe(t).env.Spec())
	require.NoError(t, cfg.Apply(map[string]json.RawMessage{
		"lcb": json.RawMessage("5"), "max_bytes": json.RawMessage("1000"), "fpu": json.RawMessage(`"parent"`),
	}))
	require.Equal(t, float32(5), cfg.LCB)
	require.Equal(t, 1000, cfg.MaxBytes)
	require.Equal(t, tree.FPUParent, cfg.FPU)
	require.Equal(t, float32(1), cfg.GumbelScale, "others stay")
	for name, c := range map[string][2]string{
		"lbc": {"5", `no setting "lbc"; known: count_kept, dirichlet_alpha`},
		"lcb": {`"x"`, `lcb="x"; want float32`},
	} {
		err := cfg.Apply(map[string]json.RawMessage{name: json.RawMessage(c[0])})
		require.ErrorIs(t, err, search.ErrConfig)
		require.ErrorContains(t, err, c[1])
	}
}
