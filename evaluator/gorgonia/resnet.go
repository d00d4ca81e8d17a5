package gorgonia

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
)

// A resnet is AlphaZero's network (Silver et al. 2017) without batch normalisation: a convolution, blocks of
// two convolutions around which their input is carried, and two heads, each a convolution of one cell and dense
// layers. What normalisation does, the first weights do (Fixup, Zhang et al. 2019): the second convolution of a
// block is zero at first, so that blocks pass on what they get, and the first is scaled down by the square
// root of the number of blocks. Training and use are then the same function, and rows don't see each other.

func (c *Config) validateResNet() error {
	if len(c.Board) != 3 || c.Board[0] < 1 || c.Board[1] < 1 || c.Board[2] < 1 ||
		slices.Max(c.Board) > maxWidth || c.Board[0]*c.Board[1]*c.Board[2] != c.Inputs {
		return fmt.Errorf("%w: board %v; want [rows, cols, planes] of inputs=%d numbers", ErrConfig, c.Board, c.Inputs)
	}
	if c.Blocks < 0 || c.Blocks > 100 {
		return fmt.Errorf("%w: blocks is %d; want 0 to 100", ErrConfig, c.Blocks)
	}
	for _, w := range []struct {
		name  string
		value int
	}{{"channels", c.Channels}, {"head", c.Head}, {"value", c.Value}} {
		if err := inWidth(w.name, w.value, 1); err != nil {
			return err
		}
	}
	return nil
}

// kernel is the size of the tower's kernels.
const kernel = 3

func (c *Config) resnetLayers() []layer {
	taps, cells := kernel*kernel, c.Board[0]*c.Board[1]
	in := taps * c.Channels
	out := []layer{{"stem", taps * c.Board[2], c.Channels, he(taps * c.Board[2])}}
	for i := range c.Blocks {
		out = append(out,
			layer{fmt.Sprintf("block%d.conv0", i), in, c.Channels, he(in) / math.Sqrt(float64(c.Blocks))},
			layer{fmt.Sprintf("block%d.conv1", i), in, c.Channels, 0})
	}
	flat := cells * c.Head
	return append(out,
		layer{"policy.conv", c.Channels, c.Head, he(c.Channels)},
		layer{"policy.linear", flat, c.Actions, outputStd(flat)},
		layer{"value.conv", c.Channels, c.Head, he(c.Channels)},
		layer{"value.linear0", flat, c.Value, he(flat)},
		layer{"value.linear1", c.Value, 1, outputStd(c.Value)})
}

// resnet builds the network.
func (b *builder) resnet(x *gorgonia.Node) *gorgonia.Node {
	c := b.cfg
	x = b.conv(x, kernel, c.Board[2], c.Channels, nil, true)
	for range c.Blocks {
		h := b.conv(x, kernel, c.Channels, c.Channels, nil, false)
		x = b.conv(h, kernel, c.Channels, c.Channels, x, false)
	}
	policy := b.linear(b.conv(x, 1, c.Channels, c.Head, nil, false), false, false)
	value := b.linear(b.conv(x, 1, c.Channels, c.Head, nil, false), true, false)
	return b.apply(newJoin(), policy, b.linear(value, false, false))
}
