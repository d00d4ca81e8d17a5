package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/azserve/azserve/internal/rng"
	"github.com/azserve/azserve/selfplay"
	"github.com/spf13/cobra"
)

type playFlags struct {
	envFlags
	opponent    string
	side        int
	simulations int
	seed        uint64
}

func newPlay() *cobra.Command {
	f := &playFlags{}
	cmd := &cobra.Command{
		Use: "play ENV", Short: "Play against a model on a text board",
		Example: "  azserve play ConnectFour-v0 --opponent runs/ConnectFour-v0-1/model\n" +
			"  azserve play TicTacToe-v0 --opponent perfect --side 1",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args[0])
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.opponent, "opponent", "uct:1000", "a model's folder, PATH@N, policy:PATH, uct:N, random or perfect")
	fl.IntVar(&f.side, "side", 0, "which player you are, from 0")
	fl.IntVar(&f.simulations, "simulations", 256, "simulations a move of a model")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of all random numbers")
	return cmd
}

func (f *playFlags) run(ctx context.Context, in io.Reader, w io.Writer, id string) error {
	b, err := f.open(id)
	if err != nil {
		return err
	}
	defer b.close()
	if n := b.env.Spec().NumPlayers; f.side < 0 || f.side >= n {
		return fmt.Errorf("%w: --side %d; want 0 to %d", errUsage, f.side, n-1)
	}
	opponent, free, err := selfplay.ParsePlayer(f.opponent, selfplay.PlayerOptions{
		Env: b.env, Workers: b.workers, Simulations: f.simulations,
	})
	if err != nil {
		return err
	}
	defer free()
	state, err := b.start(f.seed)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	fmt.Fprintln(w, "Type a move by name or number; q ends.")
	for ply := uint64(0); ; ply++ {
		text, err := b.store.Text(state)
		if err != nil {
			return err
		}
		turn, err := b.turn(state)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s", text)
		var action int32
		if int(turn) == f.side {
			action, err = f.ask(b, lines, w, state)
		} else {
			action, err = f.answer(ctx, b, opponent, state, ply, w)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		next, reward, over, err := b.step(state, action)
		if err != nil {
			return err
		}
		if state = next; over {
			return f.end(b, w, state, int(turn) == f.side, reward)
		}
	}
}

// ask reads a move of the person; io.EOF if there is none.
func (f *playFlags) ask(b *bench, lines *bufio.Scanner, w io.Writer, state int32) (int32, error) {
	_, names, err := b.legal(state)
	if err != nil {
		return 0, err
	}
	for {
		fmt.Fprintf(w, "your move (%s): ", strings.Join(names, " "))
		if !lines.Scan() {
			fmt.Fprintln(w)
			return 0, io.EOF
		}
		text := strings.TrimSpace(lines.Text())
		if text == "q" {
			return 0, io.EOF
		}
		action, err := b.parseAction(state, text)
		if err == nil {
			return action, nil
		}
		fmt.Fprintln(w, strings.TrimPrefix(err.Error(), "usage: "))
	}
}

// answer lets the opponent choose.
func (f *playFlags) answer(
	ctx context.Context, b *bench, p selfplay.Player, state int32, ply uint64, w io.Writer,
) (int32, error) {
	var out [1]int32
	if err := p.Choose(ctx, b.store, []int32{state}, []uint64{rng.Derive(f.seed, ply)}, out[:]); err != nil {
		return 0, err
	}
	name, err := b.store.ActionName(state, out[0])
	fmt.Fprintf(w, "%s plays %s\n", p.Name(), name)
	return out[0], err
}

// end shows how the game ended.
func (f *playFlags) end(b *bench, w io.Writer, state int32, mine bool, reward float32) error {
	text, err := b.store.Text(state)
	if err != nil {
		return err
	}
	result := "A draw."
	switch {
	case reward == 0:
	case (reward > 0) == mine:
		result = "You win."
	default:
		result = "You lose."
	}
	fmt.Fprintf(w, "\n%s%s\n", text, result)
	return nil
}
