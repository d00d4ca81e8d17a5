package cli

import (
	"fmt"

	"github.com/azserve/azserve/selfplay"
	"github.com/spf13/cobra"
)

func newArena() *cobra.Command {
	var f envFlags
	cfg := selfplay.MatchConfig{}
	simulations := 0
	cmd := &cobra.Command{
		Use: "arena ENV A B", Short: "Play a match of two players and print the Elo difference",
		Long: `Play a match of two players and print the score of A, the draws, how many games were different,
and the Elo difference with its 95 % interval. Games come in pairs: the same random opening, sides
swapped.

A player is a model (a folder of azserve train, or an ONNX file; MODEL@N for N simulations), policy:MODEL (no
search), uct:N, random, or perfect where the environment has a solver. A model's path may end in
?symmetry=average or ?symmetry=random.`,
		Example: "  azserve arena ConnectFour-v0 runs/ConnectFour-v0-1/model uct:1000",
		Args:    exactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.open(args[0])
			if err != nil {
				return err
			}
			defer b.close()
			var players [2]selfplay.Player
			for i := range players {
				var free func()
				players[i], free, err = selfplay.ParsePlayer(args[1+i], selfplay.PlayerOptions{
					Env: b.env, Workers: b.workers, Simulations: simulations,
				})
				if err != nil {
					return err
				}
				defer free()
			}
			score, err := selfplay.Arena(cmd.Context(), b.store, players[0], players[1], cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s against %s, %d games: %s\n", players[0].Name(), players[1].Name(),
				score.Games(), score)
			return nil
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.IntVar(&cfg.Games, "games", 100, "games, rounded up to pairs")
	fl.IntVar(&cfg.OpeningPlies, "opening-plies", 4, "random moves at the start: 0 to this many")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "seed of all random numbers")
	fl.IntVar(&simulations, "simulations", 256, "simulations a move of a model without a number of its own")
	return cmd
}
