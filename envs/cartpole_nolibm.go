//go:build !cgo

package envs

// libmName says that this build has no C library, so the sine and cosine are Go's.
const libmName = "go(built without cgo: observations drift from Gymnasium's by up to 1e-6)"

func libmStep(c *carts, n int) { goStep(c, n) }
