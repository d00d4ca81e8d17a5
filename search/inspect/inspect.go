// Package inspect shows a search tree: as nested JSON, as a graph for Graphviz (DOT), and as a drawing
// (SVG). All three show the most visited part of the tree.
package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/search/tree"
)

// Options say what to show.
type Options struct {
	MaxNodes int // the most visited ones; 0 means 100
	MaxDepth int // edges from the root; 0 means no limit
	// Name returns how people write an action at a node, given the actions that lead there; nil numbers
	// them.
	Name func(path []int32, action int32) string
}

// Node is a node with what leads to it and what is below.
type Node struct {
	Action   string  `json:"action,omitempty"` // that leads here; empty at the root
	Visits   int32   `json:"visits"`
	Prior    float32 `json:"prior"`         // of the action, 0 to 1
	Q        float32 `json:"q"`             // of the action, from its mover's view
	Reward   float32 `json:"reward"`        // of the action, to its mover
	Value    float32 `json:"value"`         // mean value, from the view of the player to move here
	Raw      float32 `json:"raw_value"`     // the evaluator's
	End      bool    `json:"end,omitempty"` // nothing can be played here, or its value is proven
	Omitted  int     `json:"omitted"`       // children that aren't shown
	Children []*Node `json:"children,omitempty"`
}

// Build returns the part of a tree that the options ask for, children by falling visits. The tree must
// have been searched with KeepLogits for its priors.
func Build(x *tree.Export, o Options) *Node {
	if o.MaxNodes == 0 {
		o.MaxNodes = 100
	}
	if o.Name == nil {
		o.Name = func(_ []int32, action int32) string { return fmt.Sprint(action) }
	}
	b := &builder{x: x, o: o, actions: len(x.ChildrenIndex) / len(x.NodeVisits)}
	b.least = b.threshold()
	return b.node(tree.Root, nil)
}

type builder struct {
	x       *tree.Export
	o       Options
	actions int
	least   int32 // nodes with fewer visits aren't shown
}

// threshold returns the visits of the last node that is still shown.
func (b *builder) threshold() int32 {
	visits := append([]int32(nil), b.x.NodeVisits...)
	sort.Slice(visits, func(i, j int) bool { return visits[i] > visits[j] })
	if b.o.MaxNodes >= len(visits) {
		return 1
	}
	return max(1, visits[b.o.MaxNodes-1])
}

func (b *builder) node(i int32, path []int32) *Node {
	x := b.x
	n := &Node{Visits: x.NodeVisits[i], Value: x.NodeValues[i], Raw: x.NodeRawValues[i], End: x.Terminal[i]}
	priors := b.priors(i)
	deep := b.o.MaxDepth > 0 && len(path) >= b.o.MaxDepth
	for a := range b.actions {
		at := int(i)*b.actions + a
		c := x.ChildrenIndex[at]
		if c < 0 {
			continue
		}
		if deep || x.NodeVisits[c] < b.least {
			n.Omitted++
			continue
		}
		child := b.node(c, append(slices.Clip(path), int32(a)))
		child.Action, child.Prior = b.name(i, path, int32(a)), priors[a]
		child.Reward = x.ChildrenRewards[at]
		child.Q = x.ChildrenRewards[at] + x.ChildrenDiscounts[at]*x.ChildrenValues[at]
		n.Children = append(n.Children, child)
	}
	sort.SliceStable(n.Children, func(i, j int) bool { return n.Children[i].Visits > n.Children[j].Visits })
	return n
}

// name returns what an action is called. Below a chance node the path is no list of actions any more, and
// actions are called as at the root.
func (b *builder) name(i int32, path []int32, action int32) string {
	if b.x.Chance[i] {
		return fmt.Sprint("outcome ", action)
	}
	for up := i; up != tree.Root; up = b.x.Parents[up] {
		if b.x.Chance[up] {
			path = nil
		}
	}
	return b.o.Name(path, action)
}

// priors returns the softmax of a node's logits.
func (b *builder) priors(i int32) []float32 {
	logits := b.x.ChildrenPriorLogits[int(i)*b.actions : (int(i)+1)*b.actions]
	out := make([]float32, len(logits))
	vecmath.Softmax(logits, out)
	return out
}

// WriteJSON writes the tree as nested JSON.
func (n *Node) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(n)
}

// WriteDOT writes the tree as a graph for Graphviz.
func (n *Node) WriteDOT(w io.Writer) error {
	var b strings.Builder
	b.WriteString("digraph search {\n  node [shape=box, fontname=\"sans-serif\"];\n")
	id := 0
	var walk func(n *Node) int
	walk = func(n *Node) int {
		own := id
		id++
		shape := ""
		if n.End {
			shape = ", style=filled, fillcolor=lightgrey"
		}
		fmt.Fprintf(&b, "  n%d [label=\"%d visits\\nvalue %+.3f\"%s];\n", own, n.Visits, n.Value, shape)
		for _, c := range n.Children {
			label := fmt.Sprintf("%s  p %.2f  q %+.2f", c.Action, c.Prior, c.Q)
			fmt.Fprintf(&b, "  n%d -> n%d [label=%q];\n", own, walk(c), label)
		}
		return own
	}
	walk(n)
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
