"""Arrays at the border: lossless conversion to what Go reads, or a clear refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import InvalidArgumentError

_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)


def int32(name: str, value: Any) -> NDArray[np.int32]:
    """Return a contiguous one-dimensional int32 array with the same numbers.

    Strided, reversed, byte-swapped and wider integer arrays are converted; a number that doesn't
    fit, and any float, is refused by name.
    """
    if type(value) is np.ndarray and value.dtype is _INT32 and value.ndim == 1 and value.flags.c_contiguous:
        return value
    array = np.asarray(value)
    if array.size == 0 and array.ndim <= 1:
        return np.empty(0, np.int32)
    if array.ndim == 0:
        raise InvalidArgumentError(f"{name} is a single number; want an array with one entry a row")
    if array.ndim != 1:
        raise InvalidArgumentError(f"{name} has shape {array.shape}; want one dimension")
    if array.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{name} has dtype {array.dtype}; want integers")
    if array.dtype.itemsize > 4 or array.dtype.kind == "u":
        bad = np.flatnonzero((array > 2**31 - 1) | (array < -(2**31)))
        if bad.size:
            raise InvalidArgumentError(f"{name}: row {bad[0]}: {array[bad[0]]} doesn't fit int32")
    return np.ascontiguousarray(array, np.int32)


def float32(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a contiguous float32 array of a shape. Wider floats are rounded; integers are taken."""
    if (
        type(value) is np.ndarray
        and value.dtype is _FLOAT32
        and value.shape == shape
        and value.flags.c_contiguous
    ):
        return value
    array = np.asarray(value)
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} has shape {array.shape}; want {shape}")
    if array.dtype.kind not in "fiub":
        raise InvalidArgumentError(f"{name} has dtype {array.dtype}; want floats")
    return np.ascontiguousarray(array, np.float32)


def mask(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a contiguous boolean array of a shape; integers 0 and 1 are taken."""
    array = np.asarray(value)
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} has shape {array.shape}; want {shape}")
    if array.dtype.kind not in "biu" or (array.dtype.kind != "b" and not np.isin(array, (0, 1)).all()):
        raise InvalidArgumentError(f"{name} has dtype {array.dtype}; want booleans, or integers 0 and 1")
    return np.ascontiguousarray(array, np.bool_)


def seeds(name: str, value: Any, n: int) -> NDArray[np.uint64]:
    """Return one unsigned seed a row from an integer s (s, s+1, ...) or from n integers."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = [int(value) + i for i in range(n)]
    array = np.asarray(value)
    if array.shape != (n,):
        raise InvalidArgumentError(f"{name} has shape {array.shape}; want an integer or {n} of them")
    if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and (array < 0).any()):
        raise InvalidArgumentError(f"{name} has dtype {array.dtype}; want integers from 0")
    return np.ascontiguousarray(array, np.uint64)


class Layout:
    """The arrays of a batch, side by side in one piece of memory.

    Go writes all of them in one call; each recv gets fresh memory, so what was returned before stays
    valid. Arrays start at multiples of 64 bytes, which JAX needs to take them without a copy.
    """

    # The fields of azs_rows in azserve.h, in their order; the observation arrays follow.
    _ROWS = ("env_id", "reward", "terminated", "truncated", "to_play", "elapsed", "mask", "child")

    def __init__(self, fields: list[tuple[str, np.dtype[Any], tuple[int, ...]]], rows: int) -> None:
        self.fields: list[tuple[str, np.dtype[Any], tuple[int, ...], int]] = []
        self._at = np.zeros(len(self._ROWS) + 16, np.uint64)
        self._present = np.zeros(len(self._at), np.bool_)
        at, obs = 0, len(self._ROWS)
        for name, dtype, shape in fields:
            self.fields.append((name, dtype, (rows, *shape), at))
            if name == "obs.action_mask":
                place = self._ROWS.index("mask")
            elif name.startswith("obs."):
                place, obs = obs, obs + 1
            else:
                place = self._ROWS.index(name)
            self._at[place], self._present[place] = at, True
            size = int(dtype.itemsize * rows * np.prod(shape, dtype=np.int64))
            at += (size + 63) // 64 * 64
        self.size = at + 64

    def point(self, rows: NDArray[np.uint64], address: int) -> None:
        """Write the arrays' addresses to an azs_rows, given as its 24 numbers."""
        np.add(self._at, np.uint64(address), out=rows, where=self._present)

    def allocate(self) -> tuple[NDArray[np.uint8], int, int]:
        """Return fresh memory, the offset of its first aligned byte and that byte's address."""
        slab = np.empty(self.size, np.uint8)
        address: int = slab.__array_interface__["data"][0]
        first = -address % 64
        return slab, first, address + first

    def views(self, slab: NDArray[np.uint8], first: int) -> dict[str, NDArray[Any]]:
        """Return the arrays in a piece of memory, by name."""
        return {name: np.ndarray(shape, dtype, slab, first + at) for name, dtype, shape, at in self.fields}
