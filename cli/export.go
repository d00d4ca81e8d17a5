package cli

import (
	"fmt"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/internal/atomicfile"
	"github.com/spf13/cobra"
)

func newExport() *cobra.Command {
	var f envFlags
	out := ""
	cmd := &cobra.Command{
		Use: "export FOLDER", Short: "Write a trained network as an ONNX file",
		Long: `Write the network in a folder of azserve train as an ONNX file.

Its inputs are the observation arrays of the environment, float32 [batch, ...] by their names, its outputs
prior_logits [batch, actions] and value [batch], from the view of the player to move. The batch may have any size.`,
		Example: "  azserve export runs/ConnectFour-v0-1/model --out model.onnx\n" +
			"  azserve search ConnectFour-v0 --model model.onnx",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			net, err := gorgonia.Load(args[0])
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			defer net.Close()
			kw, err := keywords("env-arg", f.args)
			if err != nil {
				return err
			}
			env, err := envs.Make(net.Config().Env, kw)
			if err != nil {
				return fmt.Errorf("%w: the network is for %s (%s): %w", errUsage, net.Config().Env, net.Config().Keywords, err)
			}
			data, err := net.ONNX(env)
			if err != nil {
				return fmt.Errorf("%w: give the environment's keywords by --env-arg: %w", errUsage, err)
			}
			if err := atomicfile.Write(out, data); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d weights, %d bytes\n", out, net.Count(), len(data))
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&f.args, "env-arg", nil,
		"keyword of the network's environment as NAME=VALUE, VALUE as JSON or plain text; may be repeated")
	cmd.Flags().StringVar(&out, "out", "model.onnx", "the file to write")
	return cmd
}
