"""Pools and searches on a server, with the methods of those in process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _remote_search, _wire
from ._pool import AUTORESET, Pool, Seed, Seeds, Step, positive, seconds
from ._result import Evaluation, SearchResult
from ._search import Leaves, Search
from ._spec import Spec, settings
from ._states import Obs, same_length
from .v1 import envs_pb2, models_pb2, search_pb2

if TYPE_CHECKING:
    from ._client import Client

_LOCAL = ("num_threads", "thread_affinity_offset", "dispatch")


class RemotePool(Pool):
    """A pool of environments on a server; make one with ``Client.make``. See ``Pool`` for its methods.

    A call is one round trip. The lease is renewed as long as the connection lives.
    """

    _remote = True

    def __init__(
        self,
        client: Client,
        id: str,
        num_envs: int = 1,
        batch_size: int | None = None,
        seed: Seed = 0,
        *,
        autoreset: str = "same_step",
        max_states: int | None = None,
        max_bytes: int | None = None,
        record: bool = False,
        **keywords: Any,
    ) -> None:
        for name in _LOCAL:
            if keywords.pop(name, None) is not None:
                raise _errors.InvalidArgumentError(f"{name}: threads are the server's own; want none")
        self._prepare()
        num_envs = positive("num_envs", num_envs)
        if seed is None:
            seed = int.from_bytes(os.urandom(6), "little")
        reply = client._call(
            client._envs.Open,
            envs_pb2.OpenRequest(
                env=_wire.env_ref(id, settings(keywords)),
                num_envs=num_envs,
                batch_size=0 if batch_size is None else positive("batch_size", batch_size),
                seeds=_arrays.seeds("seed", seed, num_envs).tolist(),
                autoreset=_arrays.option("autoreset", autoreset, AUTORESET),
                max_states=0 if max_states is None else positive("max_states", max_states),
                max_bytes=0 if max_bytes is None else positive("max_bytes", max_bytes),
                record=bool(record),
            ),
        )
        self._client = client
        self._pool = reply.pool
        self.spec: Spec = _wire.spec(reply.spec)
        self.num_envs, self.batch_size = num_envs, reply.batch_size
        self.num_threads, self.autoreset = reply.num_threads, autoreset
        client._renewer.add(reply.pool, reply.lease_ms / 1000)
        self._finalizer = weakref.finalize(self, _bury, client, reply.pool)

    def _do(self, method: Any, request: Any, **options: Any) -> Any:
        if self.closed:
            raise _errors.PoolClosedError("the pool was closed")
        return self._client._call(method, request, **options)

    # -- sending and receiving ------------------------------------------------------------------

    def _reset_request(self, seed: Seeds, env_id: ArrayLike | None) -> envs_pb2.ResetRequest:
        m = envs_pb2.ResetRequest(pool=self._pool)
        n = self.num_envs
        if env_id is not None:
            ids = _arrays.int32("env_id", env_id)
            n = len(ids)
            m.env_id.CopyFrom(_wire.tensor(ids))
        seeds, seeded = _arrays.optional_seeds("seed", seed, n)
        if seeds is not None:
            m.seeds.CopyFrom(_wire.tensor(seeds))
        if seeded is not None:
            m.seeded.CopyFrom(_wire.tensor(seeded))
        return m

    def _send_request(self, actions: ArrayLike, env_id: ArrayLike | None) -> envs_pb2.SendRequest:
        a = _arrays.int32("actions", actions)
        m = envs_pb2.SendRequest(pool=self._pool, actions=_wire.tensor(a))
        if env_id is None:
            if len(a) != self.num_envs:
                raise _errors.InvalidArgumentError(
                    f"actions has {len(a)} entries; want num_envs={self.num_envs}, or give env_id"
                )
            return m
        ids = _arrays.int32("env_id", env_id)
        same_length("actions", a, "env_id", ids)
        m.env_id.CopyFrom(_wire.tensor(ids))
        return m

    def async_reset(self, seed: Seeds = None, *, env_id: ArrayLike | None = None) -> None:
        """See ``Pool.async_reset``."""
        self._do(self._client._envs.AsyncReset, self._reset_request(seed, env_id))

    def send(self, actions: ArrayLike, env_id: ArrayLike | None = None) -> None:
        """See ``Pool.send``."""
        self._do(self._client._envs.Send, self._send_request(actions, env_id))

    def recv(self, timeout: float | None = None) -> Step:
        """See ``Pool.recv``."""
        m = envs_pb2.RecvRequest(pool=self._pool)
        if timeout is not None:
            m.timeout = seconds(timeout)
        return self._apart_message(self._do(self._client._envs.Recv, m))

    def reset(self, seed: Seeds = None) -> tuple[Obs, dict[str, Any]]:
        """See ``Pool.reset``."""
        self._whole("reset")
        reply = self._do(self._client._envs.Reset, self._reset_request(seed, None))
        obs, _, _, info = self._apart_message(reply)
        return obs, info

    def step(self, actions: ArrayLike) -> Step:
        """See ``Pool.step``."""
        self._whole("step")
        return self._apart_message(self._do(self._client._envs.Step, self._send_request(actions, None)))

    def _apart_message(self, m: envs_pb2.RecvResponse) -> Step:
        """Return results as ``recv`` does."""
        obs = _wire.named(m.obs)
        if self.spec.masks:
            obs["action_mask"] = _wire.array(m.action_mask)
        terminated, truncated = _wire.array(m.terminated), _wire.array(m.truncated)
        info: dict[str, Any] = {
            "env_id": _wire.array(m.env_id),
            "terminated": terminated,
            "truncated": truncated,
            "to_play": _wire.array(m.to_play),
            "elapsed_step": _wire.array(m.elapsed_step),
        }
        if self.spec.num_players > 1:
            info["rewards"] = _wire.array(m.rewards)
        info |= _wire.named(m.info)
        if m.final_obs:
            info["final_obs"] = _wire.named(m.final_obs)
            if self.spec.info:
                info["final_info"] = _wire.named(m.final_info)
        step = obs, _wire.array(m.reward), terminated | truncated, info
        if m.HasField("error"):
            e = _wire.error(m.error)
            if isinstance(e, _errors.EnvironmentPanicError):
                e.results, e.env_id = step, info["env_id"][_wire.array(m.failed)]
            raise e
        return step

    # -- states ---------------------------------------------------------------------------------

    def _state_ids(self, state_id: ArrayLike) -> envs_pb2.StateIds:
        return envs_pb2.StateIds(pool=self._pool, state_id=_wire.tensor(_arrays.int32("state_id", state_id)))

    def _made(self, reply: envs_pb2.StateIds) -> NDArray[np.int32]:
        return self._keep(_wire.array(reply.state_id))

    def snapshot(self, env_id: ArrayLike | None = None) -> NDArray[np.int32]:
        """See ``Pool.snapshot``."""
        m = envs_pb2.EnvIds(pool=self._pool)
        if env_id is not None:
            m.env_id.CopyFrom(_wire.tensor(_arrays.int32("env_id", env_id)))
        return self._made(self._do(self._client._envs.Snapshot, m))

    def restore(self, env_id: ArrayLike, state_id: ArrayLike) -> None:
        """See ``Pool.restore``."""
        ids, states = _arrays.int32("env_id", env_id), _arrays.int32("state_id", state_id)
        same_length("env_id", ids, "state_id", states)
        m = envs_pb2.RestoreRequest(pool=self._pool, env_id=_wire.tensor(ids), state_id=_wire.tensor(states))
        self._do(self._client._envs.Restore, m)

    def simulate_batch(
        self, state_id: ArrayLike, actions: ArrayLike
    ) -> tuple[Obs, NDArray[np.float32], NDArray[np.bool_], dict[str, Any]]:
        """See ``Pool.simulate_batch``."""
        states, a = _arrays.int32("state_id", state_id), _arrays.int32("actions", actions)
        same_length("state_id", states, "actions", a)
        m = envs_pb2.SimulateBatchRequest(
            pool=self._pool, state_id=_wire.tensor(states), actions=_wire.tensor(a)
        )
        reply = self._do(self._client._envs.SimulateBatch, m)
        obs, info = self._view(reply.view)
        child: dict[str, Any] = {
            "state_id": self._keep(_wire.array(reply.state_id)),
            "terminated": _wire.array(reply.terminated),
            "truncated": _wire.array(reply.truncated),
        }
        if self.spec.num_players > 1:
            child["rewards"] = _wire.array(reply.rewards)
        child |= info
        return obs, _wire.array(reply.reward), child["terminated"] | child["truncated"], child

    def _view(self, v: envs_pb2.View) -> tuple[Obs, dict[str, Any]]:
        """Return what states look like, as ``observe`` does."""
        obs, to_play = _wire.named(v.obs), _wire.array(v.to_play)
        mask = np.ones((len(to_play), self.spec.num_actions), np.bool_)
        if self.spec.masks:
            mask = obs["action_mask"] = _wire.array(v.action_mask)
        return obs, {"action_mask": mask, "to_play": to_play, **_wire.named(v.info)}

    def _release(self, states: NDArray[np.int32]) -> None:
        self._do(self._client._envs.Release, self._state_ids(states))

    def dump(self, state_id: ArrayLike) -> list[bytes]:
        """See ``Pool.dump``."""
        return list(self._do(self._client._envs.Dump, self._state_ids(state_id)).states)

    def load(self, blobs: Sequence[bytes]) -> NDArray[np.int32]:
        """See ``Pool.load``."""
        for i, b in enumerate(blobs):
            if not isinstance(b, (bytes, bytearray, memoryview)):
                raise _errors.InvalidArgumentError(f"blobs: row {i} is a {type(b).__name__}; want bytes")
        m = envs_pb2.LoadRequest(pool=self._pool, states=[bytes(b) for b in blobs])
        return self._made(self._do(self._client._envs.Load, m))

    def replay(self, env_id: ArrayLike, step: ArrayLike) -> NDArray[np.int32]:
        """See ``Pool.replay``."""
        ids = _arrays.int32("env_id", env_id)
        steps = _arrays.int32("step", np.full(len(ids), step) if np.ndim(step) == 0 else step)
        same_length("env_id", ids, "step", steps)
        m = envs_pb2.ReplayRequest(pool=self._pool, env_id=_wire.tensor(ids), step=_wire.tensor(steps))
        return self._made(self._do(self._client._envs.Replay, m))

    def episode_actions(self, env_id: int) -> NDArray[np.int32]:
        """See ``Pool.episode_actions``."""
        ids = _wire.tensor(_arrays.int32("env_id", [env_id]))
        reply = self._do(self._client._envs.Actions, envs_pb2.EnvIds(pool=self._pool, env_id=ids))
        return _wire.array(reply.actions[0])

    def state_hash(self, state_id: ArrayLike) -> NDArray[np.uint64]:
        """See ``Pool.state_hash``."""
        return _wire.array(self._do(self._client._envs.Hash, self._state_ids(state_id)).keys)

    def _rows(self, env_id: ArrayLike | None, state_id: ArrayLike | None) -> envs_pb2.Rows:
        kind, rows = self._which(env_id, state_id)
        name = "state_id" if kind == "states" else "env_id"
        return envs_pb2.Rows(pool=self._pool, **{name: _wire.tensor(rows)})

    def observe(
        self, env_id: ArrayLike | None = None, *, state_id: ArrayLike | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """See ``Pool.observe``."""
        return self._view(self._do(self._client._envs.Observe, self._rows(env_id, state_id)).view)

    def render(
        self, env_id: ArrayLike | None = None, *, state_id: ArrayLike | None = None
    ) -> NDArray[np.uint8]:
        """See ``Pool.render``."""
        return _wire.array(self._do(self._client._envs.Render, self._rows(env_id, state_id)).frames)

    def text(self, state_id: int) -> str:
        """See ``Pool.text``."""
        return str(self._do(self._client._envs.Text, self._state_ids([state_id])).texts[0])

    def _masks(
        self, kind: str, rows: NDArray[np.int32], values: NDArray[Any], lengths: NDArray[Any], width: int
    ) -> NDArray[np.bool_]:
        name = "state_id" if kind == "states" else "env_id"
        m = envs_pb2.QueryMaskRequest(
            rows=envs_pb2.Rows(pool=self._pool, **{name: _wire.tensor(rows)}),
            prefix=_wire.tensor(values),
            prefix_len=_wire.tensor(lengths),
            width=width,
        )
        return _wire.array(self._do(self._client._envs.QueryMask, m).mask)

    # -- search ---------------------------------------------------------------------------------

    def _search_request(
        self, state_id: ArrayLike, evaluator: str, **options: Any
    ) -> search_pb2.SearchRequest:
        states = _arrays.int32("state_id", state_id)
        m = _remote_search.request(len(states), self.spec.num_actions, model=evaluator, **options)
        m.pool_states.pool = self._pool
        m.pool_states.state_id.CopyFrom(_wire.tensor(states))
        return m

    def _search(self, state_id: ArrayLike, evaluator: str, **options: Any) -> SearchResult:
        """Search states with a model of the server."""
        request = self._search_request(state_id, evaluator, **options)
        return _remote_search.result(self._do(self._client._search.Run, request))

    def _evaluate(self, state_id: ArrayLike, evaluator: str, seed: int) -> Evaluation:
        """Ask a model of the server about states."""
        m = models_pb2.EvaluateRequest(model=evaluator, seed=seed % 2**64)
        m.pool_states.pool = self._pool
        m.pool_states.state_id.CopyFrom(_wire.tensor(_arrays.int32("state_id", state_id)))
        reply = self._do(self._client._models.Evaluate, m)
        return Evaluation(_wire.array(reply.prior_logits), _wire.array(reply.value), int(reply.version))

    # -- the rest -------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """See ``Pool.stats``."""
        m = self._do(self._client._envs.Stats, envs_pb2.PoolRef(pool=self._pool))
        values = ((f.name, getattr(m, f.name)) for f in m.DESCRIPTOR.fields)
        return {k: v if isinstance(v, int) else _wire.array(v) for k, v in values}

    def close(self) -> None:
        """See ``Pool.close``."""
        if self._finalizer.detach() is None or self._client.closed or os.getpid() != self._client._pid:
            return
        self._client._renewer.remove(self._pool)
        try:
            self._client._call(self._client._envs.Close, envs_pb2.PoolRef(pool=self._pool), timeout=5)
        except _errors.AzserveError:
            pass  # the lease runs out

    def __repr__(self) -> str:
        state = "closed" if self.closed else self._client.target
        return f"<azserve.Pool {self.spec.id}: {self.num_envs} environments, {state}>"


def _bury(client: Client, pool: str) -> None:
    if os.getpid() == client._pid:
        client._renewer.bury(pool)


class RemoteSearch(Search):
    """A search on a server; ``azserve.Search`` makes one of a server's pool."""

    def __init__(
        self,
        pool: RemotePool,
        state_id: ArrayLike,
        *,
        keep_tree: bool = False,
        evaluator: str | None = None,
        **options: Any,
    ) -> None:
        request = pool._search_request(state_id, evaluator or "", keep_tree=keep_tree, **options)
        self._pool = pool
        self._keep_tree = keep_tree
        self._stream = _remote_search.Stream(pool._client, pool._client._search.Session)
        self._finalizer = weakref.finalize(self, self._stream.close)
        begin = search_pb2.Begin(search=request, ask=evaluator is None)
        try:
            self._rows = self._stream.call(search_pb2.SessionRequest(begin=begin)).begun.rows
        except BaseException:
            self.close()
            raise
        self._waiting = 0

    def _ask(self, **call: Any) -> Any:
        return self._stream.call(search_pb2.SessionRequest(**call))

    def run(self) -> None:
        """See ``Search.run``."""
        _remote_search.result(self._ask(run=search_pb2.RunSearch()).result)

    def select(self) -> Leaves | None:
        """See ``Search.select``."""
        m = self._ask(select=search_pb2.Select()).leaves
        if not m.obs:
            return None
        mask = _wire.array(m.action_mask)
        n = self._waiting = len(mask)
        obs = _wire.named(m.obs)
        if self._pool.spec.masks:
            obs["action_mask"] = mask
        chance = _wire.array(m.chance) if m.HasField("chance") else np.zeros(n, np.bool_)
        return Leaves(obs, mask, chance)

    def expand(self, prior_logits: ArrayLike | None, value: ArrayLike) -> None:
        """See ``Search.expand``."""
        n, a = self._waiting, self._pool.spec.num_actions
        logits, values = _remote_search.logits_and_values(prior_logits, value, n, a)
        m = search_pb2.Expand(value=_wire.tensor(values))
        if logits is not None:
            m.prior_logits.CopyFrom(_wire.tensor(logits))
        self._ask(expand=m)
        self._waiting = 0

    def advance(self, actions: ArrayLike) -> None:
        """See ``Search.advance``."""
        a = _wire.tensor(_arrays.int32("actions", actions))
        self._ask(advance=search_pb2.Advance(actions=a))

    def result(self) -> SearchResult:
        """See ``Search.result``."""
        return _remote_search.result(self._ask(result=search_pb2.GetResult()).result)
