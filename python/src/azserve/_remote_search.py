"""Searches on a server."""

from __future__ import annotations

import operator
import os
import queue
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native, _wire
from ._result import SearchResult, Tree
from .v1 import search_pb2

if TYPE_CHECKING:
    from ._client import Client

_SETTINGS = {f.name: f for f in search_pb2.SearchSettings.DESCRIPTOR.fields}


def needs_actions(options: dict[str, Any]) -> bool:
    """Tell whether options have arrays with one entry an action."""
    names = ("invalid_actions", "dirichlet_noise", "root_gumbel", "action_gumbel")
    return any(options.get(name) is not None for name in names)


def request(
    n: int,
    actions: int,
    *,
    model: str = "",
    num_simulations: int | ArrayLike = 32,
    policy: str = "gumbel",
    seed: int | ArrayLike | None = None,
    invalid_actions: ArrayLike | None = None,
    cache: Any = None,
    time_limit: float | ArrayLike | None = None,
    fast: ArrayLike | None = None,
    dirichlet_noise: ArrayLike | None = None,
    root_gumbel: ArrayLike | None = None,
    action_gumbel: ArrayLike | None = None,
    most: int = 1,
    **settings: Any,
) -> search_pb2.SearchRequest:
    """Return a search of n rows, without its roots."""
    m = search_pb2.SearchRequest(model=model)
    if cache is not None:
        raise _errors.InvalidArgumentError(
            "cache: a server has one of its own (azserve serve --cache); want none"
        )
    if np.ndim(num_simulations) > 0:
        each = _arrays.int32("num_simulations", num_simulations)
        if len(each) != n:
            raise _errors.InvalidArgumentError(
                f"num_simulations has {len(each)} entries; want {n}, one a row"
            )
        m.simulations.CopyFrom(_wire.tensor(each))
        num_simulations = int(each.max(initial=most))
    settings |= {"num_simulations": operator.index(num_simulations), "policy": policy}  # type: ignore[arg-type]
    for name, value in settings.items():
        if value is not None:
            _set(m.settings, name, value)
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        m.seed = int(seed) % 2**64
    else:
        m.seeds.CopyFrom(_wire.tensor(_arrays.seeds("seed", seed, n)))
    if invalid_actions is not None:
        m.invalid_actions.CopyFrom(
            _wire.tensor(_arrays.mask("invalid_actions", invalid_actions, (n, actions)))
        )
    noises = {"dirichlet_noise": dirichlet_noise, "root_gumbel": root_gumbel, "action_gumbel": action_gumbel}
    for name, noise in noises.items():
        if noise is not None:
            getattr(m, name).CopyFrom(_wire.tensor(_arrays.float32(name, noise, (n, actions))))
    if time_limit is not None:
        seconds = np.ascontiguousarray(np.broadcast_to(np.asarray(time_limit, np.float64), (n,)))
        m.time_limit.CopyFrom(_wire.tensor(seconds))
    if fast is not None:
        m.fast.CopyFrom(_wire.tensor(_arrays.mask("fast", fast, (n,))))
    return m


def _set(message: search_pb2.SearchSettings, name: str, value: Any) -> None:
    field = _SETTINGS.get(name)
    if field is None:
        raise _errors.InvalidArgumentError(f"no setting {name!r}; known: {', '.join(sorted(_SETTINGS))}")
    value = _native.json_value(name, value)
    try:
        if field.cpp_type == field.CPPTYPE_FLOAT and isinstance(
            value, str
        ):  # NaN and infinities, as JSON has them
            value = float(value)
        setattr(message, name, value)
    except (TypeError, ValueError) as e:
        raise _errors.InvalidArgumentError(f"{name}={value!r}: {e}") from None


def games(moves: Sequence[Sequence[int]], seed: int | ArrayLike) -> search_pb2.Games:
    """Return positions by the moves to them."""
    n = len(moves)
    seeds = np.full(n, seed) if np.ndim(seed) == 0 else np.asarray(seed)
    m = search_pb2.Games()
    for row, actions in enumerate(moves):
        m.games.add(seed=int(seeds[row]), actions=_arrays.int32(f"moves[{row}]", actions))
    return m


def result(m: search_pb2.SearchResponse) -> SearchResult:
    """Return an answer; raise the error of its first row that was given up."""
    stats = {f.name: getattr(m.stats, f.name) for f in m.stats.DESCRIPTOR.fields}
    tree = Tree(**_wire.named(m.tree)) if m.tree else None
    out = SearchResult(
        action=_wire.array(m.action),
        action_weights=_wire.array(m.action_weights),
        visits=_wire.array(m.visits),
        qvalues=_wire.array(m.qvalues),
        value=_wire.array(m.value),
        raw_value=_wire.array(m.raw_value),
        proven=_wire.array(m.proven),
        stats=stats,
        version=int(m.version),
        _tree=tree,
    )
    if m.errors:
        e = _wire.error(m.errors[0])
        if isinstance(e, _errors.EvaluatorError):
            e.result, e.errors = out, {x.row: _wire.error(x) for x in m.errors}
        raise e
    return out


class Stream:
    """Requests and answers of a stream, one after the other; not for several threads at a time."""

    def __init__(self, client: Client, method: Any) -> None:
        self._client = client
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers = client._call(method, iter(self._requests.get, None))
        self._ended = False

    def call(self, request: Any) -> Any:
        """Send a request and return its answer; raise what it failed with."""
        if self._ended:
            raise _errors.PoolClosedError("the search was closed")
        self._requests.put(request)
        try:
            answer = next(self._answers)
        except StopIteration:
            raise _errors.PoolClosedError("the server has ended the search") from None
        except grpc.RpcError as e:
            raise _wire.exception(e) from None
        except BaseException:  # Ctrl-C: the answer that is still to come must not be taken for another's
            self.close()
            raise
        if answer.WhichOneof("answer") == "error":
            raise _wire.error(answer.error)
        return answer

    def close(self) -> None:
        """End the stream. A second call does nothing."""
        if not self._ended and os.getpid() == self._client._pid:
            self._ended = True
            self._requests.put(None)
            self._answers.cancel()


def logits_and_values(
    prior_logits: ArrayLike | None, value: ArrayLike, n: int, actions: int
) -> tuple[NDArray[np.float32] | None, NDArray[np.float32]]:
    """Return an evaluator's answer as arrays of the right shape."""
    try:
        logits = None if prior_logits is None else _arrays.float32("prior_logits", prior_logits, (n, actions))
        return logits, _arrays.float32("value", value, (n,))
    except _errors.InvalidArgumentError as e:
        raise _errors.EvaluatorError(str(e)) from None
