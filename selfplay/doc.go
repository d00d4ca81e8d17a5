// Package selfplay makes players: games of a model against itself, training on them, and the matches
// and oracles that say what was reached.
//
// Many games run side by side, so that their searches share the evaluator's batches, each at its own pace. A
// training run is a sequence of iterations: games of iteration i are played with the weights after iteration i-1,
// while the learner goes through the games up to i-1. All random numbers come from one seed, and
// the state between two iterations is what a checkpoint holds.
//
// A game depends on its number, the seed and the network alone. But the last bits of what a network says may depend on
// the batch (OpenBLAS and ONNX Runtime add up in other orders), and with several threads which positions meet in a
// batch, or are in the cache already, is a matter of time: such a run repeats in the large, not to the last bit. With
// one thread, or with gonum, it does.
package selfplay
