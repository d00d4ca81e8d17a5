"""Go simulators inside ``jax.jit``: a pool, pure environments, and azserve's own search.

On the CPU a compiled program calls Go through XLA's FFI, without Python: about a microsecond a call, where a
Python callback takes a hundred. On other backends the same calls are callbacks: ``pure_callback``, or
``io_callback`` where there is a side effect. Made and tested with JAX 0.10.2; needs 0.5 or newer.

Three ways, from the most to the least functional:

- ``PureEnv``: the state is bytes in an array. ``init`` and ``step`` are pure functions under jit, vmap, scan
  and mctx, with pgx's names. For environments whose states are plain data.
- ``JaxPool.simulate`` and ``jax_api.search`` on state ids: the states stay in Go. For every environment.
- ``JaxPool.reset`` and ``step``: live environments, which change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _errors, _xla
from ._pool import Pool
from ._spec import ArraySpec, Spec

__all__ = ["Forked", "JaxPool", "PureEnv", "SearchOutput", "SearchSummary", "SearchTree", "State", "search"]

Array = Any  # jax.Array
Step = tuple[dict[str, Array], Array, Array, dict[str, Array]]
ApplyFn = Callable[[Any, Any, Array], tuple[Array, Array]]

_ANY = np.array([0, 0xFFFFFFFF, 0xFFFFFFFF, 0], np.uint32)  # a handle that isn't checked


def _shape(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def _arrays(specs: Sequence[ArraySpec], lead: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    for a in specs:
        if a.dtype == np.float64 and not jax.config.jax_enable_x64:
            raise _errors.UnsupportedError(f"{a.name} is float64: set jax_enable_x64")
    return [_shape((*lead, *a.shape), a.dtype) for a in specs]


def _seed_pairs(key: Array, shape: tuple[int, ...]) -> Array:
    """Return 64-bit seeds as pairs of 32 bits, drawn from a key."""
    return jax.random.bits(key, (*shape, 2), jnp.uint32)


def _named(specs: Sequence[ArraySpec], values: Sequence[Array]) -> dict[str, Array]:
    return {a.name: v for a, v in zip(specs, values, strict=True)}


class _Taker:
    """Takes results apart in their order."""

    def __init__(self, values: Sequence[Array]) -> None:
        self._values, self._at = values, 0

    def one(self) -> Array:
        self._at += 1
        return self._values[self._at - 1]

    def named(self, specs: Sequence[ArraySpec]) -> dict[str, Array]:
        return _named(specs, [self.one() for _ in specs])


class JaxPool:
    """A pool whose environments step inside of compiled programs.

    ``reset`` and ``step`` change the pool: they have a side effect, which XLA does once and in its place::

        pool = JaxPool("Maze-v0", num_envs=256)
        obs, reward, done, info = jax.jit(pool.reset)(jax.random.key(0))
        obs, reward, done, info = jax.jit(pool.step)(actions)

    ``step_with`` is faster in loops, and safe under every transformation: a handle is threaded through and
    changes with every call, and one that was used before is an error, so that no step is done twice. A call
    whose results nobody uses doesn't happen::

        handle, (obs, reward, done, info) = pool.step_with(handle, actions)

    Args:
        id: Name of the environment.
        num_envs: How many there are on each device.
        num_devices: Devices, each with a pool of its own; then ``handle`` has a row a device, to be mapped by
            ``pmap`` or ``shard_map``, and ``reset`` and ``step`` aren't there.
        seed: As of ``azserve.make``; device d continues where device d - 1 ends.
        **settings: Those of ``azserve.make`` and the environment's own. ``autoreset="next_step"`` shows the
            last observation of an episode.
    """

    def __init__(
        self, id: str, num_envs: int = 1, *, num_devices: int = 1, seed: int = 0, **settings: Any
    ) -> None:
        pools = [Pool(id, num_envs, seed=seed + d * num_envs, **settings) for d in range(num_devices)]
        self._attach(pools)

    @classmethod
    def from_pools(cls, pools: Sequence[Pool]) -> JaxPool:
        """Use pools that exist, one a device; closing either closes both."""
        self = cls.__new__(cls)
        self._attach(list(pools))
        return self

    def _attach(self, pools: list[Pool]) -> None:
        if not pools:
            raise _errors.InvalidArgumentError("pools is empty; want one a device")
        for p in pools:
            if p.batch_size != p.num_envs:
                raise _errors.InvalidArgumentError(f"batch_size={p.batch_size}; want num_envs={p.num_envs}")
            if (p.spec.id, p.spec.keywords, p.num_envs) != (
                pools[0].spec.id,
                pools[0].spec.keywords,
                pools[0].num_envs,
            ):
                raise _errors.InvalidArgumentError("pools differ in environment, keywords or num_envs")
        self.pools = pools
        self.spec: Spec = pools[0].spec
        self.num_envs = pools[0].num_envs

    @property
    def pool(self) -> Pool:
        """The pool of the first device."""
        return self.pools[0]

    @property
    def num_devices(self) -> int:
        """How many pools there are."""
        return len(self.pools)

    @property
    def handle(self) -> Array:
        """The handle for the next call, uint32 [4]; with several devices [D, 4].

        JAX runs programs on while Python goes on: wait for the results of ``step_with`` before.
        """
        jax.effects_barrier()  # reset and step may still run
        rows = []
        for d, p in enumerate(self.pools):
            g = _xla.generation(p._handle)
            rows.append([d, g >> 32, g & 0xFFFFFFFF, 0])
        handles = np.array(rows, np.uint32)
        return jnp.asarray(handles if len(rows) > 1 else handles[0])

    # -- live environments ----------------------------------------------------------------------

    def reset(self, key: Array) -> Step:
        """Start an episode in every environment, with seeds from a key. It has a side effect."""
        return self._live("reset", self._one(), _seed_pairs(key, (self.num_envs,)), effect=True)[1]

    def step(self, actions: Array) -> Step:
        """Step every environment. It has a side effect."""
        return self._live("step", self._one(), jnp.asarray(actions, jnp.int32), effect=True)[1]

    def reset_with(self, handle: Array, key: Array) -> tuple[Array, Step]:
        """Start an episode in every environment; returns the next handle and the results."""
        return self._live("reset", handle, _seed_pairs(key, (self.num_envs,)))

    def step_with(self, handle: Array, actions: Array) -> tuple[Array, Step]:
        """Step every environment; returns the next handle and the results."""
        return self._live("step", handle, jnp.asarray(actions, jnp.int32))

    def snapshot_with(self, handle: Array) -> Any:
        """Keep the present states; returns the next handle and state ids, int32 [n], each to be released."""
        return self._device("snapshot", handle, [_shape((4,), np.uint32), _shape((self.num_envs,), np.int32)])

    def _one(self) -> Array:
        if self.num_devices > 1:
            raise _errors.InvalidArgumentError(
                "with several devices use reset_with and step_with, mapped over handle"
            )
        return jnp.asarray(_ANY)

    def _device(self, op: str, handle: Array, shapes: Any, *args: Array, effect: bool = False) -> Any:
        """Make a call on the pool that the handle names."""
        calls = [
            lambda h, *a, p=p: _xla.call(op, shapes, h, *a, pool=p._handle, effect=effect) for p in self.pools
        ]
        if len(calls) == 1:
            return calls[0](handle, *args)
        return jax.lax.switch(handle[0].astype(jnp.int32), calls, handle, *args)

    def _live(self, op: str, handle: Array, arg: Array, *, effect: bool = False) -> tuple[Array, Step]:
        spec, n = self.spec, self.num_envs
        flag, number = np.bool_, np.int32
        shapes = [_shape((4,), np.uint32), *_arrays(spec.obs, (n,)), *_arrays(spec.info, (n,))]
        shapes += [_shape((n,), np.float32), _shape((n,), flag), _shape((n,), flag), _shape((n,), number)]
        shapes += [_shape((n,), number), _shape((n, spec.num_actions), flag)]
        if spec.num_players > 1:
            shapes.append(_shape((n, spec.num_players), np.float32))
        take = _Taker(self._device(op, handle, shapes, arg, effect=effect))
        after, obs, info = take.one(), take.named(spec.obs), take.named(spec.info)
        reward, terminated, truncated = take.one(), take.one(), take.one()
        info |= {"terminated": terminated, "truncated": truncated, "to_play": take.one()}
        info["elapsed_step"], mask = take.one(), take.one()
        if spec.masks:
            obs["action_mask"] = mask
        if spec.num_players > 1:
            info["rewards"] = take.one()
        return after, (obs, reward, terminated | truncated, info)

    # -- states ---------------------------------------------------------------------------------

    def simulate(self, state_id: Array, actions: Array) -> Forked:
        """Fork states, as ``Pool.simulate_batch`` does; state ids [n] of the first device's pool.

        As pgx has it, an illegal action ends the game and costs its player 1, and the state that it leads to
        doesn't matter: a search that knows nothing of rules may try one.
        """
        spec, n = self.spec, len(state_id)
        flag, number = np.bool_, np.int32
        shapes = [_shape((n,), number), *_arrays(spec.obs, (n,)), *_arrays(spec.info, (n,))]
        shapes += [_shape((n,), np.float32), _shape((n,), flag), _shape((n,), flag), _shape((n,), number)]
        shapes += [_shape((n, spec.num_actions), flag), _shape((n,), number)]
        shapes.append(_shape((n, spec.num_players), np.float32))
        values = _xla.call(
            "simulate", shapes, state_id, jnp.asarray(actions, jnp.int32), pool=self.pool._handle
        )
        take = _Taker(values)
        child, obs, info = take.one(), take.named(spec.obs), take.named(spec.info)
        reward, terminated, truncated, to_play, mask, mover, rewards = (take.one() for _ in range(7))
        return Forked(child, obs, reward, terminated, truncated, to_play, mask, mover, rewards, info)

    def observe(self, state_id: Array) -> tuple[dict[str, Array], Array, Array]:
        """Look at states [n]: observations, legal actions [n, A] and the player to move [n]."""
        spec, n = self.spec, len(state_id)
        shapes = [*_arrays(spec.obs, (n,)), *_arrays(spec.info, (n,))]
        shapes += [_shape((n,), np.int32), _shape((n, spec.num_actions), np.bool_)]
        take = _Taker(_xla.call("observe", shapes, state_id, pool=self.pool._handle))
        obs, _ = take.named(spec.obs), take.named(spec.info)
        to_play, mask = take.one(), take.one()
        return obs, mask, to_play

    def release(self, state_id: Array, *after: Array) -> Array:
        """Release states [n]. It has a side effect.

        Args:
            state_id: Which.
            *after: What must be there before, such as the ids that a ``simulate`` of the states returned: XLA
                keeps no other order between calls.
        """
        shapes = [_shape((1,), np.int32)]
        return _xla.call("release", shapes, state_id, *after, pool=self.pool._handle, effect=True)[0]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Release every state that compiled programs make inside of the ``with`` block at its end.

        It waits for what runs on the devices. States that were released by hand meanwhile are left alone.
        """
        for p in self.pools:
            _xla.scope(p._handle, opened=True)
        try:
            yield
        finally:
            jax.effects_barrier()
            for p in self.pools:
                if not p.closed:
                    _xla.scope(p._handle, opened=False)

    def close(self) -> None:
        """End the pools."""
        for p in self.pools:
            p.close()

    def __enter__(self) -> JaxPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Forked(NamedTuple):
    """What ``JaxPool.simulate`` makes of n states.

    Attributes:
        state_id: The new states [n], each to be released.
        obs: Their observations.
        reward: To the player who moved [n].
        terminated: Whether the rules ended the episode [n].
        truncated: Whether a time limit did [n].
        to_play: The player to move now [n].
        action_mask: Legal actions [n, A]; none after the end.
        mover: The player who moved [n].
        rewards: To each player [n, P].
        info: The environment's info.
    """

    state_id: Array
    obs: dict[str, Array]
    reward: Array
    terminated: Array
    truncated: Array
    to_play: Array
    action_mask: Array
    mover: Array
    rewards: Array
    info: dict[str, Array]


# -- pure environments --------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A state of a ``PureEnv``, with pgx's names.

    Attributes:
        current_player: The player to move, int32.
        observation: From his view: an array, or a dict where the environment has several.
        rewards: Of the last step, float32 [P], one a player.
        terminated: Whether the rules, or an illegal action, ended the game.
        truncated: Whether a time limit did.
        legal_action_mask: bool [A]; everything after the end.
        info: The environment's info, a dict.
    """

    current_player: Array
    observation: Any
    rewards: Array
    terminated: Array
    truncated: Array
    legal_action_mask: Array
    info: dict[str, Array]
    _bytes: Array

    def replace(self, **changes: Any) -> State:
        """Return a copy with some fields changed."""
        return State(**{**self.__dict__, **changes})


class PureEnv:
    """An environment as pure functions, with pgx's method names.

    ::

        env = PureEnv("ConnectFour-v0")
        state = jax.jit(jax.vmap(env.init))(jax.random.split(key, 256))
        state = jax.jit(jax.vmap(env.step))(state, actions)

    The state is bytes in an array, so nothing is to be released. As in pgx an illegal action ends the game
    and costs its player 1, which each of the others gets, and a step after the end changes nothing and pays
    0. Player 0 always begins. The bytes are of this process: use ``Pool.dump`` for what is stored.

    Args:
        id: Name of the environment; its states must be plain data.
        **keywords: Its own settings.
    """

    def __init__(self, id: str, **keywords: Any) -> None:
        self._pool = Pool(id, 1, **keywords)
        self.spec: Spec = self._pool.spec
        if not self.spec.pure_width:
            raise _errors.UnsupportedError(
                f"{id}: its states have pointers, so they can't be bytes of an array"
            )

    @property
    def id(self) -> str:
        """The environment's name."""
        return self.spec.id

    @property
    def num_actions(self) -> int:
        """Actions are 0 to num_actions - 1."""
        return self.spec.num_actions

    @property
    def num_players(self) -> int:
        """Players are 0 to num_players - 1."""
        return self.spec.num_players

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of the observation, or of its first array."""
        return self.spec.obs[0].shape

    def init(self, key: Array) -> State:
        """Return a first state."""
        return self._state(self._call("init", _seed_pairs(key, ())))

    def step(self, state: State, action: Array, key: Array | None = None) -> State:
        """Return the state after an action. What is random comes from the state; the key isn't used."""
        del key
        return self._state(self._call("pure", state._bytes, jnp.asarray(action, jnp.int32)))

    def observe(self, state: State, player_id: Array | None = None) -> Any:
        """Return the observation of the player to move."""
        del player_id
        return state.observation

    def _call(self, op: str, *args: Array) -> Any:
        spec, flag = self.spec, np.bool_
        shapes = [_shape((spec.pure_width,), np.uint8), *_arrays(spec.obs, ()), *_arrays(spec.info, ())]
        shapes += [
            _shape((), np.int32),
            _shape((spec.num_actions,), flag),
            _shape((), flag),
            _shape((), flag),
        ]
        shapes.append(_shape((spec.num_players,), np.float32))
        return _xla.call(op, shapes, *args, pool=self._pool._handle, vmap_method="broadcast_all")

    def _state(self, values: Any) -> State:
        take = _Taker(values)
        data, obs, info = take.one(), take.named(self.spec.obs), take.named(self.spec.info)
        player, mask, terminated, truncated, rewards = (take.one() for _ in range(5))
        observation = next(iter(obs.values())) if len(obs) == 1 else obs
        return State(player, observation, rewards, terminated, truncated, mask, info, data)

    def close(self) -> None:
        """Give the environment back; compiled functions that use it then fail."""
        self._pool.close()


# -- search -------------------------------------------------------------------------------------------


class SearchSummary(NamedTuple):
    """What the roots know, with mctx's names.

    Attributes:
        visit_counts: Visits of each action [n, A].
        visit_probs: Their shares [n, A].
        value: The roots' values [n], from the view of the player to move.
        qvalues: The actions' values [n, A], 0 where not visited.
    """

    visit_counts: Array
    visit_probs: Array
    value: Array
    qvalues: Array


class SearchTree(NamedTuple):
    """What is kept of the trees; the trees themselves stay in Go."""

    visit_counts: Array
    qvalues: Array
    value: Array

    def summary(self) -> SearchSummary:
        """Return the statistics of the roots."""
        total = jnp.maximum(self.visit_counts.sum(-1, keepdims=True), 1)
        return SearchSummary(self.visit_counts, self.visit_counts / total, self.value, self.qvalues)


class SearchOutput(NamedTuple):
    """The answer of a search, with the names of mctx's PolicyOutput.

    Attributes:
        action: The chosen actions [n].
        action_weights: The improved policy [n, A].
        search_tree: ``search_tree.summary()`` has visits and values.
    """

    action: Array
    action_weights: Array
    search_tree: SearchTree


def search(
    pool: JaxPool,
    state_id: Array,
    apply_fn: ApplyFn | str,
    params: Any = None,
    *,
    seed: int | Array = 0,
    num_simulations: int = 32,
    policy: str = "gumbel",
    **settings: Any,
) -> SearchOutput:
    """Search from states inside of a compiled program, with a JAX network and no Python in the loop.

    The results are those of ``azserve.search`` with the same seed.

    Args:
        pool: The pool that the states are of.
        state_id: The roots, int32 [n], of the first device's pool.
        apply_fn: ``apply_fn(params, obs, action_mask)`` returns prior logits [m, A] and values [m] from the
            view of the player to move; m is n times ``leaves_per_step``, and rows that don't count repeat
            another. Or the name of an evaluator in Go, such as ``"uniform"``: then the search is one call.
        params: What ``apply_fn`` gets.
        seed: An integer below 2**32, which may be an array, or a key.
        num_simulations: Simulations a root.
        policy: ``"alphazero"``, ``"muzero"``, ``"gumbel"``, ``"stochastic"`` or ``"uct"``.
        **settings: Those of ``azserve.Search`` that are numbers or texts.
    """
    spec, n = pool.spec, len(state_id)
    a, handle = spec.num_actions, pool.pool._handle
    config = {"num_simulations": num_simulations, "policy": policy, **settings}
    pair = _seed_pair(seed)
    results = [_shape((n,), np.int32), _shape((n, a), np.float32), _shape((n, a), np.int32)]
    results += [_shape((n, a), np.float32), _shape((n,), np.float32), _shape((n,), np.float32)]
    if isinstance(apply_fn, str):
        config["evaluator"] = apply_fn
        return _output(_xla.call("search", results, state_id, pair, pool=handle, config=config))
    most = n * int(settings.get("leaves_per_step", 1))
    shapes = [_shape((4,), np.uint32), *_arrays(spec.obs, (most,))]
    shapes += [_shape((most, a), np.bool_), _shape((1,), np.int32)]

    def more(carry: Any) -> Array:
        turns, leaves = carry
        return (leaves[-1][0] > 0) & (
            turns < num_simulations + 2
        )  # a loop without a counter never ends in XLA

    def body(carry: Any) -> Any:
        turns, (h, *obs, mask, _) = carry
        logits, value = apply_fn(params, _named(spec.obs, obs), mask)
        answer = jnp.asarray(logits, jnp.float32), jnp.asarray(value, jnp.float32)
        return turns + 1, tuple(_xla.call("next", shapes, h, *answer, pool=handle))

    first = tuple(_xla.call("open", shapes, state_id, pair, pool=handle, config=config))
    _, last = jax.lax.while_loop(more, body, (0, first))
    return _output(_xla.call("result", results, last[0], pool=handle))


def _seed_pair(seed: Any) -> Array:
    """Return a seed as a pair of 32 bits."""
    if isinstance(seed, (int, np.integer)):
        return jnp.array([int(seed) >> 32, int(seed) & 0xFFFFFFFF], jnp.uint32)
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) or seed.shape == (2,):
        return _seed_pairs(seed, ())
    return jnp.stack([jnp.zeros((), jnp.uint32), seed.astype(jnp.uint32)])


def _output(values: Any) -> SearchOutput:
    action, weights, visits, qvalues, value, _ = values
    return SearchOutput(action, weights, SearchTree(visits, qvalues, value))
