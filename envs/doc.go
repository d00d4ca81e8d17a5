// Package envs is the contract between an environment and everything else, and the environments
// that come with azserve.
//
// An author writes one type with four methods over a plain state S (see [Rules] and the annotated
// tictactoe.go), and passes it to [Define]. The result, an [Env], has S erased: the state store, the
// pool, search and the servers above hold states in an [Arena] and call whole batches, so that one
// dynamic call is paid a batch, and the loop inside is compiled for the concrete rules.
//
// Points of view: a reward belongs to the player who moved; an observation and a value belong to the
// player to move. All randomness of an environment lives inside S, so a state and a sequence of
// actions replay exactly.
package envs
