"""A connection to a server."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _errors, _remote_search, _wire
from ._spec import Spec, settings
from ._states import Obs
from .v1 import (
    admin_pb2,
    admin_pb2_grpc,
    envs_pb2,
    envs_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    search_pb2_grpc,
)

if TYPE_CHECKING:
    from ._pool import Pool
    from ._remote_pool import RemotePool
    from ._result import SearchResult
    from ._search import Evaluator

MAX_MESSAGE = 64 << 20

# Searches and evaluations are pure, so they may be repeated where a server was not there for a moment.
_POLICY = """{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{
    "name": [{"service": "azserve.v1.Search", "method": "Run"},
        {"service": "azserve.v1.Models", "method": "Evaluate"},
        {"service": "azserve.v1.Envs", "method": "List"},
        {"service": "azserve.v1.Envs", "method": "Describe"}],
    "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]}}]}"""


@dataclass(frozen=True)
class TLSFiles:
    """Files of an encrypted connection, PEM.

    Attributes:
        ca: Certificates that the server's must be signed by; None: those of the system.
        cert: The client's certificate, for a server that wants one.
        key: Its private key.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Return what gRPC needs."""
        ca, cert, key = (None if f is None else Path(f).read_bytes() for f in (self.ca, self.cert, self.key))
        return grpc.ssl_channel_credentials(ca, key, cert)


@dataclass(frozen=True)
class Model:
    """A model of a server.

    Attributes:
        name: What searches call it.
        kind: ``"builtin"``, ``"file"`` or ``"attached"``.
        version: The active version; of attached evaluators the newest weights.
        versions: All that there are.
        ready: It can evaluate now.
        evaluators: Attached ones.
        rows, batches: That were evaluated; ``failed`` batches.
        default: It is the one of searches that name none.
    """

    name: str
    kind: str
    version: str
    versions: tuple[str, ...]
    ready: bool
    evaluators: int
    rows: int
    batches: int
    failed: int
    default: bool


def channel(target: str, token: str | None, tls: TLSFiles | bool | None, max_message: int) -> grpc.Channel:
    """Return a channel to a server; nothing is sent yet."""
    options = [
        ("grpc.max_receive_message_length", max_message),
        ("grpc.max_send_message_length", max_message),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.service_config", _POLICY),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls:
        files = TLSFiles() if tls is True else tls
        made = grpc.secure_channel(target, files.credentials(), options)
    else:
        made = grpc.insecure_channel(target, options)
    return grpc.intercept_channel(made, _Token(token)) if token else made


class _Token(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Sends a token with every call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _with(self, details: Any) -> Any:
        metadata = [*(details.metadata or ()), self._header]
        return _Details(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )

    def intercept_unary_unary(self, proceed: Any, details: Any, request: Any) -> Any:
        return proceed(self._with(details), request)

    def intercept_stream_stream(self, proceed: Any, details: Any, requests: Any) -> Any:
        return proceed(self._with(details), requests)


@dataclass
class _Details(grpc.ClientCallDetails):  # type: ignore[misc]
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None


def connect(
    target: str,
    token: str | None = None,
    tls: TLSFiles | bool | None = None,
    *,
    timeout: float = 10,
    max_message: int = MAX_MESSAGE,
) -> Client:
    """Connect to a server (``azserve serve``).

    Its pools, searches and results are the same as in process::

        with azserve.connect("localhost:50051") as server:
            pool = server.make("ConnectFour-v0", num_envs=64)
            obs, info = pool.reset()
            result = azserve.search(pool, pool.snapshot(), "default", num_simulations=64)

    Args:
        target: ``"host:port"`` or ``"unix:PATH"``.
        token: What the server knows this client by.
        tls: True for an encrypted connection with the system's certificates, or ``TLSFiles(...)``.
        timeout: Seconds to wait for the server.
        max_message: Most bytes of a message; the server has a limit of its own.

    Raises:
        UnavailableError: There is no server.
        AuthenticationError: It doesn't know the token.
    """
    client = Client(channel(target, token, tls, max_message), target)
    try:
        client._call(client._envs.List, envs_pb2.ListEnvsRequest(), timeout=timeout, wait_for_ready=True)
    except _errors.DeadlineError as e:
        client.close()
        raise _errors.UnavailableError(f"no answer from {target} within {timeout} s: {e}") from None
    except BaseException:
        client.close()
        raise
    return client


class Client:
    """A connection to a server; make one with ``azserve.connect``.

    Methods may be called from several threads.
    """

    def __init__(self, channel: grpc.Channel, target: str) -> None:
        self.target = target
        self._channel = channel
        self._envs = envs_pb2_grpc.EnvsStub(channel)  # type: ignore[no-untyped-call]
        self._search = search_pb2_grpc.SearchStub(channel)  # type: ignore[no-untyped-call]
        self._models = models_pb2_grpc.ModelsStub(channel)  # type: ignore[no-untyped-call]
        self._admin = admin_pb2_grpc.AdminStub(channel)  # type: ignore[no-untyped-call]
        self._pid = os.getpid()
        self._renewer = _Renewer(self)
        self._finalizer = weakref.finalize(self, _close, channel, self._renewer, self._pid)

    def _call(self, method: Any, request: Any, **options: Any) -> Any:
        """Make a call; raise what it failed with."""
        if os.getpid() != self._pid:
            raise _errors.ForkError(
                "connect again in this process: it was forked after the connection was made"
            )
        try:
            return method(request, **options)
        except grpc.RpcError as e:
            raise _wire.exception(e) from None
        except ValueError as e:  # of a closed channel
            raise _errors.PoolClosedError(f"the connection to {self.target} is closed: {e}") from None

    def list_envs(self) -> list[str]:
        """Return the ids of the environments that the server has."""
        return list(self._call(self._envs.List, envs_pb2.ListEnvsRequest()).ids)

    def spec(self, id: str = "", **keywords: Any) -> Spec:
        """Describe an environment, as ``azserve.spec``; the server's default if no id is given."""
        return _wire.spec(self._call(self._envs.Describe, _wire.env_ref(id, settings(keywords))))

    def make(
        self, id: str = "", num_envs: int = 1, batch_size: int | None = None, seed: Any = 0, **options: Any
    ) -> RemotePool:
        """Make a pool of environments on the server, as ``azserve.make``.

        Its threads are the server's own. A pool that is not closed is freed when this process is gone for as
        long as the server's lease.
        """
        from ._remote_pool import RemotePool

        return RemotePool(self, id, num_envs, batch_size, seed, **options)

    def search(
        self,
        env: str = "",
        *,
        states: Sequence[bytes] | None = None,
        moves: Sequence[Sequence[int]] | None = None,
        env_seed: int | ArrayLike = 0,
        evaluator: str = "",
        keywords: dict[str, Any] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> SearchResult:
        """Search states that no pool holds.

        Args:
            env: The environment; the server's default if empty.
            states: What ``Pool.dump`` returned [B].
            moves: Instead: the actions to each position from the start [B].
            env_seed: With ``moves``: seeds of the first states, one or [B].
            evaluator: A model of the server; its default if empty.
            keywords: The environment's settings.
            timeout: Seconds that the call may take.
            **options: As for ``azserve.search``.
        """
        if (states is None) == (moves is None):
            raise _errors.InvalidArgumentError(
                "states and moves are both given, or neither; want one of them"
            )
        n = len(states if states is not None else moves or ())
        ref = _wire.env_ref(env, settings(keywords or {}))
        spec = self._call(self._envs.Describe, ref) if _remote_search.needs_actions(options) else None
        actions = spec.num_actions if spec is not None else 0
        request = _remote_search.request(n, actions, model=evaluator, **options)
        request.env.CopyFrom(ref)
        if states is not None:
            request.states.states.extend(states)
        else:
            request.moves.CopyFrom(_remote_search.games(moves or (), env_seed))
        return _remote_search.result(self._call(self._search.Run, request, timeout=timeout))

    def models(self) -> list[Model]:
        """Return the models that the server has."""
        reply = self._call(self._models.List, models_pb2.ListModelsRequest())
        return [
            Model(
                m.name,
                m.kind,
                m.version,
                tuple(m.versions),
                m.ready,
                m.evaluators,
                m.rows,
                m.batches,
                m.failed,
                m.default,
            )
            for m in reply.models
        ]

    def load_model(
        self, name: str, files: Sequence[str | os.PathLike[str]], *, version: str = "", activate: bool = True
    ) -> str:
        """Send a model's files: an ONNX file, or those of ``azserve train``.

        Returns:
            The version that they have on the server.
        """
        request = models_pb2.LoadModelRequest(name=name, version=version, activate=activate)
        for path in map(Path, files):
            request.files.add(name=path.name, data=path.read_bytes())
        return str(self._call(self._models.LoadModel, request).version)

    def activate_model(self, name: str, version: str) -> None:
        """Make searches that begin from now on use a version of a model."""
        self._call(self._models.Activate, models_pb2.ActivateRequest(name=name, version=version))

    def stats(self) -> dict[str, Any]:
        """Return what the server does: the fields of ``azserve.v1.StatsResponse``."""
        m = self._call(self._admin.Stats, admin_pb2.StatsRequest())
        return {f.name: getattr(m, f.name) for f in m.DESCRIPTOR.fields}

    def drain(self, grace: float = 0) -> None:
        """Make the server end in good order.

        Args:
            grace: Seconds that what is in progress gets; 0: the server's own.
        """
        self._call(self._admin.Drain, admin_pb2.DrainRequest(grace=grace))

    def close(self) -> None:
        """End the connection. A second call does nothing."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether the connection was closed."""
        return not self._finalizer.alive

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[tuple[int, str], Client] = {}
_shared_lock = threading.Lock()


def evaluator(name: str, pool: Pool) -> Evaluator:
    """Return a model of a server as an evaluator of a pool in this process.

    Args:
        name: ``"grpc://TARGET/MODEL"``, where the target is as for ``connect``. The connection is kept.
        pool: The pool that it is for.
    """
    target, _, model = name.removeprefix("grpc://").rpartition("/")
    if not target or not model:
        raise _errors.InvalidArgumentError(f"evaluator={name!r}; want grpc://HOST:PORT/MODEL")
    key = os.getpid(), target
    with _shared_lock:
        if key not in _shared:
            _shared[key] = connect(target)
        client = _shared[key]
    ref = _wire.env_ref(pool.spec.id, pool._keywords)

    def evaluate(obs: Obs, action_mask: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
        request = models_pb2.EvaluateRequest(env=ref, model=model)
        for a in pool.spec.obs:
            t = _wire.tensor(np.ascontiguousarray(obs[a.name]))
            t.name = a.name
            request.observations.obs.append(t)
        request.observations.action_mask.CopyFrom(_wire.tensor(np.ascontiguousarray(action_mask)))
        reply = client._call(client._models.Evaluate, request)
        return _wire.array(reply.prior_logits), _wire.array(reply.value)

    return evaluate


class _Renewer:
    """Renews the leases of a connection's pools, from a thread that ends with the connection."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._lock = threading.RLock()  # guards the rest; a finalizer may come at any moment
        self._dead: list[str] = []  # pools that nobody has any more
        self._leases: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._ended = False

    def add(self, pool: str, lease: float) -> None:
        with self._lock:
            self._leases[pool] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="azserve-leases", daemon=True)
                self._thread.start()
        self._wake.set()

    def remove(self, pool: str) -> None:
        with self._lock:
            self._leases.pop(pool, None)

    def bury(self, pool: str) -> None:
        """Have a pool closed that is garbage; a finalizer makes no calls itself."""
        with self._lock:
            self._leases.pop(pool, None)
            self._dead.append(pool)
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            with self._lock:
                leases, dead = dict(self._leases), self._dead
                self._dead = []
            self._wake.wait(min(leases.values(), default=3.0) / 3)
            self._wake.clear()
            client = self._client()
            if client is None or self._ended:
                return
            for method, pools in ((client._envs.Close, dead), (client._envs.Renew, list(leases))):
                for pool in pools:
                    try:
                        client._call(method, envs_pb2.PoolRef(pool=pool), timeout=10)
                    except _errors.AzserveError:
                        pass  # a lease that is lost shows at the next call
            del client


def _close(channel: grpc.Channel, renewer: _Renewer, pid: int) -> None:
    if os.getpid() != pid:  # a forked child has no part in it
        return
    renewer.end()
    channel.close()


__all__ = ["Client", "Model", "TLSFiles", "connect"]
