package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azserve/azserve/evaluator/onnx"
	"github.com/stretchr/testify/require"
)

// A residual network from its training to an ONNX file, a drawing of its loss and its mistakes.
func TestModels(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", filepath.Join("..", ".venv")) // for ONNX Runtime, if it is there
	dir := t.TempDir()
	folder := filepath.Join(dir, "run")
	code, out, errOut := run(t, "", "train", "ConnectFour-v0", "--env-arg", "rows=4", "--env-arg", "cols=5", "--games", "32",
		"--games-per-iteration", "8", "--simulations", "4", "--blocks", "1", "--channels", "4", "--eval-games", "2",
		"--eval-opponent", "random", "--eval-simulations", "4", "--window-start", "50", "--lambda", "0.9", "--out", folder)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "evaluator's batches")
	require.NotContains(t, out, "mistakes in", "the labelled positions are of 6 x 7")

	code, out, errOut = run(t, "", "plot", folder)
	require.Zero(t, code, errOut)
	svg, err := os.ReadFile(strings.TrimSpace(out))
	require.NoError(t, err)
	require.Contains(t, string(svg), "<polyline")
	code, _, errOut = run(t, "", "plot", dir)
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "progress.csv")

	model, file := filepath.Join(folder, "model"), filepath.Join(dir, "model.onnx")
	code, _, errOut = run(t, "", "export", model, "--out", file)
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "give the environment's keywords by --env-arg")
	code, out, errOut = run(t, "", "export", model, "--env-arg", "rows=4", "--env-arg", "cols=5", "--out", file)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "weights")
	code, _, _ = run(t, "", "export", dir)
	require.Equal(t, 2, code)

	code, _, errOut = run(t, "", "mistakes", "ConnectFour-v0", "random")
	require.Zero(t, code, errOut)
	code, _, errOut = run(t, "", "mistakes", "TicTacToe-v0", "random")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "give --positions FILE")
	own := filepath.Join(dir, "own.csv")
	require.NoError(t, os.WriteFile(own, []byte("moves,phase,scores\n0 3 1 4,late,- - 1 - - -1 -1 -1 -1\n"), 0o644))
	code, out, errOut = run(t, "", "mistakes", "TicTacToe-v0", "perfect", "--positions", own)
	require.Zero(t, code, errOut)
	require.Equal(t, "perfect: mistakes in 0.0 % (0 of 1) in the late\n", out)

	code, out, _ = run(t, "", "envs", "--verbose")
	require.Zero(t, code)
	require.Contains(t, out, "matrix products: ")
	if _, err := onnx.Library(); err != nil {
		require.Contains(t, out, "pip install onnxruntime")
		return
	}
	require.Contains(t, out, "libonnxruntime")
	players := []string{model, file}
	search := func(player string) string {
		code, out, errOut := run(t, "", "search", "ConnectFour-v0", "--env-arg", "rows=4", "--env-arg", "cols=5", "--model", player,
			"--simulations", "32")
		require.Zero(t, code, errOut)
		_, chosen, _ := strings.Cut(out, "chosen ")
		return chosen[:1]
	}
	require.Equal(t, search(players[0]), search(players[1]))
}
