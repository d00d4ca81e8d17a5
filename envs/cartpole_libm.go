//go:build cgo

package envs

/*
#cgo CFLAGS: -std=c11 -O3
#cgo LDFLAGS: -lm
#cgo noescape azs_cartpole
#cgo nocallback azs_cartpole
#define _GNU_SOURCE
#include <math.h>

// One time step of n carts; the formula is CartPole.step's, operation by operation. ISO C keeps the
// compiler from fusing products into sums. glibc's sincos gives the bits of its sin and cos, in less time.
static void azs_cartpole(int n, double *restrict x, double *restrict v, double *restrict theta,
		double *restrict omega, const double *restrict force, double *restrict sines, double *restrict cosines) {
	for (int i = 0; i < n; i++) {
#ifdef __GLIBC__
		sincos(theta[i], &sines[i], &cosines[i]);
#else
		sines[i] = sin(theta[i]);
		cosines[i] = cos(theta[i]);
#endif
	}
	const double mass = 0.1 + 1.0, length = 0.5, pole = 0.1 * 0.5, tau = 0.02;
	for (int i = 0; i < n; i++) {
		double temp = (force[i] + (pole * (omega[i] * omega[i])) * sines[i]) / mass;
		double theta_acc = (9.8 * sines[i] - cosines[i] * temp) /
			(length * (4.0 / 3.0 - 0.1 * (cosines[i] * cosines[i]) / mass));
		double x_acc = temp - ((pole * theta_acc) * cosines[i]) / mass;
		x[i] += tau * v[i];
		v[i] += tau * x_acc;
		theta[i] += tau * omega[i];
		omega[i] += tau * theta_acc;
	}
}
*/
import "C"

import "unsafe"

// libmName is the value of the keyword math that this build gives for "libm".
const libmName = "libm"

// libmStep moves the first n carts by one time step in C, with the C library's sine and cosine.
func libmStep(c *carts, n int) {
	at := func(x *[cpChunk]float64) *C.double { return (*C.double)(unsafe.Pointer(x)) }
	C.azs_cartpole(C.int(n), at(&c.x), at(&c.v), at(&c.theta), at(&c.omega), at(&c.force), at(&c.sin), at(&c.cos))
}
