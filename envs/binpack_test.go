package envs_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/internal/rng"
	"github.com/stretchr/testify/require"
)

// binEpisode is an episode of jumanji's BinPack, recorded by running it.
type binEpisode struct {
	Name      string     `json:"name"`
	Container [3]int32   `json:"container"`
	Items     [][3]int32 `json:"items"`
	ItemsMask []bool     `json:"items_mask"`
	MaxNumEMS int        `json:"max_num_ems"`
	ObsNumEMS int        `json:"obs_num_ems"`
	Steps     []struct {
		EMS      int         `json:"ems"`
		Item     int         `json:"item"`
		Dense    float32     `json:"reward_dense"`
		Sparse   float32     `json:"reward_sparse"`
		Done     bool        `json:"done"`
		Slots    []*[6]int32 `json:"ems_slots"`
		Order    []int32     `json:"order"`
		Valid    [][2]int    `json:"valid"`
		Placed   []int       `json:"placed"`
		Location [][3]int32  `json:"location"`
	} `json:"steps"`
}

func (ep *binEpisode) rules(t *testing.T, reward, overflow string) *envs.BinPack {
	in := map[string]any{
		"max_num_items": len(ep.Items), "obs_num_ems": ep.ObsNumEMS, "max_num_ems": ep.MaxNumEMS,
		"ems_overflow": overflow, "normalize": false, "reward": reward,
		"instance": map[string]any{"container": ep.Container, "items": ep.real()},
	}
	b, err := json.Marshal(in)
	require.NoError(t, err)
	return makeEnv(t, "BinPack-v0", string(b)).Rules().(*envs.BinPack)
}

func (ep *binEpisode) real() (out [][3]int32) {
	for i, ok := range ep.ItemsMask {
		if ok {
			out = append(out, ep.Items[i])
		}
	}
	return out
}

// TestBinPackIsJumanjis plays jumanji's recorded episodes: slots of EMS, their order, masks, places,
// rewards and ends are equal after every step, with its buffer that overflows and with one that grows.
func TestBinPackIsJumanjis(t *testing.T) {
	data, err := os.ReadFile("testdata/binpack.json")
	require.NoError(t, err)
	var episodes []binEpisode
	require.NoError(t, json.Unmarshal(data, &episodes))
	steps := 0
	for _, ep := range episodes {
		for _, overflow := range []string{"jumanji", "grow"} {
			if overflow == "grow" && ep.MaxNumEMS < 60 {
				continue // that one overflows
			}
			t.Run(ep.Name+" "+overflow, func(t *testing.T) {
				dense, sparse := ep.rules(t, "dense", overflow), ep.rules(t, "sparse", overflow)
				var a, b envs.BinPackState
				dense.Reset(&a, 0)
				sparse.Reset(&b, 0)
				for k, want := range ep.Steps {
					action := int32(want.Item*ep.ObsNumEMS + want.EMS)
					got, late := dense.Step(&a, action), sparse.Step(&b, action)
					require.Equal(t, want.Dense, got.Reward, "step %d: dense reward", k)
					require.InDelta(t, want.Sparse, late.Reward, 6e-8, "step %d: sparse reward", k)
					require.Equal(t, want.Done, got.Terminated, "step %d: done", k)
					checkPacking(t, dense, &a, &ep, k)
					steps++
				}
			})
		}
	}
	require.Greater(t, steps, 200)
}

func checkPacking(t *testing.T, g *envs.BinPack, s *envs.BinPackState, ep *binEpisode, k int) {
	want := &ep.Steps[k]
	slots := s.Slots()
	for i, box := range want.Slots {
		expected := [6]int32{}
		if box != nil {
			expected = *box
		}
		got := [6]int32{}
		if i < len(slots) {
			got = slots[i]
		}
		require.Equal(t, expected, got, "step %d: slot %d", k, i)
	}
	require.Equal(t, want.Order[:len(s.Order())], s.Order(), "step %d: order", k)
	legal, expected := make([]bool, g.Spec().NumActions), make([]bool, g.Spec().NumActions)
	for _, v := range want.Valid { // EMS first
		expected[v[1]*ep.ObsNumEMS+v[0]] = !want.Done
	}
	g.Mask(s, legal)
	require.Equal(t, expected, legal, "step %d: mask", k)
	for i, spot := range s.Spots() {
		require.Equal(t, want.Placed[i] == 1, spot[0] >= 0, "step %d: item %d", k, i)
		if spot[0] >= 0 {
			require.Equal(t, want.Location[i], spot, "step %d: item %d", k, i)
		}
	}
}

// TestBinPackSpaces compares the EMS of random packings in small containers with all maximal empty boxes,
// found by trying every box.
func TestBinPackSpaces(t *testing.T) {
	rnd := rng.New(11)
	for seed := range uint64(40) {
		g := makeEnv(t, "BinPack-v0", `{"container":[6,5,4],"max_num_items":9,"obs_num_ems":30,"split_eps":0}`).Rules().(*envs.BinPack)
		var s envs.BinPackState
		g.Reset(&s, seed)
		legal := make([]bool, g.Spec().NumActions)
		for {
			want := maximalBoxes([3]int32{6, 5, 4}, &s)
			got := map[[6]int32]bool{}
			for _, b := range s.Slots() {
				if b != [6]int32{} {
					got[b] = true
				}
			}
			require.Equal(t, want, got)
			g.Mask(&s, legal)
			var choices []int32
			for a, ok := range legal {
				if ok {
					choices = append(choices, int32(a))
				}
			}
			if len(choices) == 0 {
				break
			}
			g.Step(&s, choices[rnd.IntN(len(choices))])
		}
	}
}

// maximalBoxes lists the boxes of whole cells that are free and can't grow.
func maximalBoxes(c [3]int32, s *envs.BinPackState) map[[6]int32]bool {
	var taken [6][5][4]bool
	each := func(lo, hi [3]int32, f func(*bool) bool) bool {
		for x := lo[0]; x < hi[0]; x++ {
			for y := lo[1]; y < hi[1]; y++ {
				for z := lo[2]; z < hi[2]; z++ {
					if !f(&taken[x][y][z]) {
						return false
					}
				}
			}
		}
		return true
	}
	for i, at := range s.Spots() {
		if at[0] >= 0 {
			size := s.Items()[i]
			each(at, [3]int32{at[0] + size[0], at[1] + size[1], at[2] + size[2]}, func(b *bool) bool { *b = true; return true })
		}
	}
	free := func(lo, hi [3]int32) bool {
		for k := range 3 {
			if lo[k] < 0 || hi[k] > c[k] {
				return false
			}
		}
		return each(lo, hi, func(b *bool) bool { return !*b })
	}
	out := map[[6]int32]bool{}
	var lo, hi [3]int32
	for lo[0] = range c[0] {
		for lo[1] = range c[1] {
			for lo[2] = range c[2] {
				for hi[0] = lo[0] + 1; hi[0] <= c[0]; hi[0]++ {
					for hi[1] = lo[1] + 1; hi[1] <= c[1]; hi[1]++ {
						for hi[2] = lo[2] + 1; hi[2] <= c[2]; hi[2]++ {
							if free(lo, hi) && !canGrow(lo, hi, free) {
								out[[6]int32{lo[0], lo[1], lo[2], hi[0], hi[1], hi[2]}] = true
							}
						}
					}
				}
			}
		}
	}
	return out
}

func canGrow(lo, hi [3]int32, free func(lo, hi [3]int32) bool) bool {
	for k := range 3 {
		l, h := lo, hi
		l[k]--
		h[k]++
		if free(l, hi) || free(lo, h) {
			return true
		}
	}
	return false
}

// TestBinPackSolution packs every item of random problems, and of the toy one, as the solution says.
func TestBinPackSolution(t *testing.T) {
	for _, kw := range []string{`{"generator":"toy","obs_num_ems":100}`, `{"obs_num_ems":100,"max_num_items":30,"split_num_same_items":4}`} {
		g := makeEnv(t, "BinPack-v0", kw).Rules().(*envs.BinPack)
		var s envs.BinPackState
		for seed := range uint64(10) {
			g.Reset(&s, seed)
			n, reward := len(s.Items()), float32(0)
			for range n {
				o := g.Step(&s, solutionStep(t, g, &s))
				reward += o.Reward
				if o.Terminated {
					break
				}
			}
			require.InDelta(t, 1, reward, 1e-5, "the solution leaves room")
		}
	}
}

// solutionStep finds an item whose place in the solution is the corner of an observed EMS that holds it.
func solutionStep(t *testing.T, g *envs.BinPack, s *envs.BinPackState) int32 {
	legal := make([]bool, g.Spec().NumActions)
	g.Mask(s, legal)
	for i, at := range g.Solution(s) {
		if s.Spots()[i][0] >= 0 {
			continue
		}
		for e, slot := range s.Order() {
			b := s.Slots()[slot]
			if legal[i*100+e] && [3]int32(b[:3]) == at {
				return int32(i*100 + e)
			}
		}
	}
	require.Fail(t, "no item of the solution has its corner free")
	return 0
}

func TestBinPackCSV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items.csv")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	kw, err := json.Marshal(map[string]any{"csv_path": path, "container": []int{10, 10, 10}})
	require.NoError(t, err)
	var keywords envs.Keywords
	require.NoError(t, json.Unmarshal(kw, &keywords))
	write("Item_Name,Length,Width,Height,Quantity\nsmall,1,2,3,2\nlarge,4, 5,6,1\n")
	env, err := envs.Make("BinPack-v0", keywords)
	require.NoError(t, err)
	var s envs.BinPackState
	env.Rules().(*envs.BinPack).Reset(&s, 0)
	require.Equal(t, [][3]int32{{1, 2, 3}, {1, 2, 3}, {4, 5, 6}}, s.Items())
	for text, want := range map[string]string{
		"Item_Name,Length,Width,Quantity\na,1,2,3\n":         "no column Height",
		"Item_Name,Length,Width,Height,Quantity\na,1,x,3,1":  `items.csv:2: Width is "x"`,
		"Item_Name,Length,Width,Height,Quantity\na,1,0,3,1":  `Width is "0"`,
		"Item_Name,Length,Width,Height,Quantity\na,1,1,1,2k": `Quantity is "2k"`,
		"Item_Name,Length,Width,Height,Quantity\n":           "0 items",
		"": "EOF",
	} {
		write(text)
		_, err := envs.Make("BinPack-v0", keywords)
		require.ErrorIs(t, err, envs.ErrKeyword)
		require.ErrorContains(t, err, want)
	}
}

// TestBinPackForgedBytes decodes states that play can't reach.
func TestBinPackForgedBytes(t *testing.T) {
	env := makeEnv(t, "BinPack-v0", `{"container":[6,5,4],"max_num_items":3,"obs_num_ems":4}`)
	a := env.NewArena(2)
	a.Reset([]int32{0}, nil, []uint64{1})
	good := a.AppendState(nil, 0)
	require.NoError(t, a.DecodeState(1, good))
	at := len(good) - 4 - 16 - 1 - 4 - 4 // volume, after the slots
	forge := func(change func(b []byte)) error {
		b := slices.Clone(good)
		change(b)
		return a.DecodeState(1, envs.Reseal(b))
	}
	err := forge(func(b []byte) { binary.LittleEndian.PutUint32(b[at:], math.Float32bits(0.9)) })
	require.ErrorContains(t, err, "volume 0.9; the items that are placed have 0")
	err = forge(func(b []byte) { b[at-4]++ }) // the container's height in its own slot
	require.ErrorContains(t, err, "is no space in the container")
	twice := slices.Concat(good[:at-28], []byte{2, 0, 0, 0}, good[at-24:at], good[at-24:at], good[at:])
	require.ErrorContains(t, a.DecodeState(1, envs.Reseal(twice)), "one lies within the other")
	many := slices.Concat(good[:at-28], []byte{0, 0x20, 0, 0}, bytes.Repeat(good[at-24:at], 0x2000), good[at:])
	require.ErrorContains(t, a.DecodeState(1, envs.Reseal(many)), "8192 slots of empty space; want at most 4096")
}
