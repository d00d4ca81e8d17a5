"""The states of a pool: snapshots, forks, bytes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native
from ._native import ffi, lib
from ._spec import Spec

Obs = dict[str, NDArray[Any]]

_FLAG = np.dtype(np.bool_)
_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)


class Fork:
    """The argument block and the memory of ``simulate_batch`` for n states; for one thread."""

    def __init__(self, handle: int, spec: Spec, n: int) -> None:
        fields = state_fields(spec)
        self.obs = obs_names(spec)
        fields += [("reward", _FLOAT32, ()), ("over", _FLAG, ())]
        self.child = ["state_id", "terminated", "truncated", "to_play"]
        fields += [("child", _INT32, ()), ("terminated", _FLAG, ()), ("truncated", _FLAG, ())]
        fields.append(("to_play", _INT32, ()))
        if spec.num_players > 1:
            fields.append(("rewards", _FLOAT32, (spec.num_players,)))
            self.child.append("rewards")
        fields += info_fields(spec)
        self.child += [a.name for a in spec.info]
        self.layout = _arrays.Layout(fields, n)
        self.block = _native.Block("azs_recv *")
        self.block.rows[:] = self.layout.offsets
        self.states, self.actions = np.empty(n, np.int32), np.empty(n, np.int32)
        self._pointers = [ffi.from_buffer("int32_t[]", a) for a in (self.states, self.actions)]
        c = self.block.c
        c.pool, c.n = handle, n
        c.states, c.actions = self._pointers


def state_fields(spec: Spec) -> list[_arrays.Field]:
    """Return the arrays of an observation and, last, the mask."""
    fields: list[_arrays.Field] = [(f"obs.{a.name}", a.dtype, a.shape) for a in spec.obs]
    return [*fields, ("mask", _FLAG, (spec.num_actions,))]


def read_fields(spec: Spec) -> list[_arrays.Field]:
    """Return the arrays of an observation, the mask last where legal actions depend on the state."""
    fields = state_fields(spec)
    return fields if spec.masks else fields[:-1]


def info_fields(spec: Spec) -> list[_arrays.Field]:
    """Return the arrays of an environment's info."""
    return [(f"info.{a.name}", a.dtype, a.shape) for a in spec.info]


def obs_names(spec: Spec) -> list[str]:
    """Return the keys of an observation, in the order of its arrays."""
    names = [a.name for a in spec.obs]
    return [*names, "action_mask"] if spec.masks else names


class States:
    """The part of a pool that works on states; see ``Pool``."""

    spec: Spec
    num_envs: int
    _handle: int
    _remote = False  # on a server

    def __init__(self) -> None:
        self._prepare()

    def _prepare(self) -> None:
        self._threads = threading.local()

    @property
    def closed(self) -> bool:
        """Whether the pool was closed."""
        raise NotImplementedError

    def snapshot(self, env_id: ArrayLike | None = None) -> NDArray[np.int32]:
        """Keep the present states of environments.

        Args:
            env_id: Which [n]; all if None. None of them may be in flight.

        Returns:
            State ids, int32 [n]; each is to be released once.
        """
        ids = np.arange(self.num_envs, dtype=np.int32) if env_id is None else _arrays.int32("env_id", env_id)
        out = np.empty(len(ids), np.int32)
        self._call(lib.azs_pool_snapshot, ids=ids, states=out)
        return self._keep(out)

    def restore(self, env_id: ArrayLike, state_id: ArrayLike) -> None:
        """Put states back into environments, which go on from there and count their steps from 0.

        The ids stay valid. Where a state has ended, as far as its mask tells, the next step begins an
        episode, whatever its action; with ``autoreset="disabled"`` the environment must be reset.
        """
        ids, states = _arrays.int32("env_id", env_id), _arrays.int32("state_id", state_id)
        same_length("env_id", ids, "state_id", states)
        self._call(lib.azs_pool_restore, ids=ids, states=states)

    def simulate_batch(
        self, state_id: ArrayLike, actions: ArrayLike
    ) -> tuple[Obs, NDArray[np.float32], NDArray[np.bool_], dict[str, Any]]:
        """Fork states: step a copy of each, and leave the states as they are.

        Args:
            state_id: States [n]; one may occur any number of times.
            actions: One action each [n]. In a state that has ended every action does nothing.

        Returns:
            ``(obs, reward, done, child)``, as ``recv``; ``child`` holds ``state_id`` (to be released),
            ``terminated``, ``truncated``, ``to_play``, ``action_mask``, with several players ``rewards``
            [n, P], and the environment's info.

        Raises:
            ActionError: An action is out of range or illegal; names the row. No state was made.
            StaleStateError: A state was released; likewise.
            BudgetError: There is no room for n more states; likewise.
        """
        states, a = _arrays.int32("state_id", state_id), _arrays.int32("actions", actions)
        n = len(states)
        if len(a) != n:
            same_length("state_id", states, "actions", a)
        fork = self._fork(n)
        fork.states[:] = states
        fork.actions[:] = a
        views, fork.block.base[0] = fork.layout.take()
        _native.call(lib.azs_pool_simulate, fork.block)
        obs = dict(zip(fork.obs, views, strict=False))
        at = len(fork.obs)
        mask = obs["action_mask"] if self.spec.masks else views[at]
        at += not self.spec.masks
        child: dict[str, Any] = dict(zip(fork.child, views[at + 2 :], strict=True))
        child["action_mask"] = mask
        self._keep(child["state_id"])
        return obs, views[at], views[at + 1], child

    def _fork(self, n: int) -> Fork:
        """Return this thread's block for n states; those of the last few sizes are kept."""
        try:
            forks: dict[int, Fork] = self._threads.forks
        except AttributeError:
            forks = self._threads.forks = {}
        fork = forks.get(n)
        if fork is None:
            if len(forks) >= 64:
                forks.clear()
            fork = forks[n] = Fork(self._handle, self.spec, n)
        return fork

    def release_batch(self, state_id: ArrayLike) -> None:
        """Release states. A state that is released already is a StaleStateError, and then none is."""
        states = _arrays.int32("state_id", state_id)
        self._release(states)
        scopes = self._scopes()
        if not scopes:
            return
        for i, n in Counter(states.tolist()).items():
            for scope in reversed(scopes):
                taken = min(scope[i], n)
                scope[i] -= taken
                n -= taken

    def _release(self, states: NDArray[np.int32]) -> None:
        self._call(lib.azs_pool_release, states=states)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Release every state that this thread makes inside of the ``with`` block at its end.

        States that were released by hand meanwhile are left alone. Scopes nest. Snapshots of one environment
        have the same id as long as it stays in its state, and each counts: a release takes one made in the
        innermost scope first.
        """
        scope: Counter[int] = Counter()
        scopes = self._scopes()
        scopes.append(scope)
        try:
            yield
        finally:
            scopes[:] = [s for s in scopes if s is not scope]
            left = np.fromiter(scope.elements(), np.int32)
            if len(left) and not self.closed:
                self._release(left)  # other scopes keep what they count of the same states

    def _scopes(self) -> list[Counter[int]]:
        """Return the open scopes of this thread, innermost last."""
        try:
            return self._threads.scopes  # type: ignore[no-any-return]
        except AttributeError:
            scopes: list[Counter[int]] = []
            self._threads.scopes = scopes
            return scopes

    def _keep(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        if scopes := self._scopes():
            scopes[-1].update(ids.tolist())
        return ids

    def dump(self, state_id: ArrayLike) -> list[bytes]:
        """Return each state as bytes: portable, versioned and checksummed, to be pickled, stored or sent."""
        states = _arrays.int32("state_id", state_id)
        n = len(states)
        offsets = np.zeros(n + 1, np.int64)
        block = _native.Block("azs_blobs *")
        c = block.c
        c.pool, c.n = self._handle, n
        pointers = _native.pointer("int32_t[]", states), _native.pointer("int64_t[]", offsets)
        c.states, c.offsets = pointers
        data = np.empty(n * 256, np.uint8)
        while True:
            room = _native.pointer("uint8_t[]", data)
            c.data, c.data_cap = room, len(data)
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
        for i, b in enumerate(blobs):
            if not isinstance(b, (bytes, bytearray, memoryview)):
                raise _errors.InvalidArgumentError(f"blobs: row {i} is a {type(b).__name__}; want bytes")
        offsets = np.cumsum([0, *(len(b) for b in blobs)], dtype=np.int64)
        data = b"".join(blobs)
        out = np.empty(len(blobs), np.int32)
        block = _native.Block("azs_blobs *")
        c = block.c
        c.pool, c.n = self._handle, len(blobs)
        pointers = _native.pointer("int32_t[]", out), _native.pointer("int64_t[]", offsets)
        c.states, c.offsets = pointers
        source = ffi.from_buffer("uint8_t[]", data)
        c.data, c.data_len = source, len(data)
        _native.call(lib.azs_pool_load, block)
        return self._keep(out)

    def replay(self, env_id: ArrayLike, step: ArrayLike) -> NDArray[np.int32]:
        """Make the states that environments were in at a step of their present episodes, by playing again.

        Needs ``record=True``. Steps are counted from the start of the episode, or from the last ``restore``.

        Args:
            env_id: Which environments [n].
            step: 0 to the number of steps so far, one number or one each [n].

        Returns:
            State ids, int32 [n], bit for bit what they were; each is to be released.
        """
        ids = _arrays.int32("env_id", env_id)
        steps = _arrays.int32("step", np.full(len(ids), step) if np.ndim(step) == 0 else step)
        same_length("env_id", ids, "step", steps)
        out = np.empty(len(ids), np.int32)
        self._call(lib.azs_pool_replay, ids=ids, actions=steps, states=out)
        return self._keep(out)

    def episode_actions(self, env_id: int) -> NDArray[np.int32]:
        """Return the actions of an environment's present episode so far. Needs ``record=True``."""
        reply, _ = _native.text(lib.azs_pool_actions, {"env_id": int(env_id)}, self._handle)
        return np.array(reply, np.int32)

    def state_hash(self, state_id: ArrayLike) -> NDArray[np.uint64]:
        """Return a key of each state: the same position has the same key, here and in every process."""
        states = _arrays.int32("state_id", state_id)
        keys = np.empty(len(states), np.uint64)
        self._call(lib.azs_pool_hash, states=states, keys=keys)
        return keys

    def observe(
        self, env_id: ArrayLike | None = None, *, state_id: ArrayLike | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Look at environments or states, without a step.

        Args:
            env_id: Environments [n]; all if None. None of them may be in flight.
            state_id: States [n] instead.

        Returns:
            ``(obs, info)``: as ``recv`` gives them; ``info`` holds ``to_play``, ``action_mask`` and the
            environment's info.
        """
        kind, rows = self._which(env_id, state_id)
        n, spec = len(rows), self.spec
        fields = state_fields(spec)
        layout = _arrays.Layout([*fields, ("to_play", _INT32, ()), *info_fields(spec)], n)
        block = _native.Block("azs_recv *")
        block.rows[:] = layout.offsets
        views, block.base[0] = layout.take()
        c = block.c
        c.pool, c.n = self._handle, n
        pointer = _native.pointer("int32_t[]", rows)
        setattr(c, kind, pointer)
        _native.call(lib.azs_pool_observe, block)
        at = len(spec.obs)
        names = ["action_mask", "to_play", *(a.name for a in spec.info)]
        return dict(zip(obs_names(spec), views, strict=False)), dict(zip(names, views[at:], strict=True))

    def render(
        self, env_id: ArrayLike | None = None, *, state_id: ArrayLike | None = None
    ) -> NDArray[np.uint8]:
        """Draw environments or states.

        Args:
            env_id: Which environments [n]; all if None.
            state_id: States [n] instead.

        Returns:
            Pictures, uint8 [n, height, width, 3] (red, green, blue); ``spec.frame_size`` is their size.
        """
        block = _native.Block("azs_paint *")
        kind, rows = self._which(env_id, state_id)
        n = len(rows)
        width, height = self.spec.frame_size
        frames = np.empty((n, height, width, 3), np.uint8)
        c = block.c
        c.pool, c.n = self._handle, n
        pointer = _native.pointer("int32_t[]", rows)
        setattr(c, kind, pointer)
        out = _native.pointer("uint8_t[]", frames)
        c.frames = out
        _native.call(lib.azs_pool_paint, block)
        return frames

    def text(self, state_id: int) -> str:
        """Draw a state as text."""
        reply, _ = _native.text(lib.azs_pool_text, {"state": int(state_id)}, self._handle)
        return str(reply)

    def _which(self, env_id: ArrayLike | None, state_id: ArrayLike | None) -> tuple[str, NDArray[np.int32]]:
        """Return "ids" and environments, or "states" and states: exactly one kind may be given."""
        if env_id is not None and state_id is not None:
            raise _errors.InvalidArgumentError("env_id and state_id are both given; want one of them")
        if state_id is not None:
            return "states", _arrays.int32("state_id", state_id)
        if env_id is None:
            return "ids", np.arange(self.num_envs, dtype=np.int32)
        return "ids", _arrays.int32("env_id", env_id)

    def _call(self, function: Any, **arrays: NDArray[Any]) -> None:
        """Call a function of azs_send with arrays of equal length."""
        kinds = {"keys": "uint64_t[]"}
        try:
            block: _native.Block = self._threads.block
        except AttributeError:
            block = self._threads.block = _native.Block("azs_send *")
            block.c.pool = self._handle
        c = block.c
        c.n = len(next(iter(arrays.values())))
        pointers = {name: _native.pointer(kinds.get(name, "int32_t[]"), a) for name, a in arrays.items()}
        for name, p in pointers.items():
            setattr(c, name, p)
        _native.call(function, block)


def same_length(a: str, x: NDArray[Any], b: str, y: NDArray[Any]) -> None:
    """Check that two arguments have an entry for each row."""
    if len(x) != len(y):
        raise _errors.InvalidArgumentError(f"{a} has {len(x)} entries, {b} {len(y)}")
