"""Arrays at the border: lossless conversion to what Go reads, or a clear refusal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import InvalidArgumentError

_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)


def int32(name: str, value: Any, *, copy: bool = True) -> NDArray[np.int32]:
    """Return a one-dimensional int32 array with the same numbers; contiguous unless copy is False.

    Strided, reversed, byte-swapped and wider integer arrays are converted; a number that doesn't
    fit, and any float, is refused by name.
    """
    if type(value) is np.ndarray and value.dtype is _INT32 and value.ndim == 1:
        if not copy or value.flags.c_contiguous:
            return value
        return np.ascontiguousarray(value)
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


def option(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Return a text that must be one of a few."""
    if value not in known:
        raise InvalidArgumentError(f"{name}={value!r}; want one of {', '.join(map(repr, known))}")
    return str(value)


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
    if isinstance(value, (list, tuple)):
        array = np.empty(len(value), object)  # NumPy makes floats of small and large integers together
        array[:] = value
    else:
        array = np.asarray(value)
    if array.shape != (n,):
        raise InvalidArgumentError(f"{name} has shape {array.shape}; want an integer or {n} of them")
    for i, s in enumerate(array.tolist()):
        if not isinstance(s, (int, np.integer)) or isinstance(s, bool) or not 0 <= s < 2**64:
            raise InvalidArgumentError(f"{name}: row {i} is {s!r}; want an integer from 0 to 2**64 - 1")
    return np.array(array, np.uint64)


def optional_seeds(
    name: str, value: Any, n: int
) -> tuple[NDArray[np.uint64] | None, NDArray[np.bool_] | None]:
    """Return seeds as ``seeds`` does and which rows have one; None for none at all, or for all."""
    if value is None:
        return None, None
    if isinstance(value, (list, tuple)) and None in value:
        seeded = np.array([v is not None for v in value])
        return seeds(name, [0 if v is None else v for v in value], n), seeded
    return seeds(name, value, n), None


Field = tuple[str, np.dtype[Any], tuple[int, ...]]


class Layout:
    """Fresh memory for batch after batch: the arrays of one, side by side.

    Go writes all of them in one call. Each batch has memory of its own, so what was returned before stays
    valid. Arrays start at multiples of 64 bytes, which JAX needs to take them without a copy. Memory is
    allocated for several small batches at once. Not safe for concurrent use.

    Args:
        fields: Name, dtype and shape of a row of each array. The names are those of azs_rows in azserve.h;
            arrays of an environment's own are ``"obs.NAME"``, ``"info.NAME"`` and so on, in their order.
        rows: Rows of a batch.
        apart: What makes the arrays of single batches from that of several, which it gets first axis first;
            ``take`` then returns what this returns.
    """

    _PLAIN = (
        "env_id", "reward", "terminated", "truncated", "over", "to_play", "elapsed", "mask", "child",
        "rewards", "failed",
    )  # fmt: skip
    _GROUPS = ("obs", "info", "final_obs", "final_info")
    _ARRAYS = 16  # places of each group
    _CHUNK = 1 << 18  # bytes allocated at once, if batches are smaller

    def __init__(
        self, fields: list[Field], rows: int, apart: Callable[[NDArray[Any]], Iterable[Any]] = iter
    ) -> None:
        self._apart = apart
        self.offsets = np.full(len(self._PLAIN) + self._ARRAYS * len(self._GROUPS), -1, np.int64)
        self._fields: list[tuple[np.dtype[Any], tuple[int, ...], int]] = []
        used = dict.fromkeys(self._GROUPS, 0)
        at = 0
        for name, dtype, shape in fields:
            group, dot, _ = name.partition(".")
            if dot:
                place = len(self._PLAIN) + self._ARRAYS * self._GROUPS.index(group) + used[group]
                used[group] += 1
            else:
                place = self._PLAIN.index(name)
            self.offsets[place] = at
            self._fields.append((dtype, (rows, *shape), at))
            size = dtype.itemsize * rows * math.prod(shape)
            at += (size + 63) // 64 * 64
        self._size = at
        self._next = 1  # batches of the next allocation: more and more, as a layout may be used only once
        self._views: Iterator[tuple[Any, ...]] = iter(())
        self._address = 0

    def take(self) -> tuple[tuple[Any, ...], int]:
        """Return the arrays of a fresh batch, in the order of the fields, and the address of its memory."""
        views = next(self._views, None)
        if views is None:
            self._allocate()
            views = next(self._views)
        address = self._address
        self._address += self._size
        return views, address

    def _allocate(self) -> None:
        n = self._next
        self._next = max(1, min(2 * n, self._CHUNK // max(self._size, 1)))
        memory = np.empty(n * self._size + 64, np.uint8)
        address: int = memory.__array_interface__["data"][0]
        first = -address % 64
        self._address = address + first
        arrays = []
        for dtype, shape, at in self._fields:
            inner = tuple(dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape)))
            array = np.ndarray((n, *shape), dtype, memory, first + at, (self._size, *inner))
            arrays.append(self._apart(array))
        self._views = zip(*arrays, strict=True)
