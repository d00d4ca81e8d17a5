"""The exceptions of azserve: one class for each error code of the native library."""

from typing import Any


class AzserveError(Exception):
    """Base of every error that azserve raises itself.

    Attributes:
        field: From a server: the field of the call that it is about; empty if it is about none.
        row: From a server: the row of that field; None if it is about none.
        retryable: The same call may succeed later.
        retry_after: Seconds until then, where the server knows.
    """

    field: str = ""
    row: int | None = None
    retryable: bool = False
    retry_after: float | None = None


class InvalidArgumentError(AzserveError, ValueError):
    """An argument can't be; the message names it, the value and what would be right."""


class KeywordError(AzserveError, TypeError):
    """An environment has no such keyword, or not with such a value."""


class StaleStateError(AzserveError, ValueError):
    """A state was released already."""


class ForeignStateError(AzserveError, ValueError):
    """A number is no state of this pool."""


class BudgetError(AzserveError, MemoryError):
    """The pool may not hold so many states: release some, or raise ``max_states``."""


class ActionError(AzserveError, ValueError):
    """An action is out of range or illegal in its state."""


class EnvIdError(AzserveError, ValueError):
    """An ``env_id`` is out of range or occurs twice."""


class EnvBusyError(AzserveError, RuntimeError):
    """An environment is in flight: receive its result first."""


class NothingInFlightError(AzserveError, RuntimeError):
    """Nothing was sent, so nothing can be received."""


class RecvTimeoutError(AzserveError, TimeoutError):
    """The results didn't come in time; they come with a later ``recv``."""


class PoolClosedError(AzserveError, RuntimeError):
    """The pool or search was closed."""


class EpisodeEndedError(AzserveError, RuntimeError):
    """An episode has ended and autoreset is disabled: reset first."""


class NotStartedError(AzserveError, RuntimeError):
    """An environment was never reset, or its code failed since."""


class BadStateError(AzserveError, ValueError):
    """Bytes are no snapshot of this environment, or damaged."""


class EvaluatorError(AzserveError, RuntimeError):
    """An evaluator answered with something that is no number, or of the wrong shape.

    Attributes:
        result: From a server: the SearchResult, in which the rows of ``errors`` don't count. None otherwise.
        errors: From a server: what went wrong, by row.
    """

    result: Any = None
    errors: Any = None


class EnvironmentPanicError(AzserveError, RuntimeError):
    """The code of an environment or evaluator failed; other rows are not affected.

    Attributes:
        env_id: From a ``recv`` or ``step``: the environments that failed, int32 [k]; each must be reset.
        results: From a ``recv`` or ``step``: ``(obs, reward, done, info)`` of the whole batch, in which the
            rows of those environments don't count. None otherwise.
    """

    env_id: Any = ()
    results: Any = None


class UnknownEnvError(AzserveError, ValueError):
    """No environment is registered under this id."""


class CallOrderError(AzserveError, RuntimeError):
    """``select`` and ``expand`` were not called in turn."""


class ForkError(AzserveError, RuntimeError):
    """The process was forked after azserve was loaded: use the start method "spawn"."""


class UnsupportedError(AzserveError, TypeError):
    """The environment doesn't have what was asked of it, such as action components."""


class LibraryError(AzserveError, ImportError):
    """The native library can't be loaded."""


class AuthenticationError(AzserveError, PermissionError):
    """The server wants a token, or doesn't know this one."""


class ForbiddenError(AzserveError, PermissionError):
    """The token doesn't allow this call."""


class OverloadedError(AzserveError, RuntimeError):
    """The server has no room, or a quota is used up: try again after ``retry_after`` seconds."""


class UnavailableError(AzserveError, ConnectionError):
    """The server can't be reached, drains, or has no evaluator for the model: try again later."""


class UnknownModelError(AzserveError, ValueError):
    """The server has no such model."""


class DeadlineError(AzserveError, TimeoutError):
    """The call's time was over before its answer came."""


class CancelledError(AzserveError, RuntimeError):
    """The call was cancelled."""


class MessageTooLargeError(AzserveError, ValueError):
    """A message is over the limit of one of the two sides."""


_CLASSES: dict[int, type[AzserveError]] = {
    1: InvalidArgumentError,
    2: KeywordError,
    3: StaleStateError,
    4: ForeignStateError,
    5: BudgetError,
    6: ActionError,
    7: EnvIdError,
    8: EnvBusyError,
    9: NothingInFlightError,
    10: RecvTimeoutError,
    11: PoolClosedError,
    12: EpisodeEndedError,
    13: NotStartedError,
    14: BadStateError,
    15: EvaluatorError,
    16: EnvironmentPanicError,
    17: UnknownEnvError,
    19: CallOrderError,
    20: UnsupportedError,
    21: AuthenticationError,
    22: ForbiddenError,
    23: OverloadedError,
    24: UnavailableError,
    25: UnknownModelError,
    26: DeadlineError,
    27: CancelledError,
    28: MessageTooLargeError,
}

TIMEOUT = 10


def from_code(code: int, message: str) -> AzserveError:
    """Return the exception for an error code of the native library."""
    return _CLASSES.get(code, AzserveError)(message)
