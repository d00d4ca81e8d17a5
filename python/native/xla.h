/* The operations of azs_xla, by their numbers; jax_api.py has them in the same order. */
#pragma once

enum {
	AZS_XLA_RESET, AZS_XLA_STEP, AZS_XLA_SNAPSHOT, AZS_XLA_SIMULATE, AZS_XLA_OBSERVE, AZS_XLA_RELEASE,
	AZS_XLA_INIT, AZS_XLA_PURE, AZS_XLA_OPEN, AZS_XLA_NEXT, AZS_XLA_RESULT, AZS_XLA_SEARCH, AZS_XLA_OPS
};
