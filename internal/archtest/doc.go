// Package archtest tests the layers: a folder imports only what stands above it in the list of
// ARCHITECTURE.md, and the search's state machine stays free of goroutines, clocks and I/O.
package archtest
