"""The native library: loading, argument blocks, errors. The only module that calls into Go."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import threading
from importlib import resources
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from . import _errors

_ABI = 5
_MESSAGE_BYTES = 2048

if sys.byteorder != "little":
    raise ImportError("azserve needs a little-endian machine: arrays are shared with Go without a copy")

ffi = cffi.FFI()


class _Library:
    """The functions of libazserve, which is loaded at the first use of one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path = ""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("azs_"):
            raise AttributeError(name)
        packaged = str(resources.files("azserve").joinpath("libazserve.so"))
        self.load(os.environ.get("AZSERVE_LIBRARY") or packaged)
        return self.__dict__[name]

    def load(self, path: str, *, must: bool = False) -> None:
        """Load a library, unless one is loaded; with must another one is an error."""
        path = os.path.abspath(path)
        with self._lock:
            if self._path:
                if must and not os.path.samefile(path, self._path):
                    raise _errors.LibraryError(
                        f"can't load {path}: {self._path} is in use already, and a process has one Go "
                        "runtime; call load_library before anything else, or set AZSERVE_LIBRARY"
                    )
                return
            functions = _open(path)
            self.__dict__.update(functions)
            self._path = path


def _open(path: str) -> dict[str, Any]:
    """Return the functions of a library by name.

    It looks for OpenBLAS and ONNX Runtime in the packages of this Python.
    """
    folders = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    os.environ.setdefault("AZSERVE_SITE_PACKAGES", os.pathsep.join(folders))
    try:
        native = ffi.dlopen(path)
        version = native.azs_abi_version()
    except (OSError, AttributeError) as e:
        raise _errors.LibraryError(f"can't load {path}: {e}; `make build` makes the package's own") from e
    if version != _ABI:
        raise _errors.LibraryError(
            f"{path} has interface {version}, this package {_ABI}: build both from one version of azserve"
        )
    return {name: getattr(native, name) for name in dir(native)}


def _declare() -> None:
    header = resources.files("azserve").joinpath("azserve.h").read_text(encoding="utf-8")
    ffi.cdef(re.sub(r"(?m)^#.*$", "", header))


_declare()
lib = _Library()
_forked = False


def load_library(path: str | os.PathLike[str]) -> None:
    """Use a library with environments of your own in place of the packaged one.

    It holds azserve's environments too. Call this before anything else of azserve; the variable
    ``AZSERVE_LIBRARY`` does the same. CONTRIBUTING.md shows how to build one.

    Args:
        path: The file, built with ``go build -buildmode=c-shared``.

    Raises:
        LibraryError: Another library is in use already, or it can't be loaded.
    """
    lib.load(os.fspath(path), must=True)


def _after_fork() -> None:
    global _forked
    _forked = bool(lib._path)


os.register_at_fork(after_in_child=_after_fork)


class Block:
    """A zeroed argument block with its message buffer, to be used by one thread at a time.

    Attributes:
        c: The block itself.
        base, rows: The address and the offsets in its azs_rows as arrays, where it has one.
    """

    __slots__ = ("_message", "base", "c", "rows")

    def __init__(self, kind: str) -> None:
        self.c = ffi.new(kind)
        self._message = ffi.new("char[]", _MESSAGE_BYTES)
        self.c.status.message = self._message
        self.c.status.message_cap = _MESSAGE_BYTES
        numbers: NDArray[np.int64] = np.empty(0, np.int64)
        if kind in ("azs_recv *", "azs_step *"):
            numbers = np.frombuffer(ffi.buffer(ffi.addressof(self.c, "rows")), np.int64)
        self.base, self.rows = numbers[:1], numbers[1:]


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


def json_value(name: str, value: Any) -> Any:
    """Return a setting as plain JSON: NumPy arrays and scalars become lists and numbers."""
    if isinstance(value, (np.ndarray, np.generic)):
        return json_value(name, value.tolist())
    if isinstance(value, dict):
        return {str(k): json_value(f"{name}[{k!r}]", v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(name, v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise _errors.KeywordError(
        f"{name}={value!r}: a {type(value).__name__} can't be a setting; want numbers, texts, lists or dicts"
    )
