// Package selfplay makes players: games of a model against itself, training on them, and the matches
// and oracles that say what was reached.
//
// Many games run side by side, so that their searches share the evaluator's batches. A training run
// is a sequence of iterations: games of iteration i are played with the weights after iteration i-1,
// while the learner goes through the games up to i-1. All random numbers come from one seed, and
// the state between two iterations is what a checkpoint holds.
package selfplay
