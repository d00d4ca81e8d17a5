//go:build linux || darwin

package gorgonia

import (
	"os"
	"runtime"

	"github.com/azserve/azserve/internal/dylib"
	"github.com/ebitengine/purego"
)

// BLASVariable names the library to use: a file, or "gonum" for none.
const BLASVariable = "AZSERVE_BLAS"

// openBLAS opens the first OpenBLAS that is there: the one the variable names; one that a Python
// package brought to a virtual environment beside the program or the working folder (numpy's own, or
// scipy-openblas32); one of the system.
func openBLAS() (found, bool) {
	if name := os.Getenv(BLASVariable); name != "" {
		if name == "gonum" {
			return found{}, false
		}
		return openFile(name)
	}
	for _, path := range candidates() {
		if f, ok := openFile(path); ok {
			return f, true
		}
	}
	return found{}, false
}

// candidates lists files that may be an OpenBLAS.
func candidates() []string {
	out := dylib.InSitePackages("scipy_openblas32/lib/libscipy_openblas*", "numpy.libs/libscipy_openblas*")
	if runtime.GOOS == "darwin" {
		return append(out, "/opt/homebrew/opt/openblas/lib/libopenblas.dylib")
	}
	return append(out, "libopenblas.so.0", "libopenblas.so")
}

// cblas values.
const (
	rowMajor = 101
	noTrans  = 111
	trans    = 112
)

// openFile opens a library and looks for the names that builds of OpenBLAS give to sgemm: plain, or
// SciPy's, with 32-bit or 64-bit integers.
func openFile(path string) (found, bool) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return found{}, false
	}
	for _, n := range []struct {
		gemm, threads string
		wide          bool
	}{
		{"scipy_cblas_sgemm64_", "scipy_openblas_set_num_threads64_", true},
		{"scipy_cblas_sgemm", "scipy_openblas_set_num_threads", false},
		{"cblas_sgemm", "openblas_set_num_threads", false},
	} {
		gemm, err := purego.Dlsym(lib, n.gemm)
		if err != nil {
			continue
		}
		// Our own threads share the batches: a product must not start more.
		if threads, err := purego.Dlsym(lib, n.threads); err == nil {
			purego.SyscallN(threads, 1)
		}
		if n.wide {
			return found{path, wideProduct(gemm)}, true
		}
		return found{path, narrowProduct(gemm)}, true
	}
	return found{}, false
}

func wideProduct(symbol uintptr) product {
	var f func(order, ta, tb int32, m, n, k int64, alpha float32, a *float32, lda int64, b *float32, ldb int64,
		beta float32, c *float32, ldc int64)
	purego.RegisterFunc(&f, symbol)
	return func(ta, tb bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32, c []float32,
		ldc int,
	) {
		f(rowMajor, transposed(ta), transposed(tb), int64(m), int64(n), int64(k), 1, &a[0], int64(lda), &b[0],
			int64(ldb), beta, &c[0], int64(ldc))
	}
}

func narrowProduct(symbol uintptr) product {
	var f func(order, ta, tb, m, n, k int32, alpha float32, a *float32, lda int32, b *float32, ldb int32,
		beta float32, c *float32, ldc int32)
	purego.RegisterFunc(&f, symbol)
	return func(ta, tb bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32, c []float32,
		ldc int,
	) {
		f(rowMajor, transposed(ta), transposed(tb), int32(m), int32(n), int32(k), 1, &a[0], int32(lda), &b[0],
			int32(ldb), beta, &c[0], int32(ldc))
	}
}

func transposed(t bool) int32 {
	if t {
		return trans
	}
	return noTrans
}
