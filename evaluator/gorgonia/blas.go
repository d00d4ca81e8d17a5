package gorgonia

import (
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// product is c = a*b + beta*c over row-major matrices: a is m x k after transposing, b k x n.
type product func(ta, tb bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int)

// smallProduct is how many multiplications are too few for a call of a C library to pay.
const smallProduct = 1 << 13

// library is the BLAS in use, found once.
var library = sync.OnceValue(func() found {
	if f, ok := openBLAS(); ok {
		return f
	}
	return found{name: "gonum (pure Go)", gemm: gonumProduct}
})

// found is a BLAS with its name.
type found struct {
	name string
	gemm product
}

// BLAS says which library computes matrix products: an OpenBLAS that was found on this machine, or
// gonum.
func BLAS() string { return library().name }

// gemm is c = a*b + beta*c.
func gemm(ta, tb bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int,
) {
	f := gonumProduct
	if m*n*k >= smallProduct {
		f = library().gemm
	}
	f(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc)
}

func gonumProduct(ta, tb bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int,
) {
	general := func(data []float32, rows, cols, stride int, t bool) blas32.General {
		if t {
			rows, cols = cols, rows
		}
		return blas32.General{Rows: rows, Cols: cols, Stride: stride, Data: data}
	}
	transpose := func(t bool) blas.Transpose {
		if t {
			return blas.Trans
		}
		return blas.NoTrans
	}
	blas32.Gemm(transpose(ta), transpose(tb), 1, general(a, m, k, lda, ta), general(b, k, n, ldb, tb), beta,
		general(c, m, n, ldc, false))
}
