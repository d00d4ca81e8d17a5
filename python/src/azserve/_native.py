"""The native library: loading, argument blocks, errors. The only module that calls into Go."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import resources
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from . import _errors

_ABI = 2
_MESSAGE_BYTES = 2048

if sys.byteorder != "little":
    raise ImportError("azserve needs a little-endian machine: arrays are shared with Go without a copy")

ffi = cffi.FFI()


def _load() -> Any:
    package = resources.files("azserve")
    header = package.joinpath("azserve.h").read_text(encoding="utf-8")
    ffi.cdef(re.sub(r"(?m)^#.*$", "", header))
    path = os.environ.get("AZSERVE_LIBRARY") or str(package.joinpath("libazserve.so"))
    try:
        lib = ffi.dlopen(path)
    except OSError as e:
        raise ImportError(f"azserve: can't load {path}: {e}; `make build` makes it") from e
    if lib.azs_abi_version() != _ABI:
        raise ImportError(
            f"azserve: {path} has interface {lib.azs_abi_version()}, this package {_ABI}: "
            "build both from one version"
        )
    return lib


lib = _load()
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


class Block:
    """A zeroed argument block with its message buffer, to be used by one thread at a time.

    Attributes:
        c: The block itself.
        rows: The addresses in its azs_rows as an array, where it has one.
    """

    __slots__ = ("_message", "c", "rows")

    def __init__(self, kind: str) -> None:
        self.c = ffi.new(kind)
        self._message = ffi.new("char[]", _MESSAGE_BYTES)
        self.c.status.message = self._message
        self.c.status.message_cap = _MESSAGE_BYTES
        self.rows: NDArray[np.uint64] = np.empty(0, np.uint64)
        if kind in ("azs_recv *", "azs_step *"):
            self.rows = np.frombuffer(ffi.buffer(ffi.addressof(self.c, "rows")), np.uint64)


def call(function: Any, block: Block, *more: Any) -> None:
    """Call a native function; raise what it says went wrong. The GIL is free meanwhile."""
    if _forked:
        raise _errors.ForkError(
            "azserve was loaded before this process was forked; its threads did not survive: "
            'use multiprocessing\'s start method "spawn"'
        )
    code = function(block.c, *more)
    if code:
        message = ffi.string(block.c.status.message).decode("utf-8", "replace")
        raise _errors.from_code(code, message)


def text(function: Any, payload: Any = None, handle: int = 0) -> tuple[Any, int]:
    """Call a function of JSON in and JSON out; return what came and the handle."""
    block = Block("azs_text *")
    c = block.c
    data = json.dumps(payload, allow_nan=False).encode()
    source = ffi.from_buffer("char[]", data)
    setattr(c, "in", source)
    c.in_len = len(data)
    c.handle = handle
    cap = 1 << 14
    while True:
        out = ffi.new("char[]", cap)
        c.out, c.out_cap, c.out_len = out, cap, 0
        call(function, block)
        if c.out_len <= cap:
            break
        cap = c.out_len
    reply = ffi.buffer(out, c.out_len)[:]
    return (json.loads(reply) if reply else None), int(c.handle)


def pointer(kind: str, array: NDArray[Any] | None) -> Any:
    """Return an array's memory as C sees it, e.g. for "int32_t[]"; NULL for None.

    What is returned keeps the array alive, and must itself be kept until the call is over: a C struct
    doesn't.
    """
    return ffi.NULL if array is None else ffi.from_buffer(kind, array)


def json_value(value: Any) -> Any:
    """Return a keyword's value as plain JSON: NumPy arrays and scalars become lists and numbers."""
    if isinstance(value, np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, np.generic):
        return json_value(value.item())
    if isinstance(value, dict):
        return {str(k): json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    return value
