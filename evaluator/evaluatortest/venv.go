package evaluatortest

import (
	"os"
	"path/filepath"
)

// UseVenv lets the tests of a package find the libraries in a virtual environment, such as the repository's, unless
// another one is in use. Call it in TestMain.
func UseVenv(dir string) {
	if os.Getenv("VIRTUAL_ENV") != "" {
		return
	}
	if dir, err := filepath.Abs(dir); err == nil {
		_ = os.Setenv("VIRTUAL_ENV", dir)
	}
}
