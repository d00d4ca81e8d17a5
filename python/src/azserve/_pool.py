"""The pool: many environments, stepped together."""

from __future__ import annotations

import operator
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native
from ._factored import FactoredActions
from ._native import ffi, lib
from ._result import Evaluation, SearchResult
from ._spec import Spec, decode, settings
from ._states import Obs, info_fields, obs_names, read_fields

Seed = int | Sequence[int] | None
Seeds = int | Sequence[int | None] | None
Step = tuple[Obs, NDArray[np.float32], NDArray[np.bool_], dict[str, Any]]

AUTORESET = ("same_step", "next_step", "disabled")
DISPATCH = ("auto", "inline", "threads")


def make(
    id: str,
    num_envs: int = 1,
    batch_size: int | None = None,
    seed: Seed = 0,
    *,
    num_threads: int | None = None,
    thread_affinity_offset: int | None = None,
    dispatch: str = "auto",
    autoreset: str = "same_step",
    max_states: int | None = None,
    max_bytes: int | None = None,
    record: bool = False,
    **keywords: Any,
) -> Pool:
    """Make a pool of environments.

    Args:
        id: Name of the environment; see ``list_envs()``.
        num_envs: How many there are.
        batch_size: Rows that a ``recv`` waits for; ``num_envs`` if None.
        seed: Environment i gets ``seed + i``, or ``seed[i]``; None takes entropy.
        num_threads: Worker threads; if None the variable ``AZSERVE_NUM_THREADS``, else all CPUs that
            this process may use, at most ``num_envs``.
        thread_affinity_offset: Pin worker t to CPU number ``(offset + t) % n`` of the n that this process
            may use (Linux); None doesn't pin.
        dispatch: ``"auto"`` shards big batches, ``"inline"`` never, ``"threads"`` always.
        autoreset: ``"same_step"``, ``"next_step"`` or ``"disabled"``, as Gymnasium defines them.
        max_states: Most snapshots and children at a time, at most 2**24; 2**20 if None.
        max_bytes: Most bytes of those, without what they refer to where they have pointers; no limit if None.
        record: Keep the actions of each episode, for ``replay`` and ``episode_actions``.
        **keywords: The environment's own settings; ``spec(id).keyword_docs`` lists them.

    Raises:
        UnknownEnvError: There is no such environment.
        KeywordError: A keyword is unknown or of the wrong kind.
        InvalidArgumentError: Another argument can't be; the message says which.
    """
    return Pool(
        id,
        num_envs,
        batch_size,
        seed,
        num_threads=num_threads,
        thread_affinity_offset=thread_affinity_offset,
        dispatch=dispatch,
        autoreset=autoreset,
        max_states=max_states,
        max_bytes=max_bytes,
        record=record,
        **keywords,
    )


class _Link:
    """The argument blocks of send and recv with their memory; for one thread."""

    def __init__(self, pool: Pool, apart: Callable[[NDArray[Any]], Iterable[Any]] = iter) -> None:
        n = pool.num_envs
        self.actions, self.ids = np.empty(n, np.int32), np.empty(n, np.int32)
        self.actions_at = ffi.from_buffer("int32_t[]", self.actions)
        self.ids_at = ffi.from_buffer("int32_t[]", self.ids)
        self.send = _native.Block("azs_send *")
        self.send.c.pool = pool._handle
        self.recv = _native.Block("azs_recv *")
        self.recv.c.pool = pool._handle
        self.start = _native.Block("azs_send *")
        self.start.c.pool = pool._handle
        self.layout = _arrays.Layout(pool._fields, pool.batch_size, apart)
        self.recv.rows[:] = self.layout.offsets


class Pool(FactoredActions):
    """Many environments stepped together; make one with ``azserve.make``.

    Methods may be called from several threads. Arrays that a method returns are fresh: later calls
    don't change them. A pool is closed by ``close()``, by leaving its ``with`` block, or when it is
    garbage.

    Attributes:
        spec: What the environment looks like.
        num_envs: How many environments there are.
        batch_size: Rows that a ``recv`` waits for.
        num_threads: Worker threads.
        autoreset: The autoreset mode.
    """

    def __init__(
        self,
        id: str,
        num_envs: int = 1,
        batch_size: int | None = None,
        seed: Seed = 0,
        *,
        num_threads: int | None = None,
        thread_affinity_offset: int | None = None,
        dispatch: str = "auto",
        autoreset: str = "same_step",
        max_states: int | None = None,
        max_bytes: int | None = None,
        record: bool = False,
        **keywords: Any,
    ) -> None:
        super().__init__()
        num_envs = positive("num_envs", num_envs)
        if seed is None:
            seed = int.from_bytes(os.urandom(6), "little")
        payload = {
            "id": id,
            "keywords": settings(keywords),
            "num_envs": num_envs,
            "batch_size": num_envs if batch_size is None else positive("batch_size", batch_size),
            "seeds": _arrays.seeds("seed", seed, num_envs).tolist(),
            "num_threads": _threads(num_threads),
            "cpus": _cpus(thread_affinity_offset),
            "dispatch": _arrays.option("dispatch", dispatch, DISPATCH),
            "autoreset": _arrays.option("autoreset", autoreset, AUTORESET),
            "max_states": 0 if max_states is None else positive("max_states", max_states),
            "max_bytes": 0 if max_bytes is None else positive("max_bytes", max_bytes),
            "record": bool(record),
        }
        reply, handle = _native.text(lib.azs_pool_open, payload)
        self.spec: Spec = decode(reply)
        self._keywords: dict[str, Any] = payload["keywords"]
        self.num_envs = num_envs
        self.batch_size: int = int(payload["batch_size"])
        self.num_threads: int = reply["num_threads"]
        self.autoreset = autoreset
        self._handle = handle
        self._finalizer: weakref.finalize[..., Any] = weakref.finalize(self, _close, handle)
        self._local = threading.local()
        self._describe()

    def _search(self, state_id: ArrayLike, evaluator: str, **options: Any) -> SearchResult:
        raise NotImplementedError  # of pools of a server

    def _evaluate(self, state_id: ArrayLike, evaluator: str, seed: int) -> Evaluation:
        raise NotImplementedError  # of pools of a server

    def _describe(self) -> None:
        """List the arrays of a recv, in the order in which it takes them apart."""
        spec, flag, number = self.spec, np.dtype(np.bool_), np.dtype(np.int32)
        self._obs_names = obs_names(spec)
        self._fields = [*read_fields(spec), ("reward", np.dtype(np.float32), ()), ("over", flag, ())]
        self._info_names = ["env_id", "terminated", "truncated", "to_play", "elapsed_step"]
        self._fields += [("env_id", number, ()), ("terminated", flag, ()), ("truncated", flag, ())]
        self._fields += [("to_play", number, ()), ("elapsed", number, ())]
        if spec.num_players > 1:
            self._fields.append(("rewards", np.dtype(np.float32), (spec.num_players,)))
            self._info_names.append("rewards")
        self._fields += info_fields(spec)
        self._info_names += [a.name for a in spec.info]
        self._fields.append(("failed", flag, ()))
        self._finals = len(self._fields)
        if self.autoreset == "same_step":
            self._fields += [(f"final_obs.{a.name}", a.dtype, a.shape) for a in spec.obs]
            self._fields += [(f"final_info.{a.name}", a.dtype, a.shape) for a in spec.info]

    def _link(self) -> _Link:
        """Return this thread's own blocks."""
        try:
            return self._local.link  # type: ignore[no-any-return]
        except AttributeError:
            link = self._local.link = _Link(self)
            return link

    # -- sending and receiving ------------------------------------------------------------------

    def async_reset(self, seed: Seeds = None, *, env_id: ArrayLike | None = None) -> None:
        """Start an episode in environments; the observations come with ``recv``.

        Args:
            seed: New seeds, as for ``make``; an entry None, or None for all, goes on with the
                environment's own stream.
            env_id: Which environments; all if None.
        """
        ids = None if env_id is None else _arrays.int32("env_id", env_id)
        n = self.num_envs if ids is None else len(ids)
        block = self._link().start
        c = block.c
        c.n = n
        seeds, seeded = _arrays.optional_seeds("seed", seed, n)
        kinds = ("int32_t[]", ids), ("uint64_t[]", seeds), ("uint8_t[]", seeded)
        pointers = [_native.pointer(kind, array) for kind, array in kinds]
        c.ids, c.seeds, c.seeded = pointers
        _native.call(lib.azs_pool_reset, block)

    def send(self, actions: ArrayLike, env_id: ArrayLike | None = None) -> None:
        """Give actions to environments.

        Args:
            actions: Integers [n].
            env_id: Which environments [n]; 0 to n - 1 if None.

        Raises:
            ActionError: An action is out of range or illegal; nothing was sent.
            EnvIdError: An environment doesn't exist or occurs twice.
            EnvBusyError: An environment is in flight.
        """
        link = self._link()
        kept = self._put(link, actions, env_id)
        _native.call(lib.azs_pool_send, link.send)
        del kept

    def _put(self, link: _Link, actions: ArrayLike, env_id: ArrayLike | None) -> Any:
        """Write actions to the block of send; what is returned must be kept until the call."""
        a = _arrays.int32("actions", actions, copy=False)
        n = len(a)
        c = link.send.c
        if env_id is None:
            if n != self.num_envs:
                raise _errors.InvalidArgumentError(
                    f"actions has {n} entries; want num_envs={self.num_envs}, or give env_id"
                )
            link.actions[:] = a
            c.n, c.actions, c.ids = n, link.actions_at, ffi.NULL
            return None
        ids = _arrays.int32("env_id", env_id, copy=False)
        if len(ids) != n:
            raise _errors.InvalidArgumentError(f"actions has {n} entries, env_id {len(ids)}")
        if n > self.num_envs:  # some occur twice: the library says which
            kept = [ffi.from_buffer("int32_t[]", np.ascontiguousarray(x)) for x in (a, ids)]
            c.n, c.actions, c.ids = n, *kept
            return kept
        link.actions[:n] = a
        link.ids[:n] = ids
        c.n, c.actions, c.ids = n, link.actions_at, link.ids_at
        return None

    def recv(self, timeout: float | None = None) -> Step:
        """Wait for results.

        With ``batch_size == num_envs`` they are those of everything sent, in the order of sending;
        else the first ``batch_size`` that are ready.

        Args:
            timeout: Seconds to wait; None waits for ever (Ctrl-C ends that). With ``dispatch="inline"`` the
                work is done by this call, and takes as long as it takes.

        Returns:
            ``(obs, reward, done, info)``: a dict of arrays [B, ...], with ``action_mask`` where legal
            actions depend on the state; float32 [B], to the player who moved; bool [B]; and a dict
            with ``env_id``, ``terminated``, ``truncated``, ``to_play``, ``elapsed_step`` [B], with several
            players ``rewards`` [B, P], and the environment's info. When episodes ended and began anew in
            the same step, also ``final_obs`` and, where there is info, ``final_info``: the last ones, with
            rows for the entries of ``done`` that are true.

        Raises:
            NothingInFlightError: Nothing was sent.
            RecvTimeoutError: The results come with a later call.
            EnvironmentPanicError: The code of environments failed; it holds the results of the others.
        """
        return self._recv(self._link(), timeout)

    def _recv(self, link: _Link, timeout: float | None) -> Step:
        views, link.recv.base[0] = link.layout.take()
        link.recv.c.timeout = -1.0 if timeout is None else seconds(timeout)
        try:
            _native.call(lib.azs_pool_recv, link.recv)
        except _errors.RecvTimeoutError:
            if timeout is not None:
                raise
            self._wait(link, views)
        except _errors.EnvironmentPanicError as e:
            raise self._failed(e, link, views) from None
        return self._apart(link, views)

    def _wait(self, link: _Link, views: tuple[NDArray[Any], ...]) -> None:
        """Go on with a recv that looks round now and then."""
        while True:
            time.sleep(0)  # a pending KeyboardInterrupt is raised here
            try:
                return _native.call(lib.azs_pool_recv, link.recv)
            except _errors.RecvTimeoutError:
                pass
            except _errors.EnvironmentPanicError as e:
                raise self._failed(e, link, views) from None

    def _failed(
        self, e: _errors.EnvironmentPanicError, link: _Link, views: tuple[NDArray[Any], ...]
    ) -> _errors.EnvironmentPanicError:
        """Add to an error what the others brought."""
        e.results = self._apart(link, views)
        info = e.results[3]
        e.env_id = info["env_id"][views[self._finals - 1][: len(info["env_id"])]]
        return e

    def _apart(self, link: _Link, views: tuple[NDArray[Any], ...]) -> Step:
        """Take the arrays of a recv apart."""
        c = link.recv.c
        n = c.n
        if n != self.batch_size:
            views = tuple(v[:n] for v in views)
        names = self._obs_names
        at = len(names)
        obs = dict(zip(names, views, strict=False))
        info: dict[str, Any] = dict(zip(self._info_names, views[at + 2 :], strict=False))
        if c.done and self.autoreset == "same_step":
            finals = [v[: c.done] for v in views[self._finals :]]
            k = len(self.spec.obs)
            info["final_obs"] = {a.name: v for a, v in zip(self.spec.obs, finals, strict=False)}
            if self.spec.info:
                info["final_info"] = {a.name: v for a, v in zip(self.spec.info, finals[k:], strict=True)}
        return obs, views[at], views[at + 1], info

    def reset(self, seed: Seeds = None) -> tuple[Obs, dict[str, Any]]:
        """Start an episode in every environment and return ``(obs, info)``; only for whole batches."""
        self._whole("reset")
        self.async_reset(seed)
        obs, _, _, info = self.recv()
        return obs, info

    def step(self, actions: ArrayLike) -> Step:
        """Send an action to every environment and receive all results; only for whole batches."""
        return self._step(self._link(), actions)

    def _step(self, link: _Link, actions: ArrayLike) -> Step:
        if self.batch_size != self.num_envs:
            self._whole("step")
        self._put(link, actions, None)
        views, link.recv.base[0] = link.layout.take()
        link.recv.c.timeout = -1.0
        try:
            _native.call(lib.azs_pool_step, link.recv, link.send.c)
        except _errors.RecvTimeoutError:
            self._wait(link, views)
        except _errors.EnvironmentPanicError as e:
            raise self._failed(e, link, views) from None
        return self._apart(link, views)

    def _whole(self, what: str) -> None:
        if self.batch_size != self.num_envs:
            raise _errors.InvalidArgumentError(
                f"{what} needs batch_size == num_envs; with {self.batch_size} of {self.num_envs} use "
                "async_reset, send and recv"
            )

    # -- the rest -------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return the accounting.

        Returns:
            A dict: ``live_states`` (snapshots and children that aren't released), ``states``,
            ``reserved_states`` (of searches), ``searches``, ``peak_states``, ``max_states``, ``bytes``;
            ``pending``, environments in flight; ``step_time_p50`` and ``step_time_p99``, float64
            [num_envs], seconds that a step of each environment takes, 0 where unknown; ``stragglers``,
            those that take over three times the pool's median and 10 us, slowest first.
        """
        reply, _ = _native.text(lib.azs_pool_stats, handle=self._handle)
        stats: dict[str, Any] = dict(reply)
        p50, p99 = np.zeros(self.num_envs), np.zeros(self.num_envs)
        slow = np.empty(self.num_envs, np.int32)
        block = _native.Block("azs_timing *")
        c = block.c
        c.pool = self._handle
        kinds = ("double[]", p50), ("double[]", p99), ("int32_t[]", slow)
        pointers = [_native.pointer(kind, array) for kind, array in kinds]
        c.p50, c.p99, c.stragglers = pointers
        _native.call(lib.azs_pool_timing, block)
        stats |= {"pending": int(c.pending), "step_time_p50": p50, "step_time_p99": p99}
        stats["stragglers"] = slow[: c.count].copy()
        return stats

    def close(self) -> None:
        """End the pool: a blocked ``recv`` raises PoolClosedError. A second call does nothing."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether the pool was closed."""
        return not self._finalizer.alive

    def __len__(self) -> int:
        return self.num_envs

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.num_threads} threads"
        return f"<azserve.Pool {self.spec.id}: {self.num_envs} environments, {state}>"


def _close(handle: int) -> None:
    if _native._forked:
        return
    block = _native.Block("azs_text *")
    block.c.handle = handle
    lib.azs_pool_close(block.c)


def positive(name: str, value: Any) -> int:
    """Return a number that must be a positive integer."""
    if isinstance(value, bool):
        raise _errors.InvalidArgumentError(f"{name}={value!r}; want a positive integer")
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}; want a positive integer") from None
    if n < 1:
        raise _errors.InvalidArgumentError(f"{name}={n}; want a positive integer")
    return n


def _threads(value: Any) -> int:
    """Return the number of threads, 0 for the default; Go's copy of the variables is of its start."""
    if value is None:
        variable = os.environ.get("AZSERVE_NUM_THREADS", "")
        if variable == "":
            return 0
        if not variable.isdecimal() or int(variable) < 1:
            raise _errors.InvalidArgumentError(f'AZSERVE_NUM_THREADS="{variable}"; want a positive integer')
        return int(variable)
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"num_threads={value!r}; want a positive integer") from None
    if isinstance(value, bool):
        raise TypeError(f"num_threads={value!r}; want a positive integer")
    if n < 0:
        raise OverflowError(f"num_threads={n}; want a positive integer")
    return positive("num_threads", n)


def seconds(timeout: Any) -> float:
    """Return a number of seconds, at most about thirty years."""
    try:
        value = float(timeout)
    except (TypeError, ValueError):
        raise _errors.InvalidArgumentError(f"timeout={timeout!r}; want seconds, or None") from None
    if not value >= 0 or value == float("inf"):
        raise _errors.InvalidArgumentError(f"timeout={timeout!r}; want 0 or more seconds, or None")
    return min(value, 1e9)


def _cpus(offset: int | None) -> list[int]:
    """Return the CPUs to pin worker 0, 1, ... to; none for None."""
    if offset is None:
        return []
    try:
        n = operator.index(offset)
    except TypeError:
        raise TypeError(f"thread_affinity_offset={offset!r}; want an integer from 0, or None") from None
    if n < 0:
        raise _errors.InvalidArgumentError(f"thread_affinity_offset={n}; want an integer from 0, or None")
    if not hasattr(os, "sched_getaffinity"):
        raise _errors.UnsupportedError("thread_affinity_offset: threads can be pinned on Linux only")
    cpus = sorted(os.sched_getaffinity(0))
    return [cpus[(n + i) % len(cpus)] for i in range(len(cpus))]
