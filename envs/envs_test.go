package envs_test

import (
	"encoding/json"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/envs/envstest"
	"github.com/stretchr/testify/require"
)

// variants are the settings that the battery runs with; every registered id must have some.
var variants = map[string][]string{
	"BinPack-v0": {
		`{"max_num_items":6,"obs_num_ems":8}`, `{"max_num_items":8,"obs_num_ems":5,"reward":"sparse","normalize":false,` +
			`"invalid":"error","show_solution":true,"container":[9,7,5],"split_num_same_items":3}`,
		`{"generator":"toy","ems_overflow":"jumanji","max_num_ems":6,"obs_num_ems":6}`,
		`{"generator":"toy","ems_overflow":"drop_smallest","max_num_ems":4,"obs_num_ems":6,"max_num_items":25}`,
	},
	"CartPole-v1":    {`{}`, `{"math":"go","max_episode_steps":20,"sutton_barto_reward":true}`},
	"ConnectFour-v0": {`{}`, `{"rows":4,"cols":5,"connect":3}`, `{"rows":3,"cols":16}`},
	"Gomoku-v0":      {`{"size":9}`, `{"size":3,"connect":3}`},
	"Maze-v0": {
		`{}`, `{"rows":5,"cols":9,"generator":"division","obs":"planes","random_start":true}`,
		`{"rows":2,"cols":64,"invalid":"error","obs":"flat","regenerate":false,"wall_density":0.5}`,
		`{"layout":["S.#","..G"],"factored":true}`, `{"rows":3,"cols":3,"generator":"empty","random_start":true}`,
	},
	"Pig-v0":       {`{}`, `{"target":20}`},
	"TicTacToe-v0": {`{}`},
	"Table-v0": {`{"table":{
		"next_state":[[1,2],[2,3],[0,3],[3,3]],"reward":[[0,1],[0.5,-1],[0,0],[0,0]],
		"to_play":[0,1,0,1],"legal":[[1,1],[1,1],[0,1],[0,0]],"terminal":[0,0,0,1],"root":[0,1]}}`, `{"table":{
		"afterstate":[[0,1],[1,2],[2,0],[0,0]],"chance_logits":[[0,1],[0.5,-1],["-Inf",0]],
		"next_state":[[1,2],[2,3],[0,1]],"reward":[[0,1],[0.5,-1],[0,0]],
		"to_play":[0,1,0,1],"terminal":[0,0,0,1],"root":[0,1]}}`},
}

func makeEnv(t testing.TB, id, keywords string) *envs.Env {
	t.Helper()
	var kw envs.Keywords
	require.NoError(t, json.Unmarshal([]byte(keywords), &kw))
	env, err := envs.Make(id, kw)
	require.NoError(t, err)
	return env
}

func TestBattery(t *testing.T) {
	for _, id := range envs.IDs() {
		require.NotEmpty(t, variants[id], "%s is registered but not tested", id)
		for _, kw := range variants[id] {
			t.Run(id+kw[:min(len(kw), 30)], func(t *testing.T) {
				envstest.Battery(t, makeEnv(t, id, kw))
			})
		}
	}
}

func TestKeywords(t *testing.T) {
	for _, c := range []struct{ id, kw, want string }{
		{"ConnectFour-v0", `{"row":6}`, `no keyword "row"; known: rows, cols, connect`},
		{"ConnectFour-v0", `{"rows":"six"}`, `rows="six": want int`},
		{"ConnectFour-v0", `{"rows":1}`, `rows=1; want 2 to 16`},
		{"ConnectFour-v0", `{"rows":15,"cols":15}`, `= 240 bits; want at most 64`},
		{"CartPole-v1", `{"low":0.1}`, `low=0.1 high=0.05; want -1 <= low <= high <= 1`},
		{"Maze-v0", `{"rows":1}`, `rows=1; want 2 to 64`},
		{"Maze-v0", `{"wall_density":0.7}`, `wall_density=0.7; want 0 to 0.6`},
		{"Maze-v0", `{"generator":"division"}`, `want odd numbers, such as 9 and 9`},
		{"Maze-v0", `{"generator":"prim"}`, `generator="prim"; want one of ["random" "division" "empty" "layout"]`},
		{"Maze-v0", `{"layout":["S#G","..#"]}`, `the goal G can't be reached from S`},
		{"Maze-v0", `{"layout":["S.","G"]}`, `row 1 has 1 cells; want 2 as row 0`},
		{"Maze-v0", `{"layout":["SS","G."]}`, `row 0, column 1 is 'S'`},
		{"BinPack-v0", `{"container":[0,1,1]}`, `container is [0 1 1]; want lengths of 1 to 1000000`},
		{"BinPack-v0", `{"max_num_items":0}`, `max_num_items=0; want 1 to 1000`},
		{"BinPack-v0", `{"generator":"instance"}`, `needs csv_path or instance`},
		{"BinPack-v0", `{"instance":{"container":[1,1,1],"items":[[1,1,1]],"sizes":[]}}`, `unknown field "sizes"`},
		{"BinPack-v0", `{"instance":{"container":[1,1,1],"items":[[1,1,0]]}}`, `items[0] is [1 1 0]`},
		{"BinPack-v0", `{"instance":{"container":[2,1,1],"items":[[1,1,1],[1,1,1]],"solution":[[0,0,0],[0,0,0]]}}`,
			`solution[1] = [0 0 0] overlaps item 0`},
		{"BinPack-v0", `{"instance":{"container":[2,1,1],"items":[[1,1,1]],"solution":[[2147483647,0,0]]}}`,
			`solution[0] is [2147483647 0 0]; want 0 to 1000000`},
		{"TicTacToe-v0", `{"rows":3}`, `no keyword "rows"; known: none`},
		{"CartPole-v1", `{"math":"fast"}`, `math="fast"; want "libm" or "go"`},
		{"Table-v0", `{}`, `next_state is empty`},
		{"Table-v0", `{"table":{"next_state":[[0,1]],"reward":[[0,0]]}}`, `next_state[0][1] is 1; want 0 to 0`},
		{"Table-v0", `{"table":{"next_state":[[0]],"rewards":[[0]]}}`, `no keyword "rewards"; known: next_state, reward`},
		{"Table-v0", `{"table":{"next_state":[[0]],"reward":[[0,1]]}}`, `reward[0] has 2 entries; want 1`},
		{"Table-v0", `{"table":{"next_state":[[0]],"reward":[[0]],"legal":[[0]]}}`, `legal[0] allows no action`},
	} {
		var kw envs.Keywords
		require.NoError(t, json.Unmarshal([]byte(c.kw), &kw))
		_, err := envs.Make(c.id, kw)
		require.ErrorIs(t, err, envs.ErrKeyword, c.kw)
		require.ErrorContains(t, err, c.want)
	}
	_, err := envs.Make("Conect4", nil)
	require.ErrorIs(t, err, envs.ErrUnknownEnv)
	require.ErrorContains(t, err, "ConnectFour-v0")
}

// TestForeignBytes gives states of one environment to another.
func TestForeignBytes(t *testing.T) {
	small := makeEnv(t, "ConnectFour-v0", `{"rows":4}`).NewArena(1)
	small.Reset([]int32{0}, nil, []uint64{0})
	for _, other := range []*envs.Env{
		makeEnv(t, "ConnectFour-v0", `{}`), makeEnv(t, "TicTacToe-v0", `{}`),
	} {
		a := other.NewArena(1)
		err := a.DecodeState(0, small.AppendState(nil, 0))
		require.ErrorIs(t, err, envs.ErrBadState)
		require.ErrorContains(t, err, `of "ConnectFour-v0" version 1`)
		require.ErrorIs(t, a.Copy([]int32{0}, small, []int32{0}), envs.ErrOtherEnv)
	}
}

// TestFrozenBytes pins the portable form: if it fails, old snapshots can't be read any more. Raise
// the format byte or the environment's version instead of changing the expected bytes.
func TestFrozenBytes(t *testing.T) {
	a := makeEnv(t, "TicTacToe-v0", `{}`).NewArena(1)
	a.Reset([]int32{0}, nil, []uint64{0})
	var out [1]envs.Outcome
	a.Step([]int32{0}, []int32{0}, []int32{4}, out[:])
	want := "AZ\x01\x0cTicTacToe-v0\x01\x00"
	got := a.AppendState(nil, 0)
	require.Equal(t, want, string(got[:len(want)]))
	require.Equal(t, []byte{0x10, 0, 0, 0, 1, 0}, got[len(want)+4:len(got)-4])
	require.Equal(t, []byte{0xe4, 0xcd, 0xfb, 0xe1}, got[len(want):len(want)+4])
}

func FuzzDecodeState(f *testing.F) {
	arenas := []envs.Arena{}
	for id, kws := range variants {
		a := makeEnv(f, id, kws[0]).NewArena(2)
		a.Reset([]int32{0}, nil, []uint64{1})
		f.Add(a.AppendState(nil, 0))
		arenas = append(arenas, a)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, a := range arenas {
			if a.DecodeState(1, envs.Reseal(b)) == nil {
				legal := make([]bool, a.Spec().NumActions)
				a.Mask([]int32{1}, legal)
				for action, ok := range legal {
					if ok {
						var out [1]envs.Outcome
						a.Step([]int32{1}, []int32{0}, []int32{int32(action)}, out[:])
					}
				}
				a.Observe([]int32{1}, envs.NewArrays(a.Spec().Obs, 1), 0)
			}
		}
	})
}
