// Package gorgonia has the networks that run, and learn, in this process: graphs of Gorgonia whose
// layers are operations of ours over one matrix product (BLAS).
//
// A [Net] is weights with a shape. [Net.Evaluate] makes it an evaluator; a [Trainer] improves it by
// the AlphaZero loss: cross-entropy of the policy over the legal actions, squared error of the value,
// and L2 regularisation. Weights are kept as safetensors beside a JSON file (save.go).
//
// The observation arrays of a state are flattened and joined, as float32; the network's output is
// one row of action logits with the value behind. Values are from the view of the player to move.
package gorgonia
