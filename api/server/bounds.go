package server

import (
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/errcode"
	"github.com/azserve/azserve/search"
)

// A request of a few bytes can ask for an answer of gigabytes: one handle may be named any number of times. What an
// answer needs is known before it is made, so what doesn't fit in a message is refused first.

// rowBytes is about what a row of an environment takes in an answer: observation, mask, info and the rest.
func rowBytes(env *envs.Env) int64 {
	spec := env.Spec()
	n := int64(64 + spec.NumActions + 4*spec.NumPlayers)
	for _, a := range spec.Obs {
		n += int64(a.Len() * a.DType.Size())
	}
	for _, a := range spec.Info {
		n += int64(a.Len() * a.DType.Size())
	}
	return n
}

// workFactor is how much memory the work on a call may take, in messages.
const workFactor = 8

// fits checks that an answer of so many rows fits in a message.
func (s *Server) fits(path string, rows int, each int64) error {
	if room := int64(s.cfg.MaxMessage) / max(1, each); int64(rows) > room {
		return tooLarge(path, rows, room)
	}
	return nil
}

// fitsWork checks that what is to be evaluated of so many rows, and the answer about them, aren't too much.
func (s *Server) fitsWork(path string, env *envs.Env, rows, leaves int) error {
	if err := s.fits(path, rows, 4*int64(env.Spec().NumActions)+4); err != nil {
		return err
	}
	each := rowBytes(env) + 5*int64(env.Spec().NumActions)
	room := workFactor * int64(s.cfg.MaxMessage) / max(1, each*int64(max(1, leaves)))
	if int64(rows) > room {
		return tooLarge(path, rows, room)
	}
	return nil
}

// fitsTrees checks that the nodes of a search aren't too many, nor the trees of its answer too large.
func (s *Server) fitsTrees(env *envs.Env, cfg *search.Config, rows int) error {
	if rows == 0 {
		return nil
	}
	most := s.cfg.MaxNodes / rows
	if cfg.NumSimulations < 0 || cfg.NumSimulations > most-1 {
		return wire.Bad("settings.num_simulations",
			"is %d for %d rows; this server takes at most %d nodes in all, rows * "+
				"(simulations + 1)", cfg.NumSimulations, rows, s.cfg.MaxNodes)
	}
	if !cfg.CountKept && (cfg.MaxNodes < 0 || cfg.MaxNodes > most) {
		return wire.Bad("settings.max_nodes", "is %d for %d rows; this server takes at most %d nodes in all",
			cfg.MaxNodes,
			rows, s.cfg.MaxNodes)
	}
	if !cfg.KeepLogits {
		return nil
	}
	width := max(env.Spec().NumActions, env.Spec().NumOutcomes)
	return s.fits("settings.keep_tree", rows, int64(2*cfg.NumSimulations+2)*int64(24*width+26))
}

func tooLarge(path string, rows int, room int64) error {
	e := wire.New(errcode.TooLarge,
		"%s has %d rows; this server takes at most %d of this environment at a time, which "+
			"max_message bounds (--max-message)", path, rows, room)
	e.Path = path
	return e
}

// batchRows is how many rows of an environment go into a batch for an evaluator, which must fit in a message both
// ways.
func batchRows(env *envs.Env, most, maxMessage int) int {
	each := max(rowBytes(env), 4*int64(env.Spec().NumActions)+4)
	return int(min(int64(most), (int64(maxMessage)-64<<10)/each))
}
