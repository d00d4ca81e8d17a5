"""Batched MCTS and AlphaZero search over real simulators, in process.

A pool runs many environments; their states can be snapshot, forked and searched::

    import azserve

    pool = azserve.make("ConnectFour-v0", num_envs=64)
    obs, info = pool.reset()
    states = pool.snapshot(info["env_id"])
    result = azserve.search(pool, states, "uniform", num_simulations=64)
    obs, reward, done, info = pool.step(result.action)
"""

from ._cache import Cache
from ._errors import (
    ActionError,
    AzserveError,
    BadStateError,
    BudgetError,
    CallOrderError,
    EnvBusyError,
    EnvIdError,
    EnvironmentPanicError,
    EpisodeEndedError,
    EvaluatorError,
    ForeignStateError,
    ForkError,
    InvalidArgumentError,
    KeywordError,
    LibraryError,
    NothingInFlightError,
    NotStartedError,
    PoolClosedError,
    RecvTimeoutError,
    StaleStateError,
    UnknownEnvError,
    UnsupportedError,
)
from ._native import load_library
from ._pool import Pool, make
from ._result import SearchResult, Tree
from ._search import Evaluation, Leaves, Search, evaluate, search
from ._spec import ArraySpec, Factorization, Spec, list_envs, spec

__version__ = "0.1.0"

__all__ = [
    "ActionError",
    "ArraySpec",
    "AzserveError",
    "BadStateError",
    "BudgetError",
    "Cache",
    "CallOrderError",
    "EnvBusyError",
    "EnvIdError",
    "EnvironmentPanicError",
    "EpisodeEndedError",
    "Evaluation",
    "EvaluatorError",
    "Factorization",
    "ForeignStateError",
    "ForkError",
    "InvalidArgumentError",
    "KeywordError",
    "Leaves",
    "LibraryError",
    "NotStartedError",
    "NothingInFlightError",
    "Pool",
    "PoolClosedError",
    "RecvTimeoutError",
    "Search",
    "SearchResult",
    "Spec",
    "StaleStateError",
    "Tree",
    "UnknownEnvError",
    "UnsupportedError",
    "__version__",
    "evaluate",
    "list_envs",
    "load_library",
    "make",
    "search",
    "spec",
]
