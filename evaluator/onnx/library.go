//go:build cgo

package onnx

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/azserve/azserve/internal/dylib"
	ort "github.com/yalue/onnxruntime_go"
)

// Library returns the file of the ONNX Runtime in use, which is found and started once. ErrLibrary says how to
// get one.
func Library() (string, error) { return library() }

var library = sync.OnceValues(func() (string, error) {
	var last error
	for _, path := range candidates() {
		ort.SetSharedLibraryPath(path)
		if last = ort.InitializeEnvironment(ort.WithLogLevelError()); last == nil {
			return path, nil
		}
		if os.Getenv(Variable) != "" {
			return "", fmt.Errorf("%w: %s=%s: %w", ErrLibrary, Variable, path, last)
		}
	}
	return "", fmt.Errorf("%w was found; get it by: %s; or name its file in %s", ErrLibrary, Install, Variable)
})

// candidates lists files that may be an ONNX Runtime.
func candidates() []string {
	if name := os.Getenv(Variable); name != "" {
		return []string{name}
	}
	pattern, system := "libonnxruntime.so*", []string{"libonnxruntime.so.1", "libonnxruntime.so"}
	if runtime.GOOS == "darwin" {
		pattern, system = "libonnxruntime*.dylib", []string{"libonnxruntime.dylib"}
	}
	out := dylib.Beside(pattern)
	out = append(out, dylib.InSitePackages("onnxruntime/capi/"+pattern)...)
	return append(out, system...)
}
