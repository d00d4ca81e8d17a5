package selfplay

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/azserve/azserve/internal/atomicfile"
)

// CurveFile is the file in a run's folder with a line an iteration, as CSV: counters, the loss, the norm of the
// gradient and the learning rate.
const CurveFile = "progress.csv"

const curveHeader = "iteration,games,positions,steps,seconds,policy_loss,value_loss,gradient_norm,learning_rate\n"

// CurvePoint is a line of CurveFile.
type CurvePoint struct {
	Iteration, Games, Positions, Steps                         int
	Seconds, PolicyLoss, ValueLoss, GradientNorm, LearningRate float64
}

// ReadCurve reads the file of a run's folder.
func ReadCurve(dir string) ([]CurvePoint, error) {
	path := filepath.Join(dir, CurveFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCurve, err)
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCurve, path, err)
	}
	var out []CurvePoint
	for i, row := range rows {
		if i == 0 {
			if strings.Join(row, ",")+"\n" != curveHeader {
				return nil, fmt.Errorf("%w: %s: want the header %s", ErrCurve, path, curveHeader)
			}
			continue
		}
		var p CurvePoint
		_, err := fmt.Sscan(strings.Join(row, " "), &p.Iteration, &p.Games, &p.Positions, &p.Steps, &p.Seconds,
			&p.PolicyLoss, &p.ValueLoss, &p.GradientNorm, &p.LearningRate)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: line %d: %w", ErrCurve, path, i+1, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// ErrCurve is the kind of every error about CurveFile.
var ErrCurve = errors.New("selfplay: bad curve")

// curve writes CurveFile.
type curve struct{ dir string }

func (c curve) path() string { return filepath.Join(c.dir, CurveFile) }

// add appends a line.
func (c curve) add(p *Progress) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	line := ""
	if info.Size() == 0 {
		line = curveHeader
	}
	line += fmt.Sprintf("%d,%d,%d,%d,%.1f,%.5f,%.5f,%.4f,%.3g\n", p.Iteration, p.Games, p.Positions, p.Steps,
		p.Elapsed.Seconds(), p.Loss.Policy, p.Loss.Value, p.Loss.Gradient, p.Rate)
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// cut drops the lines after an iteration: a run that was killed goes on from its last checkpoint.
func (c curve) cut(iteration int) error {
	data, err := os.ReadFile(c.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kept := []byte(curveHeader)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ",")
		whole := len(fields) == strings.Count(curveHeader, ",")+1
		if n, err := strconv.Atoi(fields[0]); whole && err == nil && n <= iteration {
			kept = append(append(kept, lines.Bytes()...), '\n')
		}
	}
	return atomicfile.Write(c.path(), kept)
}
