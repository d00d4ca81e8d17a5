"""The pool: many environments, whose states can be snapshot and forked."""

from __future__ import annotations

import operator
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native
from ._native import ffi, lib
from ._spec import Spec, decode

Obs = dict[str, NDArray[Any]]
_Field = tuple[str, np.dtype[Any], tuple[int, ...]]


def make(
    id: str,
    num_envs: int = 1,
    batch_size: int | None = None,
    seed: int | Sequence[int] | None = 0,
    *,
    num_threads: int | None = None,
    dispatch: str = "auto",
    autoreset: str = "same_step",
    max_states: int | None = None,
    max_bytes: int | None = None,
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
        dispatch: ``"auto"`` shards big batches, ``"inline"`` never, ``"threads"`` always.
        autoreset: ``"same_step"``, ``"next_step"`` or ``"disabled"``, as Gymnasium defines them.
        max_states: Most snapshots and children at a time; 2**20 if None.
        max_bytes: Most bytes of states; no limit if None.
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
        dispatch=dispatch,
        autoreset=autoreset,
        max_states=max_states,
        max_bytes=max_bytes,
        **keywords,
    )


class Pool:
    """Many environments stepped together; make one with ``azserve.make``.

    Methods may be called from several threads. Arrays that a method returns are fresh: later calls
    don't change them. A pool is closed by ``close()``, by leaving its ``with`` block, or when it is
    garbage.
    """

    def __init__(
        self,
        id: str,
        num_envs: int = 1,
        batch_size: int | None = None,
        seed: int | Sequence[int] | None = 0,
        *,
        num_threads: int | None = None,
        dispatch: str = "auto",
        autoreset: str = "same_step",
        max_states: int | None = None,
        max_bytes: int | None = None,
        **keywords: Any,
    ) -> None:
        num_envs = _positive("num_envs", num_envs)
        if seed is None:
            seed = int.from_bytes(os.urandom(6), "little")
        payload = {
            "id": id,
            "keywords": _native.json_value(keywords),
            "num_envs": num_envs,
            "batch_size": num_envs if batch_size is None else _positive("batch_size", batch_size),
            "seeds": _arrays.seeds("seed", seed, num_envs).tolist(),
            "num_threads": _threads(num_threads),
            "dispatch": dispatch,
            "autoreset": autoreset,
            "max_states": 0 if max_states is None else _positive("max_states", max_states),
            "max_bytes": 0 if max_bytes is None else _positive("max_bytes", max_bytes),
        }
        reply, handle = _native.text(lib.azs_pool_open, payload)
        self.spec: Spec = decode(reply)
        self.num_envs = num_envs
        self.batch_size: int = int(payload["batch_size"])
        self.num_threads: int = reply["num_threads"]
        self.autoreset = autoreset
        self._handle = handle
        self._scopes: list[Counter[int]] = []
        self._finalizer = weakref.finalize(self, _close, handle)
        fields: list[_Field] = [(f"obs.{a.name}", a.dtype, a.shape) for a in self.spec.obs]
        if self.spec.masks:
            fields.append(("obs.action_mask", np.dtype(np.bool_), (self.spec.num_actions,)))
        flags = np.dtype(np.bool_)
        self._read_fields = fields
        self._recv_fields = [
            *fields,
            ("reward", np.dtype(np.float32), ()),
            ("env_id", np.dtype(np.int32), ()),
            ("terminated", flags, ()),
            ("truncated", flags, ()),
            ("to_play", np.dtype(np.int32), ()),
            ("elapsed", np.dtype(np.int32), ()),
        ]
        mask = [] if self.spec.masks else [("mask", flags, (self.spec.num_actions,))]
        self._simulate_fields = [
            *fields,
            *mask,
            ("reward", np.dtype(np.float32), ()),
            ("terminated", flags, ()),
            ("truncated", flags, ()),
            ("to_play", np.dtype(np.int32), ()),
            ("child", np.dtype(np.int32), ()),
        ]
        self._recv_layout = _arrays.Layout(self._recv_fields, self.batch_size)
        self._layouts: dict[tuple[str, int], _arrays.Layout] = {}
        self._local = threading.local()

    def _block(self, name: str) -> _native.Block:
        """Return this thread's own argument block of a name."""
        try:
            return self._local.blocks[name]  # type: ignore[no-any-return]
        except AttributeError:
            self._local.blocks = {}
        except KeyError:
            pass
        kind = "azs_send *" if name == "send" else "azs_recv *"
        block = self._local.blocks[name] = _native.Block(kind)
        block.c.pool = self._handle
        return block

    # -- sending and receiving ------------------------------------------------------------------

    def async_reset(self, seed: int | Sequence[int] | None = None) -> None:
        """Start an episode in every environment; the observations come with ``recv``.

        Args:
            seed: New seeds, as for ``make``; None goes on with each environment's own stream.
        """
        block = _native.Block("azs_send *")
        block.c.pool, block.c.n = self._handle, self.num_envs
        seeds = None if seed is None else _arrays.seeds("seed", seed, self.num_envs)
        block.c.seeds = _native.pointer("uint64_t[]", seeds)
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
        a = _arrays.int32("actions", actions)
        ids = None if env_id is None else _arrays.int32("env_id", env_id)
        if ids is None and len(a) != self.num_envs:
            raise _errors.InvalidArgumentError(
                f"actions has {len(a)} entries; want num_envs={self.num_envs}, or give env_id"
            )
        if ids is not None and len(ids) != len(a):
            raise _errors.InvalidArgumentError(f"actions has {len(a)} entries, env_id {len(ids)}")
        block = self._block("send")
        c = block.c
        c.n = len(a)
        actions_at, ids_at = _native.pointer("int32_t[]", a), _native.pointer("int32_t[]", ids)
        c.actions, c.ids = actions_at, ids_at
        _native.call(lib.azs_pool_send, block)

    def recv(
        self, timeout: float | None = None
    ) -> tuple[Obs, NDArray[np.float32], NDArray[np.bool_], dict[str, Any]]:
        """Wait for results.

        With ``batch_size == num_envs`` they are those of everything sent, in the order of sending;
        else the first ``batch_size`` that are ready.

        Args:
            timeout: Seconds to wait; None waits for ever (Ctrl-C ends that).

        Returns:
            ``(obs, reward, done, info)``: a dict of arrays [B, ...], with ``action_mask`` where legal
            actions depend on the state; float32 [B], to the player who moved; bool [B]; and a dict
            with ``env_id``, ``terminated``, ``truncated``, ``to_play``, ``elapsed_step`` [B], and,
            when an episode ended and was reset in the same step, ``final_obs``: the last
            observations, with rows for the entries of ``done`` that are true.

        Raises:
            NothingInFlightError: Nothing was sent.
            RecvTimeoutError: The results come with a later call.
        """
        slab, first, address = self._recv_layout.allocate()
        block = self._block("recv")
        block.c.timeout = -1.0 if timeout is None else max(0.0, float(timeout))
        self._recv_layout.point(block.rows, address)
        while True:
            try:
                _native.call(lib.azs_pool_recv, block)
                break
            except _errors.RecvTimeoutError:
                if timeout is not None:
                    raise
                time.sleep(0)  # a pending KeyboardInterrupt is raised here
        views = self._recv_layout.views(slab, first)
        n = block.c.n
        if n != self.batch_size:
            views = {name: v[:n] for name, v in views.items()}
        done = views["terminated"] | views["truncated"]
        info: dict[str, Any] = {
            "env_id": views["env_id"],
            "terminated": views["terminated"],
            "truncated": views["truncated"],
            "to_play": views["to_play"],
            "elapsed_step": views["elapsed"],
        }
        if block.c.done and self.autoreset == "same_step":
            info["final_obs"] = self._final(views["env_id"][done])
        return self._obs(views), views["reward"], done, info

    def reset(self, seed: int | Sequence[int] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Start an episode in every environment and return ``(obs, info)``; only for whole batches."""
        self._whole("reset")
        self.async_reset(seed)
        obs, _, _, info = self.recv()
        return obs, info

    def step(self, actions: ArrayLike) -> tuple[Obs, NDArray[np.float32], NDArray[np.bool_], dict[str, Any]]:
        """Send an action to every environment and receive all results; only for whole batches."""
        self._whole("step")
        self.send(actions)
        return self.recv()

    def _whole(self, what: str) -> None:
        if self.batch_size != self.num_envs:
            raise _errors.InvalidArgumentError(
                f"{what} needs batch_size == num_envs; with {self.batch_size} of {self.num_envs} use "
                "async_reset, send and recv"
            )

    def _final(self, ids: NDArray[np.int32]) -> Obs:
        ids = np.ascontiguousarray(ids)
        fields = [f for f in self._read_fields if f[0] != "obs.action_mask"]
        layout = self._layout("final", fields, len(ids))
        slab, first, address = layout.allocate()
        block = self._block("final")
        block.c.n = len(ids)
        block.c.states = _native.pointer("int32_t[]", ids)
        layout.point(block.rows, address)
        _native.call(lib.azs_pool_final, block)
        return self._obs(layout.views(slab, first))

    @staticmethod
    def _obs(views: Mapping[str, NDArray[Any]]) -> Obs:
        return {name[4:]: v for name, v in views.items() if name.startswith("obs.")}

    # -- states ---------------------------------------------------------------------------------

    def snapshot(self, env_id: ArrayLike | None = None) -> NDArray[np.int32]:
        """Keep the present states of environments.

        Args:
            env_id: Which [n]; all if None. None of them may be in flight.

        Returns:
            State ids, int32 [n]; each is to be released once.
        """
        ids = np.arange(self.num_envs, dtype=np.int32) if env_id is None else _arrays.int32("env_id", env_id)
        out = np.empty(len(ids), np.int32)
        self._states_call(lib.azs_pool_snapshot, ids, out)
        return self._keep(out)

    def restore(self, env_id: ArrayLike, state_id: ArrayLike) -> None:
        """Put states back into environments, which go on from there. The ids stay valid."""
        ids, states = _arrays.int32("env_id", env_id), _arrays.int32("state_id", state_id)
        if len(ids) != len(states):
            raise _errors.InvalidArgumentError(f"env_id has {len(ids)} entries, state_id {len(states)}")
        self._states_call(lib.azs_pool_restore, ids, states)

    def _states_call(self, function: Any, ids: NDArray[np.int32] | None, states: NDArray[np.int32]) -> None:
        block = self._block("send")
        c = block.c
        c.n = len(states)
        c.ids = _native.pointer("int32_t[]", ids)
        c.states = _native.pointer("int32_t[]", states)
        _native.call(function, block)

    def simulate_batch(
        self, state_id: ArrayLike, actions: ArrayLike
    ) -> tuple[Obs, NDArray[np.float32], NDArray[np.bool_], dict[str, Any]]:
        """Fork states: step a copy of each, and leave the states as they are.

        Args:
            state_id: States [n]; one may occur any number of times.
            actions: One action each [n]. In a state that has ended every action does nothing.

        Returns:
            ``(obs, reward, done, child)``, as ``recv``; ``child`` holds ``state_id`` (to be released),
            ``terminated``, ``truncated``, ``to_play`` and ``action_mask``.
        """
        states, a = _arrays.int32("state_id", state_id), _arrays.int32("actions", actions)
        if len(states) != len(a):
            raise _errors.InvalidArgumentError(f"state_id has {len(states)} entries, actions {len(a)}")
        n = len(states)
        layout = self._layout("simulate", self._simulate_fields, n)
        slab, first, address = layout.allocate()
        block = _native.Block("azs_recv *")
        block.c.pool, block.c.n = self._handle, n
        block.c.states = _native.pointer("int32_t[]", states)
        block.c.actions = _native.pointer("int32_t[]", a)
        layout.point(block.rows, address)
        _native.call(lib.azs_pool_simulate, block)
        views = layout.views(slab, first)
        obs = self._obs(views)
        child = {
            "state_id": self._keep(views["child"]),
            "terminated": views["terminated"],
            "truncated": views["truncated"],
            "to_play": views["to_play"],
            "action_mask": obs["action_mask"] if self.spec.masks else views["mask"],
        }
        return obs, views["reward"], views["terminated"] | views["truncated"], child

    def _layout(self, what: str, fields: list[_Field], n: int) -> _arrays.Layout:
        """Return the layout of n rows; those of the last few sizes are kept."""
        layout = self._layouts.get((what, n))
        if layout is None:
            if len(self._layouts) >= 256:
                self._layouts.clear()
            layout = self._layouts[what, n] = _arrays.Layout(fields, n)
        return layout

    def release_batch(self, state_id: ArrayLike) -> None:
        """Release states. A state that is released already is a StaleStateError, and then none is."""
        states = _arrays.int32("state_id", state_id)
        self._states_call(lib.azs_pool_release, None, states)
        for scope in reversed(self._scopes):
            scope.subtract({i: n for i, n in Counter(states.tolist()).items() if scope[i] >= n})

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Release every state that is made inside of the ``with`` block at its end.

        States that were released by hand meanwhile are left alone. Scopes nest.
        """
        scope: Counter[int] = Counter()
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes = [s for s in self._scopes if s is not scope]
            left = np.fromiter(scope.elements(), np.int32)
            if len(left) and not self.closed:
                self.release_batch(left)

    def _keep(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        if self._scopes:
            self._scopes[-1].update(ids.tolist())
        return ids

    def dump(self, state_id: ArrayLike) -> list[bytes]:
        """Return each state as bytes: portable, versioned and checksummed."""
        states = _arrays.int32("state_id", state_id)
        n = len(states)
        offsets = np.zeros(n + 1, np.int64)
        block = _native.Block("azs_blobs *")
        c = block.c
        c.pool, c.n = self._handle, n
        c.states = _native.pointer("int32_t[]", states)
        c.offsets = _native.pointer("int64_t[]", offsets)
        data = np.empty(n * 256, np.uint8)
        while True:
            c.data, c.data_cap = _native.pointer("uint8_t[]", data), len(data)
            _native.call(lib.azs_pool_dump, block)
            if c.data_len <= len(data):
                break
            data = np.empty(c.data_len, np.uint8)
        raw = data.tobytes()
        return [raw[offsets[i] : offsets[i + 1]] for i in range(n)]

    def load(self, blobs: Sequence[bytes]) -> NDArray[np.int32]:
        """Make states of what ``dump`` returned, here or in another process; they are to be released.

        Raises:
            BadStateError: A blob is damaged, or of another environment; no state was made.
        """
        offsets = np.cumsum([0, *(len(b) for b in blobs)], dtype=np.int64)
        data = b"".join(blobs)
        out = np.empty(len(blobs), np.int32)
        block = _native.Block("azs_blobs *")
        c = block.c
        c.pool, c.n = self._handle, len(blobs)
        c.states = _native.pointer("int32_t[]", out)
        c.offsets = _native.pointer("int64_t[]", offsets)
        source = ffi.from_buffer("uint8_t[]", data)
        c.data, c.data_len = source, len(data)
        _native.call(lib.azs_pool_load, block)
        return self._keep(out)

    # -- the rest -------------------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Return the accounting: ``live_states`` is how many snapshots and children aren't released."""
        reply, _ = _native.text(lib.azs_pool_stats, handle=self._handle)
        return dict(reply)

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


def _positive(name: str, value: Any) -> int:
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
    if n < 0:
        raise OverflowError(f"num_threads={n}; want a positive integer")
    return _positive("num_threads", n)
