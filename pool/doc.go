// Package pool runs many environments at once, EnvPool's way: send actions, receive observations.
// It is a thin layer over the state store: a live environment is a state there, so it can be
// snapshot, forked and restored at any time between two of its steps.
//
// Results never depend on the number of threads or on how work is spread. With batch_size ==
// num_envs rows come back in the order they were sent; with a smaller batch_size the first that are
// ready come first.
//
// Lock order: Pool.mu, then the store's lock. No environment runs under either.
package pool
