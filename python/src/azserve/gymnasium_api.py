"""Gymnasium's view of azserve: ``VectorEnv``, single ``Env``, and ids for ``make`` and ``make_vec``.

Importing this module registers every environment as ``azserve/ID``::

    import gymnasium, azserve.gymnasium_api

    envs = gymnasium.make_vec("azserve/CartPole-v1", num_envs=8)
    env = gymnasium.make("azserve/Maze-v0", rows=12)

Without the import, ``gymnasium.make_vec("azserve.gymnasium_api:azserve/CartPole-v1", num_envs=8)`` does the
same. What is returned by a step is fresh memory: no later step changes it. Processes that use environments
must be started with the method "spawn", since Go's threads don't survive a fork
(``AsyncVectorEnv(..., context="spawn")``); azserve's own threads need no processes.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _arrays, _errors, _native
from ._pool import Pool
from ._spec import ArraySpec, Spec, list_envs
from ._states import info_fields, obs_names, read_fields

__all__ = ["Env", "VectorEnv", "make_env", "make_vec"]

_MODES = {
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.DISABLED: "disabled",
}

# Time limit and reward threshold of ids that Gymnasium knows too.
_LIMITS = {"CartPole-v1": (500, 475.0)}
_NO_LIMIT = 1_000_000

_RENDER_MODES = ("rgb_array", "ansi")
_RENDER_FPS = {"CartPole-v1": 50}

# An environment with this one array has that as its observation, every other one a dict.
_SINGLE = "obs"


def _space(a: ArraySpec) -> spaces.Space[Any]:
    low = np.broadcast_to(a.low, a.shape).astype(a.dtype)
    high = np.broadcast_to(a.high, a.shape).astype(a.dtype)
    return spaces.Box(low, high, a.shape, a.dtype.type)


def _observation_space(spec: Spec) -> spaces.Space[Any]:
    if len(spec.obs) == 1 and spec.obs[0].name == _SINGLE and not spec.masks:
        return _space(spec.obs[0])
    parts = {a.name: _space(a) for a in spec.obs}
    if spec.masks:
        parts["action_mask"] = spaces.Box(0, 1, (spec.num_actions,), np.bool_)
    return spaces.Dict(parts)


def _plain(space: spaces.Space[Any], obs: dict[str, Any]) -> Any:
    return obs if isinstance(space, spaces.Dict) else obs[_SINGLE]


def _metadata(id: str) -> dict[str, Any]:
    return {"render_modes": list(_RENDER_MODES), "render_fps": _RENDER_FPS.get(id, 4)}


def _check_render_mode(mode: str | None) -> str | None:
    if mode is not None:
        _arrays.option("render_mode", mode, _RENDER_MODES)
    return mode


class VectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Many environments in one Gymnasium vector environment, stepped on azserve's threads.

    Observations are those of ``azserve.make``: a Box for CartPole, a Dict with ``action_mask`` where legal
    actions depend on the state. Rewards are those of the player who moved.

    Args:
        id: Name of the environment, such as ``"CartPole-v1"``.
        num_envs: How many there are.
        autoreset_mode: Gymnasium's mode, or its value as text (``"NextStep"``, ``"SameStep"``,
            ``"Disabled"``).
        max_episode_steps: Time limit, for environments with that keyword; None for their own.
        reward_dtype: float64 as SyncVectorEnv has it, or float32.
        render_mode: ``"rgb_array"``, ``"ansi"`` or None.
        pool_info: Add ``env_id``, ``elapsed_step`` and ``to_play`` to the infos.
        num_threads: Worker threads, see ``azserve.make``.
        dispatch: See ``azserve.make``.
        **keywords: The environment's own settings.

    Raises:
        EpisodeEndedError: In the mode Disabled, a step of an environment whose episode has ended.
        ActionError: An action is out of range or illegal; then no environment was stepped.
    """

    def __init__(
        self,
        id: str,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        reward_dtype: DTypeLike = np.float64,
        render_mode: str | None = None,
        pool_info: bool = False,
        num_threads: int | None = None,
        dispatch: str = "auto",
        **keywords: Any,
    ) -> None:
        self.render_mode = _check_render_mode(render_mode)
        self._mode = _mode(autoreset_mode)
        if max_episode_steps is not None:
            keywords["max_episode_steps"] = max_episode_steps
        first = int.from_bytes(os.urandom(4), "little")
        self.pool = Pool(
            id,
            num_envs,
            seed=first,
            num_threads=num_threads,
            dispatch=dispatch,
            autoreset=_MODES[self._mode],
            **keywords,
        )
        self.num_envs = num_envs
        self._seeds = [first + i for i in range(num_envs)]
        self._started = False
        self.metadata = {**_metadata(id), "autoreset_mode": self._mode}
        self.single_observation_space = _observation_space(self.pool.spec)
        self.single_action_space = spaces.Discrete(self.pool.spec.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._reward_dtype = np.dtype(reward_dtype)
        self._info_names = [a.name for a in self.pool.spec.info]
        if pool_info:
            self._info_names += ["env_id", "elapsed_step", "to_play"]

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed that each environment was given last."""
        return tuple(self._seeds)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: An integer s gives environment i the seed s + i; a list one each, None to go on with its
                random stream; None for all to go on.
            options: ``{"reset_mask": mask}`` with a bool array [num_envs]. Environments that are not reset
                keep their last observation.

        Returns:
            Observations of all environments, and infos of those that were reset.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        if options:
            raise _errors.InvalidArgumentError(f"options: {sorted(options)} is unknown; want reset_mask")
        seeds = self._list_seeds(seed)
        if mask is None:
            self.pool.async_reset(seeds)
            obs, _, _, info = self.pool.recv()
            ids = np.arange(self.num_envs)
        else:
            if not self._check_mask(mask).all() and not self._started:
                raise _errors.NotStartedError("reset_mask: reset all environments first")
            ids = np.flatnonzero(mask)
            self.pool.async_reset([seeds[i] for i in ids], env_id=ids)
            info = self.pool.recv()[3]
            obs, _ = self.pool.observe()
        self._started = True
        for i in ids:
            if (new := seeds[i]) is not None:
                self._seeds[i] = new
        return _plain(self.single_observation_space, obs), self._infos(info, ids)

    def _list_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        n = self.num_envs
        if seed is None:
            return [None] * n
        if not isinstance(seed, (int, np.integer, list, tuple, np.ndarray)) or isinstance(seed, bool):
            raise TypeError(f"seed is a {type(seed).__name__}; want an integer, a list of {n} or None")
        seeds, seeded = _arrays.optional_seeds("seed", seed, n)
        assert seeds is not None  # since seed isn't None
        given = [True] * n if seeded is None else seeded.tolist()
        return [s if ok else None for s, ok in zip(seeds.tolist(), given, strict=True)]

    def _check_mask(self, mask: Any) -> NDArray[np.bool_]:
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"reset_mask is a {type(mask).__name__}; want a bool array")
        if mask.dtype != np.bool_:
            raise TypeError(f"reset_mask has dtype {mask.dtype}; want bool")
        if mask.shape != (self.num_envs,):
            raise _errors.InvalidArgumentError(f"reset_mask has shape {mask.shape}; want ({self.num_envs},)")
        if not mask.any():
            raise _errors.InvalidArgumentError("reset_mask has no True entry; want at least one")
        return mask

    def step(
        self, actions: ArrayLike
    ) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every environment; see ``gymnasium.vector.VectorEnv.step``."""
        obs, reward, done, info = self.pool.step(actions)
        infos: dict[str, Any] = {}
        if self._info_names:
            infos = self._infos(info, np.arange(self.num_envs))
        if "final_obs" in info:
            self._add_final(infos, info, np.flatnonzero(done))
        plain = _plain(self.single_observation_space, obs)
        return plain, reward.astype(self._reward_dtype), info["terminated"], info["truncated"], infos

    def _infos(self, info: dict[str, Any], ids: NDArray[Any]) -> dict[str, Any]:
        """Return infos of environments ids, with Gymnasium's masks of who has one."""
        infos: dict[str, Any] = {}
        for name in self._info_names:
            self._scatter(infos, name, info[name], ids)
        return infos

    def _scatter(self, infos: dict[str, Any], name: str, values: NDArray[Any], ids: NDArray[Any]) -> None:
        n = self.num_envs
        full = values
        if len(values) != n:
            full = np.zeros((n, *values.shape[1:]), values.dtype)
            full[ids] = values
        present = np.zeros(n, np.bool_)
        present[ids] = True
        infos[name], infos[f"_{name}"] = full, present

    def _add_final(self, infos: dict[str, Any], info: dict[str, Any], ids: NDArray[Any]) -> None:
        """Add the last observations and infos of the episodes that just ended in environments ids."""
        n, finals = self.num_envs, info["final_obs"]
        final_obs = np.full(n, None, object)
        for k, i in enumerate(ids):
            final_obs[i] = _plain(
                self.single_observation_space, {name: v[k, ...] for name, v in finals.items()}
            )
        present = np.zeros(n, np.bool_)
        present[ids] = True
        infos["final_obs"], infos["_final_obs"] = final_obs, present
        final_info: dict[str, Any] = {}
        for name, values in info.get("final_info", {}).items():
            self._scatter(final_info, name, values, ids)
        infos["final_info"], infos["_final_info"] = final_info, present.copy()

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture (uint8 [height, width, 3]) or a text of each environment."""
        if self.render_mode is None:
            return None
        if self.render_mode == "rgb_array":
            return tuple(self.pool.render())
        with self.pool.scope():
            return tuple(self.pool.text(i) for i in self.pool.snapshot())

    def close_extras(self, **_: Any) -> None:
        """End the pool."""
        self.pool.close()


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(m.value) for m in AutoresetMode)
        raise _errors.InvalidArgumentError(f"autoreset_mode={mode!r}; want one of {known}") from None


class _Border:
    """The argument blocks of one environment, with the arrays that Gymnasium asks for and no others."""

    def __init__(self, pool: Pool) -> None:
        spec, flag = pool.spec, np.dtype(np.bool_)
        self.obs, self.info = obs_names(spec), [a.name for a in spec.info]
        self.width = len(self.obs)
        fields = [*read_fields(spec), ("reward", np.dtype(np.float32), ())]
        fields += [("terminated", flag, ()), ("truncated", flag, ()), *info_fields(spec)]
        self.layout = _arrays.Layout(fields, 1)
        self.recv, self.send = _native.Block("azs_recv *"), _native.Block("azs_send *")
        self.recv.rows[:] = self.layout.offsets
        self.recv.c.pool, self.recv.c.timeout = pool._handle, -1.0
        self.action = np.zeros(1, np.int32)
        self._pointer = _native.pointer("int32_t[]", self.action)
        self.send.c.pool, self.send.c.n, self.send.c.actions = pool._handle, 1, self._pointer

    def call(self, function: Any, *more: Any) -> tuple[NDArray[Any], ...]:
        """Receive the results of the environment; its pool works inline, so they are there at once."""
        views, self.recv.base[0] = self.layout.take()
        _native.call(function, self.recv, *more)
        return views


class Env(gymnasium.Env[Any, Any]):
    """One environment as a ``gymnasium.Env``.

    Args:
        id: Name of the environment, such as ``"Maze-v0"``.
        render_mode: ``"rgb_array"``, ``"ansi"`` or None.
        **keywords: The environment's own settings.

    Raises:
        EpisodeEndedError: A step after the end of an episode.
        ActionError: An action is out of range or illegal; nothing was stepped.
    """

    def __init__(self, id: str, *, render_mode: str | None = None, **keywords: Any) -> None:
        self.render_mode = _check_render_mode(render_mode)
        self.metadata = _metadata(id)
        self.pool = Pool(id, 1, seed=None, autoreset="disabled", dispatch="inline", num_threads=1, **keywords)
        spec = self.pool.spec
        self.observation_space = _observation_space(spec)
        self.action_space = spaces.Discrete(spec.num_actions)
        self._plain = not isinstance(self.observation_space, spaces.Dict)
        self._border = _Border(self.pool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, from a seed or from the environment's own random stream."""
        super().reset(seed=seed)
        if options:
            raise _errors.InvalidArgumentError(f"options: {sorted(options)} is unknown; want none")
        self.pool.async_reset(seed)
        views = self._border.call(_native.lib.azs_pool_recv)
        return self._obs(views), self._info(views)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        border = self._border
        try:
            border.action[0] = operator.index(action)
        except (TypeError, OverflowError):
            raise _errors.ActionError(
                f"action {action!r}; want an integer from 0 to {self.pool.spec.num_actions - 1}"
            ) from None
        views = border.call(_native.lib.azs_pool_step, border.send.c)
        at = border.width
        reward, terminated, truncated = views[at : at + 3]
        return self._obs(views), reward.item(), terminated.item(), truncated.item(), self._info(views)

    def _obs(self, views: tuple[NDArray[Any], ...]) -> Any:
        if self._plain:
            return views[0][0]
        return {name: v[0, ...] for name, v in zip(self._border.obs, views, strict=False)}

    def _info(self, views: tuple[NDArray[Any], ...]) -> dict[str, Any]:
        border = self._border
        return {name: v[0] for name, v in zip(border.info, views[border.width + 3 :], strict=True)}

    def render(self) -> Any:
        """Return a picture, uint8 [height, width, 3], or a text."""
        if self.render_mode is None:
            return None
        if self.render_mode == "rgb_array":
            return self.pool.render()[0]
        with self.pool.scope():
            return self.pool.text(self.pool.snapshot()[0])

    def close(self) -> None:
        """End the pool."""
        self.pool.close()


def make_env(env: str, **keywords: Any) -> Env:
    """Make what ``gymnasium.make`` wraps; its TimeLimit then holds the limit of ids that Gymnasium knows."""
    if env in _LIMITS:
        keywords.setdefault("max_episode_steps", _NO_LIMIT)
    return Env(env, **keywords)


def make_vec(env: str, num_envs: int = 1, **keywords: Any) -> VectorEnv:
    """Make what ``gymnasium.make_vec`` returns; the arguments are those of ``VectorEnv``."""
    return VectorEnv(env, num_envs, **keywords)


def _register() -> None:
    for id in list_envs():
        limit, threshold = _LIMITS.get(id, (None, None))
        gymnasium.register(
            f"azserve/{id}",
            entry_point="azserve.gymnasium_api:make_env",
            vector_entry_point="azserve.gymnasium_api:make_vec",
            max_episode_steps=limit,
            reward_threshold=threshold,
            kwargs={"env": id},
        )


_register()
