package cli

import (
	"fmt"

	"github.com/azserve/azserve/analysis"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/evaluator"
	"github.com/azserve/azserve/evaluator/named"
	"github.com/spf13/cobra"
)

func newAnalysis() *cobra.Command {
	f := &envFlags{}
	model, simulations, parallel, cache := "uniform", 500, 16, 0
	cmd := &cobra.Command{
		Use: "analysis ENV", Short: "Answer queries in lines of JSON, as KataGo's analysis engine does",
		Long: `Answer queries as KataGo's analysis engine does: lines of JSON on standard input, lines of JSON on
standard output, in the order in which they are ready.

Fields of a query: id, moves, seed, analyzeTurns, maxVisits, maxTime, priority, priorities,
reportDuringSearchEvery, includePolicy, includePVVisits, analysisPVLen, avoidMoves, allowMoves, overrideSettings
(settings of the search, by the names of azserve search --help). Actions: query_version, query_models,
clear_cache, terminate, terminate_all. Values are from the view of the player to move.`,
		Example: `  echo '{"id": "a", "moves": [["B", "3"]], "maxVisits": 800}' | azserve analysis ConnectFour-v0`,
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.openFor(args[0], simulations)
			if err != nil {
				return err
			}
			defer b.close()
			ev, free, err := named.Open(model, b.env)
			if err != nil {
				return fmt.Errorf("%w: --model: %w", errUsage, err)
			}
			defer free()
			if parallel < 1 || simulations < 1 {
				return fmt.Errorf("%w: --parallel %d, --simulations %d; want at least 1", errUsage, parallel, simulations)
			}
			cfg := analysis.Config{
				Env: b.env, Store: b.store, Evaluator: ev, Model: model, Version: server.Version, Threads: parallel,
				Search: analysis.Default(b.env),
			}
			cfg.Search.NumSimulations = simulations
			if cache > 0 {
				if cfg.Cache, err = evaluator.NewCacheBytes(cache<<20, b.env.Spec().NumActions); err != nil {
					return err
				}
			}
			if needs := ev.Needs(); needs.Obs && !needs.States && !needs.Instant { // positions share batches
				batcher, err := evaluator.NewBatcher(ev, b.env.Spec(), evaluator.BatcherConfig{MaxBatch: parallel})
				if err != nil {
					return err
				}
				defer batcher.Close()
				client := batcher.Client(0)
				defer client.Close()
				cfg.Evaluator = client
			}
			return analysis.Run(cmd.Context(), cfg, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&model, "model", model, "evaluator: "+named.Known)
	fl.IntVar(&simulations, "simulations", simulations, "simulations of a position whose query has no maxVisits")
	fl.IntVar(&parallel, "parallel", parallel, "positions that are searched at the same time")
	fl.IntVar(&cache, "cache", cache, "MiB of evaluations to remember")
	return cmd
}
