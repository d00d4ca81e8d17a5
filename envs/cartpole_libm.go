//go:build cgo

package envs

/*
#cgo CFLAGS: -std=c11 -O2
#cgo LDFLAGS: -lm
#cgo noescape azs_trig
#cgo nocallback azs_trig
#include <math.h>

// ISO C keeps the compiler from fusing products into sums; nothing but sin and cos is done here.
static void azs_trig(int n, const double *state, double *sines, double *cosines) {
	for (int i = 0; i < n; i++) {
		sines[i] = sin(state[4 * i + 2]);
		cosines[i] = cos(state[4 * i + 2]);
	}
}
*/
import "C"

import "unsafe"

// libmName is the value of the keyword math that this build gives for "libm".
const libmName = "libm"

// libmTrig takes the sine and cosine of every angle from the C library, in one call.
func libmTrig(states [][4]float64, sin, cos []float64) {
	if len(states) == 0 {
		return
	}
	C.azs_trig(C.int(len(states)), (*C.double)(unsafe.Pointer(&states[0])),
		(*C.double)(unsafe.Pointer(&sin[0])), (*C.double)(unsafe.Pointer(&cos[0])))
}
