package cli

import (
	"bytes"
	"fmt"
	"os"

	"github.com/azserve/azserve/selfplay"
	"github.com/spf13/cobra"
)

func newMistakes() *cobra.Command {
	var f envFlags
	var path string
	var seed uint64
	simulations := 0
	cmd := &cobra.Command{
		Use: "mistakes ENV PLAYER", Short: "Count a player's mistakes in positions that a perfect solver labelled",
		Long: `Let a player choose an action in each of many positions that a perfect solver labelled, and count how
often it gives away a win or a draw, by phase of the game.

Positions for ConnectFour-v0 come with azserve: 1,000 of random games where the move matters. Others come from a
CSV file with the header moves,phase,scores: the actions from the start and the scores of all actions (above 0:
it wins, 0: it draws, below: it loses, -: illegal), each joined by spaces.

A player is named as in azserve arena.`,
		Example: "  azserve mistakes ConnectFour-v0 runs/ConnectFour-v0-1/model@256",
		Args:    exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.open(args[0])
			if err != nil {
				return err
			}
			defer b.close()
			positions, err := openPositions(b, path)
			if err != nil {
				return err
			}
			player, free, err := selfplay.ParsePlayer(args[1], selfplay.PlayerOptions{
				Env: b.env, Workers: b.workers, Simulations: simulations,
			})
			if err != nil {
				return err
			}
			defer free()
			counts, err := selfplay.CountMistakes(cmd.Context(), b.store, player, positions, seed)
			if err != nil {
				return err
			}
			for _, m := range counts {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: mistakes in %s\n", player.Name(), m)
			}
			return nil
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&path, "positions", "", "CSV file of labelled positions (default: those that come with azserve)")
	fl.Uint64Var(&seed, "seed", 1, "seed of all random numbers")
	fl.IntVar(&simulations, "simulations", 256, "simulations a move of a model without a number of its own")
	return cmd
}

// openPositions reads a file, or what comes with azserve.
func openPositions(b *bench, path string) ([]selfplay.Labelled, error) {
	if path == "" {
		positions, err := selfplay.Positions(b.env)
		if err == nil && len(positions) == 0 {
			err = fmt.Errorf("%w: no labelled positions of %s (%s) come with azserve; give --positions FILE", errUsage,
				b.env.Spec().ID, b.env.Spec().Keywords)
		}
		return positions, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return selfplay.ReadPositions(bytes.NewReader(data), b.env.Spec().NumActions)
}
