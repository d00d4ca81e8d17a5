package named_test

import (
	"path/filepath"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/evaluatortest"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/stretchr/testify/require"
)

func TestOpen(t *testing.T) {
	env, err := envs.Make("ConnectFour-v0", nil)
	require.NoError(t, err)
	net, err := gorgonia.NewNet(gorgonia.DefaultConfig(env), 1)
	require.NoError(t, err)
	defer net.Close()
	dir := filepath.Join(t.TempDir(), "a folder")
	require.NoError(t, net.Save(dir))
	for _, name := range []string{
		"uniform", "rollout", dir, "gorgonia:" + dir, dir + "?symmetry=random", "gorgonia:" + dir + "?symmetry=average",
	} {
		ev, free, err := named.Open(name, env)
		require.NoError(t, err, name)
		t.Run(name, func(t *testing.T) { evaluatortest.Battery(t, env, ev, 20, free) })
	}
	for name, want := range map[string]string{
		"nowhere":                 "known: uniform, rollout, table",
		"gorgonia:":               "no path",
		"onnx:nowhere.onnx":       "onnx",
		dir + "?symmetry=all":     `want "random" or "average"`,
		dir + "?threads=2":        `setting "threads"`,
		"x.onnx?threads=-1":       "threads=-1; want a whole number from 1 on",
		dir + "?symmetry=%zz":     "invalid URL escape",
		"table":                   "for Table-v0, not ConnectFour-v0",
		"uniform?symmetry=random": "known",
	} {
		_, _, err := named.Open(name, env)
		require.ErrorContains(t, err, want, name)
	}
	other, err := envs.Make("TicTacToe-v0", nil)
	require.NoError(t, err)
	_, _, err = named.Open(dir, other)
	require.ErrorIs(t, err, gorgonia.ErrConfig)
	table, err := envs.Make("Table-v0", envs.Keywords{"table": []byte(`{"next_state": [[1], [1]], "reward": [[0], [0]]}`)})
	require.NoError(t, err)
	ev, _, err := named.Open("table", table)
	require.NoError(t, err)
	require.IsType(t, &evaluator.Table{}, ev)
}
