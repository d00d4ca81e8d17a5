"""Calls from compiled JAX programs into Go: by XLA's FFI on the CPU, by callbacks elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from . import _errors, _native
from ._native import ffi, lib

# In the order of xla.h.
_OPS = (
    "reset", "step", "snapshot", "simulate", "observe", "release", "init", "pure", "open", "next", "result",
    "search",
)  # fmt: skip

# Versions of JAX that have what this needs: jax.ffi, and version 0.3 of the C interface or an older one.
_OLDEST = (0, 5, 0)

Shapes = Sequence[jax.ShapeDtypeStruct]


def _register() -> None:
    version = tuple(int(v) for v in jax.__version__.split(".")[:3])
    if version < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ImportError(f"azserve.jax_api needs jax {oldest} or newer, not {jax.__version__}")
    for i, name in enumerate(_OPS):
        address = int(ffi.cast("intptr_t", lib.azs_xla_handler(i)))
        if address == 0:
            raise _errors.LibraryError(
                "this libazserve was built without JAX: install jaxlib into .venv, then `make build`"
            )
        jax.ffi.register_ffi_target(f"azserve_{name}", jax.ffi.pycapsule(address), platform="cpu")


_register()


def call(
    op: str,
    results: Shapes,
    *args: Any,
    pool: int,
    config: dict[str, Any] | None = None,
    effect: bool = False,
    vmap_method: str = "sequential",
) -> Any:
    """Make a call; returns one array a result.

    Args:
        op: Which.
        results: Shapes and dtypes, in the order of xla_*.go.
        *args: Arrays.
        pool: The pool's number.
        config: Settings of a search.
        effect: Whether the call must happen, once and in its place, although nothing hands it on.
        vmap_method: As of jax.ffi.ffi_call.
    """
    text = "" if config is None else json.dumps(config)
    if jax.default_backend() != "cpu" or _force_callback:
        host = _host(op, pool, text, results, args[0].ndim)
        if effect:
            from jax.experimental import io_callback

            return io_callback(host, tuple(results), *args, ordered=True)
        return jax.pure_callback(host, tuple(results), *args, vmap_method=vmap_method)
    f = jax.ffi.ffi_call(f"azserve_{op}", tuple(results), has_side_effect=effect, vmap_method=vmap_method)
    return f(*args, pool=np.int64(pool), config=text)


_force_callback = False  # for tests: what a GPU would do


def _host(
    op: str, pool: int, text: str, results: Shapes, rank: int
) -> Callable[..., tuple[np.ndarray[Any, Any], ...]]:
    """Return the same call on NumPy arrays, which vmap may have given more axes in front."""
    number = _OPS.index(op)

    def run(*args: Any) -> tuple[np.ndarray[Any, Any], ...]:
        inputs = [np.ascontiguousarray(a) for a in args]
        lead = inputs[0].shape[: inputs[0].ndim - rank]
        outputs = [np.empty((*lead, *r.shape), r.dtype) for r in results]
        c = ffi.new("azs_xla *")
        data = text.encode()
        kept = [ffi.from_buffer("char[]", data)]
        c.pool, c.config, c.config_len = pool, kept[0], len(data)
        c.num_args, c.num_rets = len(inputs), len(outputs)
        for i, a in enumerate(inputs):
            kept.append(ffi.from_buffer(a))
            c.args[i], c.counts[i] = ffi.cast("void *", a.ctypes.data), a.size
        for i, a in enumerate(outputs):
            c.rets[i] = ffi.cast("void *", a.ctypes.data)
        if lib.azs_xla_call(number, c):
            raise _errors.AzserveError(ffi.string(c.message).decode("utf-8", "replace"))
        return tuple(outputs)

    return run


def generation(pool: int) -> int:
    """Return how many calls a pool has had."""
    return int(_native.text(lib.azs_xla_generation, handle=pool)[0])


def scope(pool: int, *, opened: bool) -> None:
    """Open a scope of states that calls make, or release those of the innermost one."""
    _native.text(lib.azs_xla_scope, {"open": opened}, pool)
