// Package cli is the command line of azserve, as a library: a program that registers environments of
// its own calls [Main] and has all commands for them.
//
// A setting comes from its flag, else from the environment variable AZSERVE_FLAG_NAME, else from the
// YAML file of --config, else from its default. Exit codes: 0 all well, 1 it failed, 2 the call was
// wrong.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/search"
	"github.com/azserve/azserve/selfplay"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks errors of the caller.
var errUsage = errors.New("usage")

// Main runs a command and returns the exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(errOut, "azserve:", err)
	if isUsage(err) {
		fmt.Fprintln(errOut, "See azserve --help, or --help after a command.")
		return exitUsage
	}
	return exitFailed
}

// isUsage says that the caller can mend it by calling otherwise.
func isUsage(err error) bool {
	for _, kind := range []error{
		errUsage, envs.ErrUnknownEnv, envs.ErrKeyword, search.ErrConfig, selfplay.ErrConfig,
		selfplay.ErrPlayer,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "azserve",
		Short: "Batched tree search and AlphaZero self-play over real simulators",
		Long: `Batched tree search and AlphaZero self-play over real simulators.

Every flag can also be given as an environment variable (--num-games as AZSERVE_NUM_GAMES)
or in a YAML file (--config FILE, with the flags' names as keys). A flag beats the variable,
the variable beats the file.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return layerSettings(cmd) },
	}
	root.PersistentFlags().String("config", "", "YAML file of settings")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w", errUsage, err)
	})
	root.AddCommand(newEnvs(), newSearch(), newPlay(), newTrain(), newArena(), newServe(), newAnalysis(),
		newMistakes(), newExport(),
		newPlot())
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// layerSettings fills flags that weren't given from variables and the configuration file.
func layerSettings(cmd *cobra.Command) error {
	file, err := readConfig(cmd)
	if err != nil {
		return err
	}
	var failed error
	known := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known[f.Name] = true
		if f.Changed || failed != nil {
			return
		}
		variable := "AZSERVE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, from := os.Getenv(variable), variable
		if value == "" {
			v, ok := file[f.Name]
			if !ok {
				return
			}
			value, from = fmt.Sprint(v), "--config"
			if l, isList := v.([]any); isList {
				if failed = setList(f, l); failed != nil {
					failed = fmt.Errorf("%w: %s from --config: %w", errUsage, f.Name, failed)
				}
				return
			}
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = fmt.Errorf("%w: %s from %s: %w", errUsage, f.Name, from, err)
		}
	})
	for name := range file {
		if !known[name] && failed == nil {
			failed = fmt.Errorf("%w: the configuration file has %q, which %s doesn't know", errUsage, name,
				cmd.CommandPath())
		}
	}
	return failed
}

// setList gives a flag the entries of a list.
func setList(f *pflag.Flag, list []any) error {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	f.Changed = true
	if many, ok := f.Value.(pflag.SliceValue); ok {
		return many.Replace(texts)
	}
	return f.Value.Set(strings.Join(texts, ","))
}

func readConfig(cmd *cobra.Command) (map[string]any, error) {
	path, err := cmd.Flags().GetString("config")
	if err != nil || path == "" {
		path = os.Getenv("AZSERVE_CONFIG")
	}
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUsage, path, err)
	}
	return out, nil
}

// exactArgs is cobra.ExactArgs with an error that shows the usage.
func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%w: %d arguments; want: %s", errUsage, len(args), cmd.UseLine())
		}
		return nil
	}
}
