package selfplay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/evaluator/gorgonia"
	"github.com/azserve/azserve/internal/atomicfile"
)

// ErrCheckpoint is the kind of every error about a checkpoint; it names the file.
var ErrCheckpoint = errors.New("selfplay: bad checkpoint")

// A run's folder:
//
//	latest                    the name of the newest complete checkpoint
//	checkpoint-000123-4567/   of an iteration and a learning step; written whole before latest names it
//	    run.json              settings and counters
//	    model/                the network that learns
//	    trainer.safetensors   the optimiser's memory, and the mean of the weights
//	    replay.bin            the replay buffer
//	progress.csv              a line an iteration: counters, loss, learning rate
//	model/                    the newest network that plays
//
// A kill at any moment leaves latest naming a complete checkpoint.
const (
	latestFile  = "latest"
	runFile     = "run.json"
	trainerFile = "trainer.safetensors"
	replayFile  = "replay.bin"
	// ModelDir is the folder of the newest network within a run's folder.
	ModelDir = "model"
)

// runJSON is the contents of run.json.
type runJSON struct {
	Config Config `json:"config"`
	State  state  `json:"state"`
}

func hasCheckpoint(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, latestFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Save writes a checkpoint.
func (r *Run) Save() error {
	now := r.state
	now.Seconds = r.elapsed().Seconds()
	// The learner goes on within an iteration: what latest names is never written again.
	name := fmt.Sprintf("checkpoint-%06d-%d", now.Iteration, r.trainer.Steps())
	dir := filepath.Join(r.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := json.MarshalIndent(runJSON{r.cfg, now}, "", "  ")
	if err != nil {
		return err
	}
	ring, err := r.ring.Bytes()
	if err != nil {
		return err
	}
	for _, write := range []func() error{
		func() error { return r.learner.Save(filepath.Join(dir, ModelDir)) },
		func() error { return gorgonia.SaveParams(filepath.Join(dir, trainerFile), r.trainer.State()) },
		func() error { return atomicfile.Write(filepath.Join(dir, replayFile), ring) },
		func() error { return atomicfile.Write(filepath.Join(dir, runFile), append(info, '\n')) },
		func() error { return atomicfile.Write(filepath.Join(r.dir, latestFile), []byte(name+"\n")) },
		func() error { return r.actor.net.Save(filepath.Join(r.dir, ModelDir)) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	r.saved = time.Now()
	return r.removeOld(name)
}

// removeOld deletes all checkpoints but one.
func (r *Run) removeOld(keep string) error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "checkpoint-") && e.Name() != keep {
			if err := os.RemoveAll(filepath.Join(r.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Resume goes on with the run in a folder, from its newest checkpoint. change may alter the settings
// that were saved, such as the limits; it may be nil.
func Resume(dir string, change func(*Config), report func(Progress)) (*Run, error) {
	name, err := os.ReadFile(filepath.Join(dir, latestFile))
	if err != nil {
		return nil, fmt.Errorf("%w: no run to resume: %w", ErrCheckpoint, err)
	}
	from := filepath.Join(dir, strings.TrimSpace(string(name)))
	data, err := os.ReadFile(filepath.Join(from, runFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	var info runJSON
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCheckpoint, filepath.Join(from, runFile), err)
	}
	if change != nil {
		change(&info.Config)
	}
	env, err := envs.Make(info.Config.Env, info.Config.Keywords)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	r, err := newRun(dir, env, info.Config, report)
	if err != nil {
		return nil, err
	}
	if err := r.restore(from, info.State); err != nil {
		r.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrCheckpoint, from, err)
	}
	return r, nil
}

// restore fills a run from a checkpoint's folder.
func (r *Run) restore(from string, s state) error {
	r.state = s
	net, err := gorgonia.Load(filepath.Join(from, ModelDir))
	if err != nil {
		return err
	}
	if err := r.learner.SetParams(net.Params()); err != nil {
		return err
	}
	params, err := gorgonia.LoadParams(filepath.Join(from, trainerFile))
	if err != nil {
		return err
	}
	if err := r.trainer.SetState(params); err != nil {
		return err
	}
	if err := r.actor.set(r.trainer.Average(), s.Iteration); err != nil {
		return err
	}
	ring, err := os.ReadFile(filepath.Join(from, replayFile))
	if err != nil {
		return err
	}
	if err := r.ring.Restore(ring); err != nil {
		return err
	}
	return r.curve.cut(s.Iteration)
}
