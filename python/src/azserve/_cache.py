"""A cache of evaluations."""

from __future__ import annotations

import weakref

from . import _errors, _native
from ._native import lib
from ._pool import Pool


class Cache:
    """What an evaluator said of positions; give the same one to all searches with that evaluator.

    A search asks it before it makes a batch, so that a position is evaluated once, on whatever way it is
    met. Positions are told apart by all that the environment's rules and observations know of them, their
    history included. It changes no result. Not for evaluators that draw random numbers.

    Args:
        pool: A pool of the environment.
        positions: How many to remember, at least; each takes 16 + 4 * num_actions bytes, at once.
        max_bytes: Instead of ``positions``: take at most so many bytes.
    """

    def __init__(self, pool: Pool, positions: int = 1 << 20, *, max_bytes: int | None = None) -> None:
        block = _native.Block("azs_cache *")
        block.c.positions, block.c.num_actions = positions, pool.spec.num_actions
        if max_bytes is not None:
            if max_bytes <= 0:
                raise _errors.InvalidArgumentError(f"max_bytes={max_bytes}; want more than 0")
            block.c.max_bytes = max_bytes
        _native.call(lib.azs_cache_open, block)
        self._handle = int(block.c.cache)
        self._finalizer = weakref.finalize(self, _close, self._handle)

    def forget(self) -> None:
        """Forget everything: call it when the evaluator has new weights."""
        block = _native.Block("azs_cache *")
        block.c.cache = self._handle
        _native.call(lib.azs_cache_forget, block)


def _close(handle: int) -> None:
    if _native._forked:
        return
    block = _native.Block("azs_cache *")
    block.c.cache = handle
    lib.azs_cache_close(block.c)
