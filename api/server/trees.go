package server

import (
	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/search/tree"
)

// treeArrays are the trees of all rows, one after the other.
type treeArrays struct {
	visits, parents, actions                []int32
	values, raw                             []float32
	terminal, chance                        []bool
	index, childVisits                      []int32
	rewards, discounts, childValues, priors []float32
}

func (t *treeArrays) add(x *tree.Export) {
	t.visits = append(t.visits, x.NodeVisits...)
	t.parents = append(t.parents, x.Parents...)
	t.actions = append(t.actions, x.ActionFromParent...)
	t.values = append(t.values, x.NodeValues...)
	t.raw = append(t.raw, x.NodeRawValues...)
	t.terminal = append(t.terminal, x.Terminal...)
	t.chance = append(t.chance, x.Chance...)
	t.index = append(t.index, x.ChildrenIndex...)
	t.childVisits = append(t.childVisits, x.ChildrenVisits...)
	t.rewards = append(t.rewards, x.ChildrenRewards...)
	t.discounts = append(t.discounts, x.ChildrenDiscounts...)
	t.childValues = append(t.childValues, x.ChildrenValues...)
	t.priors = append(t.priors, x.ChildrenPriorLogits...)
}

// tensors are the arrays [B, N] and [B, N, A], by mctx's names.
func (t *treeArrays) tensors(rows, nodes, width int) (out []*pb.Tensor) {
	put := func(name string, x *pb.Tensor) {
		x.Name = name
		out = append(out, x)
	}
	put("node_visits", wire.Of(t.visits, rows, nodes))
	put("node_values", wire.Of(t.values, rows, nodes))
	put("raw_values", wire.Of(t.raw, rows, nodes))
	put("parents", wire.Of(t.parents, rows, nodes))
	put("action_from_parent", wire.Of(t.actions, rows, nodes))
	put("children_index", wire.Of(t.index, rows, nodes, width))
	put("children_visits", wire.Of(t.childVisits, rows, nodes, width))
	put("children_rewards", wire.Of(t.rewards, rows, nodes, width))
	put("children_discounts", wire.Of(t.discounts, rows, nodes, width))
	put("children_values", wire.Of(t.childValues, rows, nodes, width))
	put("children_prior_logits", wire.Of(t.priors, rows, nodes, width))
	put("terminal", wire.Of(t.terminal, rows, nodes))
	put("chance", wire.Of(t.chance, rows, nodes))
	return out
}
