package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/azserve/azserve/cli"
	"github.com/stretchr/testify/require"
)

// run calls the command line and returns what it printed.
func run(t *testing.T, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Main(args, strings.NewReader(input), &o, &e)
	return code, o.String(), e.String()
}

func TestEnvs(t *testing.T) {
	code, out, _ := run(t, "", "envs")
	require.Zero(t, code)
	for _, want := range []string{"TicTacToe-v0", "ConnectFour-v0", "9 actions, 2 player(s)", "connect", "default 4"} {
		require.Contains(t, out, want)
	}
}

func TestSearch(t *testing.T) {
	code, out, _ := run(t, "", "search", "TicTacToe-v0", "--moves", "a3,b2 b3,c1", "--simulations", "64")
	require.Zero(t, code)
	require.Contains(t, out, "X X .\n. O .\n. . O\n")
	require.Contains(t, out, "chosen c3, value +0.")
	require.Regexp(t, `c3\s+0\.2000\s+\d+\s+\+1\.0000`, out)
	code, out, _ = run(t, "", "search", "ConnectFour-v0", "--env-arg", "rows=4", "--env-arg", "cols=4", "--policy", "alphazero", "--model", "rollout")
	require.Zero(t, code)
	require.Contains(t, out, " 0  1  2  3")
	_, out, _ = run(t, "", "search", "TicTacToe-v0", "--moves", "0,3,1,4,2")
	require.Contains(t, out, "The game is over here.")
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	for ext, want := range map[string]string{"svg": "<svg ", "dot": "digraph", "json": `"action": "c3"`} {
		path := filepath.Join(dir, "tree."+ext)
		code, _, errOut := run(t, "", "search", "TicTacToe-v0", "--moves", "a3,b2,b3,c1", "--tree", path)
		require.Zero(t, code, errOut)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(data), want)
	}
	code, _, errOut := run(t, "", "search", "TicTacToe-v0", "--tree", "tree.png")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, ".json, .dot or .svg")
}

func TestUsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown environment "Chess"; known: BinPack-v0, CartPole-v1`: {"search", "Chess"},
		`legal: a3 b3`:                      {"search", "TicTacToe-v0", "--moves", "zz"},
		`unknown flag: --sims`:              {"search", "TicTacToe-v0", "--sims", "3"},
		`num_simulations=0`:                 {"search", "TicTacToe-v0", "--simulations", "0"},
		`no keyword "row"; known: rows`:     {"search", "ConnectFour-v0", "--env-arg", "row=3"},
		`--env-arg "rows"; want NAME=VALUE`: {"search", "ConnectFour-v0", "--env-arg", "rows"},
		`known: uniform, rollout, table`:    {"search", "ConnectFour-v0", "--model", "nowhere"},
		`want: azserve arena ENV A B`:       {"arena", "TicTacToe-v0"},
		`known: random, perfect`:            {"arena", "TicTacToe-v0", "random", "nobody"},
		`--side 2; want 0 to 1`:             {"play", "TicTacToe-v0", "--side", "2"},
		`want: azserve train ENV`:           {"train"},
		`--resume knows the environment`:    {"train", "TicTacToe-v0", "--resume", "x"},
		`policy=uct`:                        {"train", "TicTacToe-v0", "--policy", "uct", "--out", t.TempDir()},
		`unknown command "fly"`:             {"fly"},
	} {
		code, _, errOut := run(t, "", args...)
		require.Contains(t, errOut, want)
		if !strings.Contains(want, "unknown command") {
			require.Equal(t, 2, code, args)
		}
	}
	code, _, errOut := run(t, "", "train", "--resume", t.TempDir())
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "no run to resume")
}

func TestPlay(t *testing.T) {
	code, out, _ := run(t, "b2\nnonsense\nq\n", "play", "TicTacToe-v0", "--opponent", "perfect")
	require.Zero(t, code)
	require.Contains(t, out, "perfect plays")
	require.Contains(t, out, `move "nonsense" is illegal`)
	// A fool loses to the perfect player: a3, then whatever is first.
	var moves strings.Builder
	for _, m := range []string{"a3", "b3", "c3", "a2", "b2", "c2", "a1", "b1", "c1"} {
		moves.WriteString(m + "\n")
	}
	_, out, _ = run(t, moves.String(), "play", "TicTacToe-v0", "--opponent", "perfect", "--side", "1")
	require.Regexp(t, "You lose|A draw", out)
}

func TestArena(t *testing.T) {
	code, out, _ := run(t, "", "arena", "TicTacToe-v0", "perfect", "random", "--games", "10")
	require.Zero(t, code)
	require.Regexp(t, `perfect against random, 10 games: .* distinct games\), Elo \+`, out)
}

func TestSettingsLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("simulations: 7\nmoves: a3\n"), 0o644))
	total := func(args ...string) string {
		code, out, errOut := run(t, "", append([]string{"search", "TicTacToe-v0", "--config", file}, args...)...)
		require.Zero(t, code, errOut)
		require.Contains(t, out, "X . .")
		return out
	}
	count := func(out string) (n int) {
		for line := range strings.SplitSeq(out, "\n") {
			f := strings.Fields(line)
			if len(f) == 5 && f[0] != "action" {
				n += atoi(f[2])
			}
		}
		return n
	}
	require.Equal(t, 7, count(total()))
	t.Setenv("AZSERVE_SIMULATIONS", "9")
	require.Equal(t, 9, count(total()))
	require.Equal(t, 11, count(total("--simulations", "11")))
	t.Setenv("AZSERVE_SIMULATIONS", "many")
	code, _, errOut := run(t, "", "search", "TicTacToe-v0")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "from AZSERVE_SIMULATIONS")
	t.Setenv("AZSERVE_SIMULATIONS", "")
	require.NoError(t, os.WriteFile(file, []byte("simulation: 7\n"), 0o644))
	code, _, errOut = run(t, "", "search", "TicTacToe-v0", "--config", file)
	require.Equal(t, 2, code)
	require.Contains(t, errOut, `"simulation", which azserve search doesn't know`)
}

func atoi(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// tiny are the flags of a run that takes a second.
var tiny = []string{
	"--games", "60", "--games-per-iteration", "20", "--parallel", "20", "--simulations", "4", "--hidden", "16",
	"--batch-size", "32", "--eval-every", "2", "--eval-games", "4",
}

func TestTrainAndUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	code, out, errOut := run(t, "", append([]string{"train", "TicTacToe-v0", "--out", dir}, tiny...)...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "60 games")
	require.Contains(t, out, "against every reply, both sides")
	model := filepath.Join(dir, "model")
	code, out, _ = run(t, "", "search", "TicTacToe-v0", "--model", model)
	require.Zero(t, code)
	require.Contains(t, out, "chosen")
	code, _, _ = run(t, "", "arena", "TicTacToe-v0", model+"@4", "policy:"+model, "--games", "4")
	require.Zero(t, code)
	code, out, errOut = run(t, "", "train", "--resume", dir, "--games", "80")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "80 games")
	code, _, errOut = run(t, "", append([]string{"train", "TicTacToe-v0", "--out", dir}, tiny...)...)
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "holds a run already")
}

// A run that is killed goes on from its last checkpoint: nothing is half-written, at whatever moment.
func TestKillAndResume(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	binary := filepath.Join(t.TempDir(), "azserve")
	build := exec.Command("go", "build", "-o", binary, "../cmd/azserve")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())
	dir := filepath.Join(t.TempDir(), "run")
	start := append([]string{"train", "TicTacToe-v0", "--out", dir, "--checkpoint-interval", "0.001"}, tiny...)
	start = append(start, "--games", "100000")
	resume := []string{"train", "--resume", dir, "--games", "100000"}
	args := start
	for i := range 8 {
		c := exec.Command(binary, args...)
		require.NoError(t, c.Start())
		waitFor(t, filepath.Join(dir, "latest"))
		time.Sleep(time.Duration(60+37*i) * time.Millisecond)
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		_ = c.Wait()
		args = resume
	}
	// Ctrl-C saves and says how to go on.
	c := exec.Command(binary, resume...)
	var errOut bytes.Buffer
	c.Stderr = &errOut
	require.NoError(t, c.Start())
	time.Sleep(500 * time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_ = c.Wait()
	require.Equal(t, 1, c.ProcessState.ExitCode())
	require.Contains(t, errOut.String(), "go on with: azserve train --resume "+dir)
	code, out, text := run(t, "", "train", "--resume", dir, "--minutes", "0.0001")
	require.Zero(t, code, text)
	require.Contains(t, out, "model with")
}

func waitFor(t *testing.T, path string) {
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
}
