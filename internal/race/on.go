//go:build race

// Package race says whether the race detector is on: then allocation counts mean nothing.
package race

// Enabled is true in builds with -race.
const Enabled = true
