"""Messages of azserve.v1: tensors as arrays, errors as exceptions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _errors
from ._spec import Spec
from ._spec import decode as decode_spec

try:
    import grpc
    from google.protobuf.message import DecodeError

    from .v1 import envs_pb2, error_pb2, tensor_pb2
except ImportError as e:  # pragma: no cover
    raise ImportError(f"{e}; servers need `pip install azserve[grpc]`") from e

_DTYPES: dict[Any, np.dtype[Any]] = {
    tensor_pb2.DTYPE_FLOAT32: np.dtype(np.float32),
    tensor_pb2.DTYPE_FLOAT64: np.dtype(np.float64),
    tensor_pb2.DTYPE_INT32: np.dtype(np.int32),
    tensor_pb2.DTYPE_UINT8: np.dtype(np.uint8),
    tensor_pb2.DTYPE_BOOL: np.dtype(np.bool_),
    tensor_pb2.DTYPE_UINT64: np.dtype(np.uint64),
}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}


def tensor(array: NDArray[Any]) -> tensor_pb2.Tensor:
    """Return a contiguous array as a message."""
    return tensor_pb2.Tensor(dtype=_NUMBERS[array.dtype], shape=array.shape, data=array.tobytes())


def array(t: tensor_pb2.Tensor) -> NDArray[Any]:
    """Return a message as a fresh array."""
    flat: NDArray[Any] = np.frombuffer(bytearray(t.data), _DTYPES[t.dtype])
    return flat.reshape(t.shape)


def named(tensors: Any) -> dict[str, NDArray[Any]]:
    """Return tensors as arrays by their names."""
    return {t.name: array(t) for t in tensors}


def env_ref(id: str, keywords: dict[str, Any]) -> envs_pb2.EnvRef:
    """Return the name of an environment; keywords are plain JSON."""
    return envs_pb2.EnvRef(id=id, keywords={name: json.dumps(value) for name, value in keywords.items()})


def spec(m: envs_pb2.EnvSpec) -> Spec:
    """Return a specification."""

    def arrays(specs: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": a.name,
                "dtype": _DTYPES[a.dtype].name,
                "shape": list(a.shape),
                "low": [repr(v) for v in a.low],
                "high": [repr(v) for v in a.high],
            }
            for a in specs
        ]

    docs = [{"Name": k.name, "Kind": k.type, "Default": k.default, "Doc": k.doc} for k in m.keyword_docs]
    return decode_spec(
        {
            "id": m.id,
            "version": m.version,
            "keywords": m.keywords,
            "obs": arrays(m.obs),
            "num_actions": m.num_actions,
            "num_players": m.num_players,
            "num_outcomes": m.num_outcomes,
            "reward_range": (m.reward_low, m.reward_high),
            "max_episode_steps": m.max_episode_steps,
            "masks": m.masks,
            "any_action": m.any_action,
            "info": arrays(m.info),
            "component_names": list(m.component_names),
            "component_sizes": list(m.component_sizes),
            "frame_size": (m.frame_width, m.frame_height),
            "pure_width": 0,
            "keyword_docs": docs,
        }
    )


def error(m: error_pb2.Error) -> _errors.AzserveError:
    """Return the exception that a message describes."""
    e = _errors.from_code(m.code, m.message)
    e.field, e.retryable = m.path, m.retryable
    e.row = m.row if m.row >= 0 else None
    e.retry_after = m.retry_after_ms / 1000 if m.retry_after_ms else None
    return e


_CODES = {
    grpc.StatusCode.CANCELLED: _errors.CancelledError,
    grpc.StatusCode.DEADLINE_EXCEEDED: _errors.DeadlineError,
    grpc.StatusCode.UNAVAILABLE: _errors.UnavailableError,
    grpc.StatusCode.UNAUTHENTICATED: _errors.AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: _errors.ForbiddenError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: _errors.MessageTooLargeError,
    grpc.StatusCode.UNIMPLEMENTED: _errors.UnsupportedError,
    grpc.StatusCode.INVALID_ARGUMENT: _errors.InvalidArgumentError,
}


def exception(e: grpc.RpcError) -> _errors.AzserveError:
    """Return the exception for what a call failed with."""
    for key, value in e.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and (m := _detail(value)) is not None:
            return error(m)
    code = e.code()
    text = str(e.details() or code.name)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        text += "; raise the limit on both sides (azserve serve --max-message, connect(max_message=...))"
    out = _CODES.get(code, _errors.AzserveError)(text)
    out.retryable = code == grpc.StatusCode.UNAVAILABLE
    return out


def _detail(status: bytes) -> error_pb2.Error | None:
    """Return azserve's error in a google.rpc.Status: its field 3 is a list of Any, each a type and bytes."""
    marker = b"type.googleapis.com/azserve.v1.Error\x12"
    at = status.find(marker)
    if at < 0:
        return None
    at += len(marker)
    size = shift = 0
    while True:
        byte = status[at]
        size |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            break
    try:
        found: error_pb2.Error = error_pb2.Error.FromString(status[at : at + size])
        return found
    except DecodeError:
        return None
