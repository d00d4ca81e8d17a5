package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/evaluator/onnx"
	"github.com/azserve/azserve/pool"
	"github.com/azserve/azserve/statestore"
	"github.com/spf13/cobra"
)

func newEnvs() *cobra.Command {
	verbose := false
	cmd := &cobra.Command{
		Use: "envs", Short: "List the environments, their spaces and their keywords", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if verbose {
				machine(cmd.OutOrStdout())
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, id := range envs.IDs() {
				e, err := envs.Lookup(id)
				if err != nil {
					return err
				}
				describe(w, id, &e)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&verbose, "verbose", false,
		"say first which libraries networks run on, and how many CPUs there are")
	return cmd
}

// machine says what networks run on.
func machine(w io.Writer) {
	runtimeFile, err := onnx.Library()
	if err != nil {
		runtimeFile = err.Error()
	}
	fmt.Fprintf(w, "azserve on %s/%s, %d CPUs\nmatrix products: %s\nONNX Runtime: %s\n\n", runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), gorgonia.BLAS(), runtimeFile)
}

// describe prints an environment as rows of a table.
func describe(w *tabwriter.Writer, id string, e *envs.Entry) {
	shape := "made of its keywords"
	if env, err := envs.Make(id, nil); err == nil {
		s := env.Spec()
		shape = fmt.Sprintf("%d actions, %d player(s)", s.NumActions, s.NumPlayers)
		for _, a := range s.Obs {
			shape += fmt.Sprintf(", %s %v%v", a.Name, a.DType, a.Shape)
		}
	}
	fmt.Fprintf(w, "%s\t%s\t%s\n", id, e.Doc, shape)
	for _, k := range e.Keywords {
		def := "must be given"
		if k.Default != "" {
			def = "default " + k.Default
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", k.Name, k.Doc, def)
	}
}

// envFlags are the flags of every command about one environment.
type envFlags struct {
	args    []string
	threads int
}

func (f *envFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.args, "env-arg", nil,
		"keyword of the environment as NAME=VALUE, VALUE as JSON or plain text; may be repeated")
	cmd.Flags().IntVar(&f.threads, "threads", 0, "worker threads; 0 means all CPUs")
}

// keywords parses the values of a flag that is given as NAME=VALUE.
func keywords(flag string, args []string) (envs.Keywords, error) {
	kw := envs.Keywords{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%w: --%s %q; want NAME=VALUE", errUsage, flag, arg)
		}
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			quoted, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			raw = quoted
		}
		kw[name] = raw
	}
	return kw, nil
}

func (f *envFlags) make(id string) (*envs.Env, error) {
	kw, err := keywords("env-arg", f.args)
	if err != nil {
		return nil, err
	}
	return envs.Make(id, kw)
}

// bench is an environment with workers and a store, for one command.
type bench struct {
	env     *envs.Env
	workers *pool.Workers
	store   *statestore.Store
}

func (f *envFlags) open(id string) (*bench, error) { return f.openFor(id, 0) }

// openFor opens a store that has room for a search of so many simulations.
func (f *envFlags) openFor(id string, simulations int) (*bench, error) {
	env, err := f.make(id)
	if err != nil {
		return nil, err
	}
	threads, err := pool.Threads(f.threads, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	b := &bench{env: env}
	if b.workers, err = pool.NewWorkers(threads); err != nil {
		return nil, err
	}
	room := max(statestore.DefaultMaxStates, simulations+16)
	if b.store, err = statestore.New(env, statestore.Config{MaxStates: room}, b.workers); err != nil {
		b.workers.Close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	b.store.Close()
	b.workers.Close()
}

// start returns a first state.
func (b *bench) start(seed uint64) (int32, error) {
	var h [1]int32
	err := b.store.Reset(nil, []uint64{seed}, h[:])
	return h[0], err
}

// step replaces a state by what an action makes of it.
func (b *bench) step(state, action int32) (next int32, reward float32, over bool, err error) {
	out := statestore.Steps{
		Children: make([]int32, 1), Reward: make([]float32, 1), Terminated: make([]bool, 1),
		Truncated: make([]bool, 1),
	}
	if err := b.store.Simulate([]int32{state}, []int32{action}, &out); err != nil {
		return state, 0, false, err
	}
	err = b.store.Release([]int32{state})
	return out.Children[0], out.Reward[0], out.Terminated[0] || out.Truncated[0], err
}

// legal lists the legal actions of a state with their names.
func (b *bench) legal(state int32) (actions []int32, names []string, err error) {
	mask := make([]bool, b.env.Spec().NumActions)
	if err := b.store.Read([]int32{state}, statestore.View{Mask: mask}); err != nil {
		return nil, nil, err
	}
	for a, ok := range mask {
		if !ok {
			continue
		}
		name, err := b.store.ActionName(state, int32(a))
		if err != nil {
			return nil, nil, err
		}
		actions, names = append(actions, int32(a)), append(names, name)
	}
	return actions, names, nil
}

// nameAfter names an action in the state that a path leads to; its number if that can't be.
func (b *bench) nameAfter(state int32, path []int32, action int32) string {
	number := fmt.Sprint(action)
	if b.store.Retain([]int32{state}) != nil {
		return number
	}
	for _, a := range path {
		next, _, _, err := b.step(state, a)
		if err != nil {
			return number
		}
		state = next
	}
	name, err := b.store.ActionName(state, action)
	if err != nil || b.store.Release([]int32{state}) != nil {
		return number
	}
	return name
}

// parseAction finds the action that a person means: its name or its number.
func (b *bench) parseAction(state int32, text string) (int32, error) {
	actions, names, err := b.legal(state)
	if err != nil {
		return 0, err
	}
	for i, name := range names {
		if strings.EqualFold(name, text) {
			return actions[i], nil
		}
	}
	for _, a := range actions {
		if fmt.Sprint(a) == text {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%w: move %q is illegal; legal: %s", errUsage, text, strings.Join(names, " "))
}

// turn returns the player to move.
func (b *bench) turn(state int32) (int32, error) {
	var turn [1]int32
	err := b.store.Read([]int32{state}, statestore.View{ToPlay: turn[:]})
	return turn[0], err
}
