package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/azserve/azserve/internal/atomicfile"
	"github.com/azserve/azserve/internal/vecmath"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/search/inspect"
	"github.com/azserve/azserve/search/tree"
	"github.com/spf13/cobra"
)

// searchFlags are the settings of one search.
type searchFlags struct {
	envFlags
	moves, model, policy string
	simulations          int
	seed                 uint64
	noise, solve         bool
	tree                 string
	treeNodes            int
	settings             []string
}

func newSearch() *cobra.Command {
	f := &searchFlags{}
	cmd := &cobra.Command{
		Use: "search ENV", Short: "Search a position and print its actions: prior, visits, Q",
		Long: "Search a position and print its actions: prior, visits, Q.\n\nSettings for --set: " +
			strings.Join(search.Settings(), ", ") + ".",
		Example: "  azserve search ConnectFour-v0 --moves 3,3,2 --simulations 800\n" +
			"  azserve search TicTacToe-v0 --model runs/TicTacToe-v0-1/model",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.moves, "moves", "", "moves from the start, by name or number, separated by commas or spaces")
	fl.StringVar(&f.model, "model", "uniform", "evaluator: "+named.Known)
	fl.StringVar(&f.policy, "policy", "gumbel", "alphazero, muzero, gumbel, stochastic (where there is chance) or uct")
	fl.IntVar(&f.simulations, "simulations", 256, "simulations of the search")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of all random numbers")
	fl.StringVar(&f.tree, "tree", "", "write the most visited part of the tree to this file: .json, .dot or .svg")
	fl.IntVar(&f.treeNodes, "tree-nodes", 100, "about how many nodes --tree shows")
	fl.BoolVar(&f.solve, "solve", false, "prove wins, losses and draws, and stop when the root is proven")
	fl.StringArrayVar(&f.settings, "set", nil,
		"further setting of the search as NAME=VALUE, such as lcb=5, leaves_per_step=8 or max_nodes=10000; may be repeated")
	fl.BoolVar(&f.noise, "noise", false, "add the policy's root noise, as self-play does")
	return cmd
}

func (f *searchFlags) run(ctx context.Context, w io.Writer, id string) error {
	b, err := f.openFor(id, f.simulations)
	if err != nil {
		return err
	}
	defer b.close()
	ev, free, err := named.Open(f.model, b.env)
	if err != nil {
		return fmt.Errorf("%w: --model: %w", errUsage, err)
	}
	defer free()
	state, err := f.position(b)
	if err != nil {
		return err
	}
	cfg, err := f.config(b.env.Spec())
	if err != nil {
		return err
	}
	roots := &search.Roots{States: []int32{state}, Seeds: []uint64{f.seed}}
	s, err := search.New(b.store, roots, cfg, ev.Needs())
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Run(ctx, ev); err != nil {
		return err
	}
	out := search.NewResult(1, b.env.Spec().NumActions)
	if err := s.Result(out); err != nil {
		return err
	}
	x := s.Tree(0).Export()
	if f.tree != "" {
		if err := f.writeTree(b, state, x); err != nil {
			return err
		}
	}
	return f.print(w, b, state, x, out)
}

// config returns the settings of the search: the policy's, those that have flags, and those of --set.
func (f *searchFlags) config(spec *envs.Spec) (search.Config, error) {
	cfg := search.Default(tree.Policy(f.policy), spec)
	cfg.NumSimulations, cfg.Solve, cfg.KeepLogits = f.simulations, f.solve, true
	if !f.noise {
		cfg.DirichletFraction, cfg.GumbelScale, cfg.Temperature = 0, 0, 0
	}
	given, err := keywords("set", f.settings)
	if err != nil {
		return cfg, err
	}
	if err := cfg.Apply(given); err != nil {
		return cfg, fmt.Errorf("%w: --set: %w", errUsage, err)
	}
	return cfg, nil
}

// writeTree writes the most visited part of a tree.
func (f *searchFlags) writeTree(b *bench, state int32, x *tree.Export) error {
	n := inspect.Build(x, inspect.Options{MaxNodes: f.treeNodes, Name: func(path []int32, action int32) string {
		return b.nameAfter(state, path, action)
	}})
	write := map[string]func(io.Writer) error{".json": n.WriteJSON, ".dot": n.WriteDOT, ".svg": n.WriteSVG}
	ext := filepath.Ext(f.tree)
	if write[ext] == nil {
		return fmt.Errorf("%w: --tree %s; want a name that ends in .json, .dot or .svg", errUsage, f.tree)
	}
	var buffer bytes.Buffer
	if err := write[ext](&buffer); err != nil {
		return err
	}
	return atomicfile.Write(f.tree, buffer.Bytes())
}

// position plays the moves.
func (f *searchFlags) position(b *bench) (int32, error) {
	state, err := b.start(f.seed)
	if err != nil {
		return 0, err
	}
	split := func(r rune) bool { return r == ',' || r == ' ' }
	for i, move := range strings.FieldsFunc(f.moves, split) {
		action, err := b.parseAction(state, move)
		if err != nil {
			return 0, fmt.Errorf("move %d: %w", i+1, err)
		}
		if state, _, _, err = b.step(state, action); err != nil {
			return 0, err
		}
	}
	return state, nil
}

// print shows the position and its actions, the most visited first.
func (f *searchFlags) print(w io.Writer, b *bench, state int32, x *tree.Export, out *search.Result) error {
	text, err := b.store.Text(state)
	if err != nil {
		return err
	}
	actions, names, err := b.legal(state)
	if err != nil {
		return err
	}
	fmt.Fprint(w, text)
	if len(actions) == 0 {
		fmt.Fprintln(w, "The game is over here.")
		return nil
	}
	prior := make([]float32, b.env.Spec().NumActions)
	vecmath.Softmax(x.ChildrenPriorLogits[:len(prior)], prior)
	order := make([]int, len(actions))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool {
		return out.Visits[actions[order[i]]] > out.Visits[actions[order[j]]]
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "action\tprior\tvisits\tQ\tpolicy\t")
	for _, i := range order {
		a := actions[i]
		q := "-"
		if out.Visits[a] > 0 {
			q = fmt.Sprintf("%+.4f", out.QValues[a])
		}
		fmt.Fprintf(t, "%s\t%.4f\t%d\t%s\t%.4f\t\n", names[i], prior[a], out.Visits[a], q, out.Weights[a])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	name, err := b.store.ActionName(state, out.Action[0])
	if err != nil {
		return err
	}
	if out.Stats.Proven > 0 {
		result := map[bool]string{true: "win", false: "loss"}[out.Value[0] > 0]
		if out.Value[0] == 0 {
			result = "draw"
		}
		fmt.Fprintf(w, "proven: a %s for the player to move, after %d simulations\n", result, out.Stats.Simulations)
	}
	fmt.Fprintf(w, "chosen %s, value %+.4f for the player to move (evaluator %+.4f)\n", name, out.Value[0], out.Raw[0])
	st := &out.Stats
	fmt.Fprintf(w, "%d simulations, %d states evaluated in %d batches, depth %d\n", st.Simulations, st.Evaluations,
		st.Batches, st.MaxDepth)
	return nil
}
