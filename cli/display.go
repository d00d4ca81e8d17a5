package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/azserve/azserve/selfplay"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// display shows a run as it goes: a bar on a terminal, a line a minute elsewhere.
type display struct {
	w        io.Writer
	terminal bool

	mu   sync.Mutex // guards last
	last selfplay.Progress
}

func newDisplay(w io.Writer) *display {
	f, ok := w.(*os.File)
	return &display{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// report takes what the run says of itself.
func (d *display) report(p selfplay.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = p
}

func (d *display) now() selfplay.Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// start begins to show a run; the function it returns ends that.
func (d *display) start(run *selfplay.Run) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d.show(run, quit)
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (d *display) show(run *selfplay.Run, quit chan struct{}) {
	interval := time.Minute
	var bar *progressbar.ProgressBar
	if d.terminal {
		interval = time.Second / 2
		bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(d.w), progressbar.OptionSetWidth(20),
			progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-quit:
			if bar != nil {
				_ = bar.Finish()
			}
			return
		case <-tick.C:
			p := d.now()
			line := describeRun(&p, run, time.Since(began))
			if bar == nil {
				fmt.Fprintln(d.w, line)
				continue
			}
			bar.Describe(line)
			_ = bar.Set(int(1000 * p.Fraction))
		}
	}
}

// describeRun is one line about a run: rates over this part of it, loss, score, time left.
func describeRun(p *selfplay.Progress, run *selfplay.Run, took time.Duration) string {
	c, s := run.Counters(), took.Seconds()
	rate := func(n int64) string { return human(float64(n) / s) }
	line := fmt.Sprintf("%d games, %s games/s, %s sims/s, %s evals/s, batch %.0f %%, loss %.3f+%.3f", p.Games,
		rate(c.Games.Load()), rate(c.Simulations.Load()), rate(c.Evaluations.Load()), 100*run.Fill(), p.Loss.Policy,
		p.Loss.Value)
	if p.Score != nil {
		line += fmt.Sprintf(", %.0f %% against %s", 100*p.Score.Rate(), p.Opponent)
	}
	if p.Fraction > 0 && p.Fraction < 1 {
		left := time.Duration(float64(p.Elapsed) * (1 - p.Fraction) / p.Fraction)
		line += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return line
}

// human shortens a number: 12345 is 12.3k.
func human(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.1fM", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.1fk", x/1e3)
	}
	return fmt.Sprintf("%.1f", x)
}
