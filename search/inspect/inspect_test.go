package inspect_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/azserve/azserve/search/inspect"
	"github.com/azserve/azserve/search/tree"
	"github.com/stretchr/testify/require"
)

// small is a tree of one root with three actions, of which action 1 ends the game.
func small(t *testing.T) *tree.Export {
	cfg := tree.Default(tree.MuZero)
	cfg.NumSimulations, cfg.KeepLogits = 20, true
	params, err := tree.NewParams(cfg)
	require.NoError(t, err)
	tr := &tree.Tree{}
	tr.Reset(params, 3)
	tr.SetRoot(&tree.RootInput{Value: 0.1})
	var leaf [1]tree.Leaf
	for !tr.Done() {
		if tr.Select(leaf[:]) == 1 {
			tr.Apply(leaf[0], &tree.Evaluation{Discount: -1, Ended: leaf[0].Action == 1, Reward: float32(leaf[0].Action) / 9})
		}
	}
	return tr.Export()
}

func count(n *inspect.Node) int {
	total := 1
	for _, c := range n.Children {
		total += count(c)
	}
	return total
}

func TestBuild(t *testing.T) {
	x := small(t)
	all := inspect.Build(x, inspect.Options{})
	require.Equal(t, int32(21), all.Visits)
	require.Len(t, all.Children, 3)
	for i := 1; i < 3; i++ {
		require.GreaterOrEqual(t, all.Children[i-1].Visits, all.Children[i].Visits)
	}
	require.InDelta(t, 1.0/3, all.Children[0].Prior, 1e-6)
	nodes := 0
	for _, v := range x.NodeVisits {
		if v > 0 {
			nodes++
		}
	}
	require.Equal(t, nodes, count(all))
	shallow := inspect.Build(x, inspect.Options{MaxDepth: 1, Name: func(_ []int32, a int32) string { return string(rune('a' + a)) }})
	require.Equal(t, 4, count(shallow))
	require.Contains(t, "abc", shallow.Children[0].Action)
	few := inspect.Build(x, inspect.Options{MaxNodes: 3})
	require.LessOrEqual(t, count(few), nodes)
	require.Positive(t, few.Omitted+few.Children[0].Omitted)
}

func TestWrite(t *testing.T) {
	n := inspect.Build(small(t), inspect.Options{Name: func([]int32, int32) string { return `<"&` }})
	var b bytes.Buffer
	require.NoError(t, n.WriteJSON(&b))
	var back inspect.Node
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, n, &back)
	b.Reset()
	require.NoError(t, n.WriteDOT(&b))
	require.True(t, strings.HasPrefix(b.String(), "digraph search {"))
	require.Equal(t, count(n)-1, strings.Count(b.String(), "->"))
	b.Reset()
	require.NoError(t, n.WriteSVG(&b))
	d := xml.NewDecoder(&b)
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "the drawing is no XML")
	}
}
