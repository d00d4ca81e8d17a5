// Package dylib says where dynamic libraries that users install may be.
package dylib

import (
	"os"
	"path/filepath"
	"slices"
)

// SitePackagesVariable names folders of Python packages to look in before all others, separated as in PATH. The
// Python package sets it to its own.
const SitePackagesVariable = "AZSERVE_SITE_PACKAGES"

// InSitePackages lists the files that match patterns like "numpy.libs/libx*" in the folders of Python packages of
// this process, of VIRTUAL_ENV, and of a .venv beside the program, above it or in the working folder.
func InSitePackages(patterns ...string) (out []string) {
	folders := filepath.SplitList(os.Getenv(SitePackagesVariable))
	for _, root := range roots() {
		folders = append(folders, glob(filepath.Join(root, "lib", "python3*", "site-packages"))...)
	}
	for _, folder := range folders {
		for _, p := range patterns {
			out = append(out, glob(filepath.Join(folder, p))...)
		}
	}
	return out
}

// roots lists virtual environments.
func roots() (out []string) {
	if e := os.Getenv("VIRTUAL_ENV"); e != "" {
		out = append(out, e)
	}
	for _, dir := range append(Beside("."), Beside("..")...) {
		out = append(out, filepath.Join(dir, ".venv"))
	}
	if wd, err := os.Getwd(); err == nil {
		out = append(out, filepath.Join(wd, ".venv"))
	}
	return out
}

// Beside lists the files that match patterns in the program's folder.
func Beside(patterns ...string) (out []string) {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	for _, p := range patterns {
		out = append(out, glob(filepath.Join(filepath.Dir(exe), p))...)
	}
	return out
}

// glob lists the files that match a pattern, which must be well-formed; the last in order first, so that of
// several versions the newest comes first.
func glob(pattern string) []string {
	files, _ := filepath.Glob(pattern) // the only error is a bad pattern
	slices.Reverse(files)
	return files
}
