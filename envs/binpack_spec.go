package envs

import (
	"fmt"
	"math"
	"strings"
)

// binMaxItems bounds the items of a problem.
const binMaxItems = 1000

const binPackID = "BinPack-v0"

// BinPackConfig holds the keywords.
type BinPackConfig struct {
	MaxNumItems       *int             `json:"max_num_items" default:"null" doc:"places for items, 1 to 1000; null means 20, or as many as csv and instance have"`
	ObsNumEMS         int              `json:"obs_num_ems" default:"40" doc:"observed empty spaces, the largest ones, 1 to 1000"`
	MaxNumEMS         int              `json:"max_num_ems" default:"0" doc:"slots for empty spaces unless ems_overflow=\"grow\"; 0 means obs_num_ems"`
	EMSOverflow       string           `json:"ems_overflow" default:"\"grow\"" doc:"when slots run out: \"grow\" (to 4096), \"jumanji\" (overwrite the first) or \"drop_smallest\""`
	Reward            string           `json:"reward" default:"\"dense\"" doc:"\"dense\" (share of the container for each item) or \"sparse\" (used share at the end)"`
	Invalid           string           `json:"invalid" default:"\"end\"" doc:"an action that can't be: \"end\" ends the episode, \"error\" refuses it"`
	Normalize         bool             `json:"normalize" default:"true" doc:"lengths as shares of the container, float32; else integers"`
	Container         [3]int32         `json:"container" default:"[5870, 2330, 2200]" doc:"lengths of the container of random and csv, 1 to 1000000 each"`
	Generator         string           `json:"generator" default:"\"random\"" doc:"\"random\", \"toy\", \"csv\" or \"instance\""`
	SplitEps          float64          `json:"split_eps" default:"0.3" doc:"random: least share of a box on either side of a cut, 0 to 0.5"`
	ProbSplitOneItem  float64          `json:"prob_split_one_item" default:"0.7" doc:"random: chance of one cut anywhere in place of equal parts, 0 to 1"`
	SplitNumSameItems int              `json:"split_num_same_items" default:"2" doc:"random: most equal parts, 1 to max_num_items"`
	CSVPath           string           `json:"csv_path" file:"true" default:"\"\"" doc:"csv: file with the columns Item_Name,Length,Width,Height,Quantity"`
	Instance          *BinPackInstance `json:"instance" default:"null" doc:"instance: {\"container\": [x, y, z], \"items\": [[x, y, z], ...]}, and if known \"solution\""`
	ShowSolution      bool             `json:"show_solution" default:"false" doc:"info[\"solution\"]: where each item lies in a known packing of all, -1 if unknown"`
}

// NewBinPack checks the keywords and returns the rules.
func NewBinPack(c BinPackConfig) (*BinPack, error) {
	if c.Instance != nil && c.Generator == "random" {
		c.Generator = "instance"
	}
	if c.CSVPath != "" && c.Generator == "random" {
		c.Generator = "csv"
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	g := &BinPack{container: c.Container, ems: c.ObsNumEMS}
	if err := g.prepare(&c); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeyword, binPackID, err)
	}
	if c.MaxNumEMS == 0 {
		c.MaxNumEMS = c.ObsNumEMS
	}
	if g.fixed == nil {
		if err := inRange(binPackID, "split_num_same_items", c.SplitNumSameItems, 1, g.items); err != nil {
			return nil, err
		}
	}
	g.c = c
	g.keywords = g.describe()
	return g, nil
}

func (c *BinPackConfig) validate() error {
	for _, err := range []error{
		inRange(binPackID, "obs_num_ems", c.ObsNumEMS, 1, 1000),
		inRange(binPackID, "max_num_ems", c.MaxNumEMS, 0, binMaxSlots),
		oneOf(binPackID, "ems_overflow", c.EMSOverflow, "grow", "jumanji", "drop_smallest"),
		oneOf(binPackID, "reward", c.Reward, "dense", "sparse"), oneOf(binPackID, "invalid", c.Invalid, "end", "error"),
		oneOf(binPackID, "generator", c.Generator, "random", "toy", "csv", "instance"),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case !(c.SplitEps >= 0 && c.SplitEps <= 0.5):
		return fmt.Errorf("%w: %s: split_eps=%g; want 0 to 0.5", ErrKeyword, binPackID, c.SplitEps)
	case !(c.ProbSplitOneItem >= 0 && c.ProbSplitOneItem <= 1):
		return fmt.Errorf("%w: %s: prob_split_one_item=%g; want 0 to 1", ErrKeyword, binPackID, c.ProbSplitOneItem)
	case c.Generator == "csv" && c.CSVPath == "", c.Generator == "instance" && c.Instance == nil:
		return fmt.Errorf("%w: %s: generator=%q needs csv_path or instance", ErrKeyword, binPackID, c.Generator)
	}
	return nil
}

// prepare makes the fixed problem, if there is one, and counts the places for items.
func (g *BinPack) prepare(c *BinPackConfig) (err error) {
	switch c.Generator {
	case "toy":
		g.fixed = toyProblem()
	case "csv":
		items, err := readItems(c.CSVPath)
		if err != nil {
			return err
		}
		if g.fixed, err = (&BinPackInstance{Container: c.Container, Items: items}).problem(); err != nil {
			return fmt.Errorf("%s: %w", c.CSVPath, err)
		}
	case "instance":
		if g.fixed, err = c.Instance.problem(); err != nil {
			return fmt.Errorf("instance: %w", err)
		}
	}
	least := 1
	g.items = 20
	if g.fixed != nil {
		g.container = g.fixed.container
		least = len(g.fixed.items)
		g.items = least
	}
	if c.MaxNumItems != nil {
		g.items = *c.MaxNumItems
	}
	if g.items < least || g.items > binMaxItems {
		return fmt.Errorf("max_num_items=%d; want %d to %d", g.items, least, binMaxItems)
	}
	return positive("container", g.container)
}

// describe lists the keywords in force; a fixed problem by its hash.
func (g *BinPack) describe() string {
	c := &g.c
	s := fmt.Sprintf("generator=%s max_num_items=%d obs_num_ems=%d ems_overflow=%s reward=%s invalid=%s normalize=%v "+
		"container=%v show_solution=%v", c.Generator, g.items, g.ems, c.EMSOverflow, c.Reward, c.Invalid, c.Normalize,
		g.container, c.ShowSolution)
	if c.EMSOverflow != "grow" {
		s += fmt.Sprintf(" max_num_ems=%d", c.MaxNumEMS)
	}
	if g.fixed != nil {
		return s + fmt.Sprintf(" problem=%016x", g.fixed.key)
	}
	return s + fmt.Sprintf(" split_eps=%g prob_split_one_item=%g split_num_same_items=%d", c.SplitEps,
		c.ProbSplitOneItem, c.SplitNumSameItems)
}

// Spec describes the problem. EMS have x1, x2, y1, y2, z1, z2; the largest come first.
func (g *BinPack) Spec() Spec {
	zero, one := []float64{0}, []float64{1}
	dtype, top := Float32, one
	if !g.c.Normalize {
		dtype, top = Int32, []float64{binMaxLength}
	}
	i, e := g.items, g.ems
	s := Spec{
		ID: binPackID, Version: 1, Keywords: g.keywords,
		Obs: []ArraySpec{
			{Name: "ems", DType: dtype, Shape: []int{e, 6}, Low: zero, High: top},
			{Name: "ems_mask", DType: Bool, Shape: []int{e}, Low: zero, High: one},
			{Name: "items", DType: dtype, Shape: []int{i, 3}, Low: zero, High: top},
			{Name: "items_mask", DType: Bool, Shape: []int{i}, Low: zero, High: one},
			{Name: "items_placed", DType: Bool, Shape: []int{i}, Low: zero, High: one},
		},
		Info: []ArraySpec{
			{Name: "volume_utilization", DType: Float32, Low: zero, High: one},
			{Name: "packed_items", DType: Int32, Low: zero, High: []float64{float64(i)}},
			{Name: "ratio_packed_items", DType: Float32, Low: zero, High: one},
			{Name: "active_ems", DType: Int32, Low: zero, High: []float64{math.MaxInt32}},
			{Name: "ems_overflow", DType: Int32, Low: zero, High: []float64{math.MaxInt32}},
			{Name: "invalid_action", DType: Bool, Low: zero, High: one},
		},
		NumActions: i * e, NumPlayers: 1, RewardHigh: 1.0001, // sums of float32 shares may pass 1
		AnyAction:     g.c.Invalid == "end",
		Factorization: Factorization{Names: []string{"item", "ems"}, Sizes: []int{i, e}},
	}
	if g.c.ShowSolution {
		s.Info = append(s.Info, ArraySpec{
			Name: "solution", DType: Int32, Shape: []int{i, 3}, Low: []float64{-1}, High: []float64{binMaxLength},
		})
	}
	return s
}

// Observe writes the largest EMS and all items.
func (g *BinPack) Observe(s *BinPackState, row Row) {
	mask, real, placed := row.Bool(1), row.Bool(3), row.Bool(4)
	g.observeEMS(s, row, mask)
	for i := range g.items {
		real[i] = i < len(s.spots)
		placed[i] = real[i] && s.spots[i][0] != notPlaced
		size := [3]int32{}
		if real[i] {
			size = s.problem.items[i]
		}
		for k := range 3 {
			g.length(s, row, 2, 3*i+k, size[k], k)
		}
	}
}

func (g *BinPack) observeEMS(s *BinPackState, row Row, mask []bool) {
	for e := range g.ems {
		b := binBox{}
		if mask[e] = e < len(s.order); mask[e] {
			b = s.ems[s.order[e]]
		}
		for k := range 3 {
			g.length(s, row, 0, 6*e+2*k, b.lo[k], k)
			g.length(s, row, 0, 6*e+2*k+1, b.hi[k], k)
		}
	}
}

// length writes a length along an axis to element i of observation array k.
func (g *BinPack) length(s *BinPackState, row Row, k, i int, v int32, axis int) {
	if g.c.Normalize {
		row.Float32(k)[i] = float32(v) / float32(s.problem.container[axis])
	} else {
		row.Int32(k)[i] = v
	}
}

// Info writes how full the container is.
func (g *BinPack) Info(s *BinPackState, row Row) {
	active := int32(0)
	for i := range s.ems {
		if !s.ems[i].empty() {
			active++
		}
	}
	row.Float32(0)[0] = min(s.volume, 1)
	row.Int32(1)[0] = s.packed
	row.Float32(2)[0] = float32(s.packed) / float32(len(s.spots))
	row.Int32(3)[0] = active
	row.Int32(4)[0] = s.overflow
	row.Bool(5)[0] = s.invalid
	if !g.c.ShowSolution {
		return
	}
	out := row.Int32(6)
	for i := range out {
		out[i] = -1
	}
	for i, at := range s.problem.solution {
		copy(out[3*i:], at[:])
	}
}

// Text lists the items and where they lie.
func (g *BinPack) Text(s *BinPackState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "container %v, %.1f %% full, %d of %d items, %d spaces observed\n", s.problem.container,
		100*s.volume, s.packed, len(s.spots), len(s.order))
	for i, spot := range s.spots {
		fmt.Fprintf(&b, "item %2d %v", i, s.problem.items[i])
		if spot[0] != notPlaced {
			fmt.Fprintf(&b, " at %v", spot)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
