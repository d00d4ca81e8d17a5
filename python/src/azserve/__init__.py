"""Batched MCTS and AlphaZero search over real simulators, in process.

A pool runs many environments; their states can be snapshot, forked and searched::

    import azserve

    pool = azserve.make("ConnectFour-v0", num_envs=64)
    obs, info = pool.reset()
    states = pool.snapshot(info["env_id"])
    result = azserve.search(pool, states, "uniform", num_simulations=64)
    obs, reward, done, info = pool.step(result.action)
"""

from typing import TYPE_CHECKING, Any

from ._cache import Cache
from ._errors import (
    ActionError,
    AuthenticationError,
    AzserveError,
    BadStateError,
    BudgetError,
    CallOrderError,
    CancelledError,
    DeadlineError,
    EnvBusyError,
    EnvIdError,
    EnvironmentPanicError,
    EpisodeEndedError,
    EvaluatorError,
    ForbiddenError,
    ForeignStateError,
    ForkError,
    InvalidArgumentError,
    KeywordError,
    LibraryError,
    MessageTooLargeError,
    NothingInFlightError,
    NotStartedError,
    OverloadedError,
    PoolClosedError,
    RecvTimeoutError,
    StaleStateError,
    UnavailableError,
    UnknownEnvError,
    UnknownModelError,
    UnsupportedError,
)
from ._native import load_library
from ._pool import Pool, make
from ._result import Evaluation, SearchResult, Tree
from ._search import Leaves, Search, evaluate, search
from ._spec import ArraySpec, Factorization, Spec, list_envs, spec

if TYPE_CHECKING:
    from ._attach import EvaluatorServer, serve_evaluator
    from ._client import Client, Model, TLSFiles, connect

__version__ = "0.1.0"

# What needs gRPC is loaded at its first use.
_SERVERS = {
    "EvaluatorServer": "_attach",
    "serve_evaluator": "_attach",
    "TLSFiles": "_client",
    "Client": "_client",
    "Model": "_client",
    "connect": "_client",
}


def __getattr__(name: str) -> Any:
    if name not in _SERVERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_SERVERS[name]}", __name__), name)


__all__ = [
    "ActionError",
    "ArraySpec",
    "AuthenticationError",
    "AzserveError",
    "BadStateError",
    "BudgetError",
    "Cache",
    "CallOrderError",
    "CancelledError",
    "Client",
    "DeadlineError",
    "EnvBusyError",
    "EnvIdError",
    "EnvironmentPanicError",
    "EpisodeEndedError",
    "Evaluation",
    "EvaluatorError",
    "EvaluatorServer",
    "Factorization",
    "ForbiddenError",
    "ForeignStateError",
    "ForkError",
    "InvalidArgumentError",
    "KeywordError",
    "Leaves",
    "LibraryError",
    "MessageTooLargeError",
    "Model",
    "NotStartedError",
    "NothingInFlightError",
    "OverloadedError",
    "Pool",
    "PoolClosedError",
    "RecvTimeoutError",
    "Search",
    "SearchResult",
    "Spec",
    "StaleStateError",
    "TLSFiles",
    "Tree",
    "UnavailableError",
    "UnknownEnvError",
    "UnknownModelError",
    "UnsupportedError",
    "__version__",
    "connect",
    "evaluate",
    "list_envs",
    "load_library",
    "make",
    "search",
    "serve_evaluator",
    "spec",
]
