package cli

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"

	"github.com/azserve/azserve/internal/atomicfile"
	"github.com/azserve/azserve/selfplay"
	"github.com/spf13/cobra"
)

func newPlot() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use: "plot RUN", Short: "Draw the loss of a training run as SVG",
		Long: `Draw what a training run learned, from its progress.csv: the loss of the policy (cross-entropy, nats) and of
the value (squared error) over the positions played.`,
		Example: "  azserve plot runs/ConnectFour-v0-1",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			points, err := selfplay.ReadCurve(args[0])
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			var learned []selfplay.CurvePoint
			for _, p := range points {
				if p.Steps > 0 {
					learned = append(learned, p)
				}
			}
			if len(learned) < 2 {
				return fmt.Errorf("%s has learned in %d iterations so far; a curve needs 2", args[0], len(learned))
			}
			if out == "" {
				out = filepath.Join(args[0], "loss.svg")
			}
			if err := atomicfile.Write(out, lossSVG(learned)); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the file to write (default: RUN/loss.svg)")
	return cmd
}

// Size of a panel, and the room around it, in pixels.
const (
	panelWidth, panelHeight = 640, 220
	panelLeft, panelTop     = 60, 40
)

// lossSVG draws the two losses, one below the other.
func lossSVG(points []selfplay.CurvePoint) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="12">`+"\n", panelWidth+panelLeft+20, 2*(panelHeight+panelTop)+44)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	panel(&b, points, 0, "policy: cross-entropy (nats)", func(p *selfplay.CurvePoint) float64 { return p.PolicyLoss })
	panel(&b, points, 1, "value: squared error", func(p *selfplay.CurvePoint) float64 { return p.ValueLoss })
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">positions, thousands</text>\n</svg>\n",
		panelLeft+panelWidth/2, 2*(panelHeight+panelTop)+34)
	return b.Bytes()
}

// panel draws one curve with its axes.
func panel(b *bytes.Buffer, points []selfplay.CurvePoint, row int, title string, y func(*selfplay.CurvePoint) float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range points {
		low, high = min(low, y(&points[i])), max(high, y(&points[i]))
	}
	high = max(high, low+1e-6)
	most := float64(points[len(points)-1].Positions)
	top := row*(panelHeight+panelTop) + panelTop
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", panelLeft, top-10, title)
	for k := range 5 { // lines with their numbers
		f := float64(k) / 4
		at := float64(top) + float64(panelHeight)*(1-f)
		fmt.Fprintf(b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>", panelLeft, at,
			panelLeft+panelWidth, at)
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3f</text>\n", panelLeft-6, at+4, low+f*(high-low))
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#666\">%.0f</text>\n",
			panelLeft+f*panelWidth, top+panelHeight+14, f*most/1000)
	}
	fmt.Fprint(b, `<polyline fill="none" stroke="#1f77b4" stroke-width="1.5" points="`)
	for i := range points {
		p := &points[i]
		fmt.Fprintf(b, "%.1f,%.1f ", panelLeft+panelWidth*float64(p.Positions)/most,
			float64(top)+float64(panelHeight)*(high-y(p))/(high-low))
	}
	fmt.Fprintln(b, `"/>`)
}
