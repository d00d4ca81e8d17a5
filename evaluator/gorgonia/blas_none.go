//go:build !linux && !darwin

package gorgonia

// openBLAS finds nothing: libraries are opened on Linux and macOS only.
func openBLAS() (found, bool) { return found{}, false }
