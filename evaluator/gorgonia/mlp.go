package gorgonia

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// An mlp is dense layers with relu between them; the last one gives the logits and the value.

func (c *Config) validateMLP() error {
	if len(c.Hidden) < 1 {
		return fmt.Errorf("%w: hidden is empty; want the width of at least one layer", ErrConfig)
	}
	for i, h := range c.Hidden {
		if err := inWidth(fmt.Sprintf("hidden[%d]", i), h, 1); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) mlpLayers() (out []layer) {
	widths := slices.Concat([]int{c.Inputs}, c.Hidden, []int{c.Actions + 1})
	for i := range len(widths) - 1 {
		l := layer{fmt.Sprintf("layer%d", i), widths[i], widths[i+1], he(widths[i])}
		if i == len(c.Hidden) {
			l.std = outputStd(l.in)
		}
		out = append(out, l)
	}
	return out
}

// mlp builds the network.
func (b *builder) mlp(x *gorgonia.Node) *gorgonia.Node {
	for i := range len(b.cfg.Hidden) {
		x = b.linear(x, true, i == 0)
	}
	return b.linear(x, false, false)
}
