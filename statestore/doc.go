// Package statestore keeps the states of one environment, millions of them, behind int32 handles.
//
// A state is immutable once it is in the store, so taking a snapshot is one more reference, and a
// state can be forked any number of times: Simulate clones each parent into a fresh slot and steps
// the clone. A handle carries the generation of its slot and a mark of its store, so that a stale or
// foreign handle is refused by name and never reads somebody else's state.
//
// Calls are atomic: one that returns an error has changed nothing. Everything is safe for concurrent
// use. In steady state nothing is allocated per state.
package statestore
