"""What environments there are, and what they look like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native


@dataclass(frozen=True)
class ArraySpec:
    """One observation array of a single state.

    Attributes:
        name: Its key in the observation dict.
        dtype: Its element type.
        shape: Its shape without the batch axis.
        low: Least values, broadcastable to the shape.
        high: Greatest values, broadcastable to the shape.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Factorization:
    """The components of an action, which are chosen one after the other.

    The flat action is ``sum(component[k] * strides[k])``: the last component counts fastest.

    Attributes:
        names: A name for each component.
        sizes: Component k is 0 to ``sizes[k] - 1``.
        strides: What one of each component is worth in the flat action.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Spec:
    """An environment with its keywords applied.

    Attributes:
        id: Name in the registry.
        version: Raised whenever the behaviour changes.
        keywords: The keywords in force, as text.
        obs: The observation arrays.
        num_actions: Actions are 0 to num_actions - 1.
        num_players: Players are 0 to num_players - 1.
        num_outcomes: What nature may draw after an action, at most; 0 where there is no chance.
        reward_range: Least and greatest reward of a step.
        max_episode_steps: Time limit in steps; 0 for none.
        masks: Whether legal actions depend on the state; then there is ``obs["action_mask"]``.
        any_action: Whether every action in range may be sent, whatever the mask says.
        info: Arrays beside the observation, in ``info`` under their names.
        factorization: The components of an action; None if it has none.
        frame_size: Width and height of a picture in pixels.
        pure_width: Bytes of a state in ``jax_api.PureEnv``; 0 where states have pointers.
        keyword_docs: Name, default and meaning of every keyword.
    """

    id: str
    version: int
    keywords: str
    obs: tuple[ArraySpec, ...]
    num_actions: int
    num_players: int
    num_outcomes: int
    reward_range: tuple[float, float]
    max_episode_steps: int
    masks: bool
    any_action: bool
    info: tuple[ArraySpec, ...]
    factorization: Factorization | None
    frame_size: tuple[int, int]
    pure_width: int
    keyword_docs: tuple[dict[str, str], ...]


def list_envs() -> list[str]:
    """Return the ids of all environments, sorted."""
    ids, _ = _native.text(_native.lib.azs_list)
    return list(ids)


def spec(id: str, **keywords: Any) -> Spec:
    """Describe an environment.

    Args:
        id: Its name, such as ``"ConnectFour-v0"``.
        **keywords: Its settings.

    Raises:
        UnknownEnvError: There is no such environment.
        KeywordError: It has no such keyword; the message lists what it has.
    """
    payload = {"id": id, "keywords": settings(keywords)}
    reply, _ = _native.text(_native.lib.azs_spec, payload)
    return decode(reply)


def settings(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return an environment's keywords as plain JSON."""
    return {name: _native.json_value(name, value) for name, value in keywords.items()}


def decode(reply: dict[str, Any]) -> Spec:
    """Return a specification from the library's JSON."""
    obs = tuple(_array_spec(a) for a in reply["obs"])
    low, high = reply["reward_range"]
    return Spec(
        id=reply["id"],
        version=reply["version"],
        keywords=reply["keywords"],
        obs=obs,
        num_actions=reply["num_actions"],
        num_players=reply["num_players"],
        num_outcomes=reply["num_outcomes"],
        reward_range=(low, high),
        max_episode_steps=reply["max_episode_steps"],
        masks=reply["masks"],
        any_action=reply["any_action"],
        info=tuple(_array_spec(a) for a in reply["info"]),
        factorization=_factorization(reply),
        frame_size=(reply["frame_size"][0], reply["frame_size"][1]),
        pure_width=reply["pure_width"],
        keyword_docs=tuple(reply["keyword_docs"] or ()),
    )


def _factorization(reply: dict[str, Any]) -> Factorization | None:
    names, sizes = reply["component_names"] or (), reply["component_sizes"] or ()
    if not names:
        return None
    strides = tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes)))
    return Factorization(tuple(names), tuple(sizes), strides)


def _array_spec(a: dict[str, Any]) -> ArraySpec:
    shape = tuple(a["shape"])

    def bounds(values: list[str]) -> np.ndarray[Any, Any]:
        numbers = np.array([float(v.replace("+Inf", "inf").replace("-Inf", "-inf")) for v in values])
        return numbers.reshape(shape) if numbers.size == np.prod(shape) else numbers[0].reshape(())

    return ArraySpec(a["name"], np.dtype(a["dtype"]), shape, bounds(a["low"]), bounds(a["high"]))
