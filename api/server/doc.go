// Package server serves searches, environments and models over gRPC (azserve.v1).
//
// A call comes in through gate.go, which says who calls (identity.go), whether there is room (admission.go), and
// turns panics and errors into what goes over the wire. The services are envs.go (pools and their states; steps.go
// has what changes them), search.go and session.go (roots.go finds what they are about, trees.go packs trees),
// models.go and attach.go (evaluators), admin.go. What they hold is in pools.go (pools with their leases), benches.go
// (a store an environment, for searches of states that come with the call) and registry.go (models). bounds.go is
// what one call may ask for.
package server
