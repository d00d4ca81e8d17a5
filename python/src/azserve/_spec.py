"""What environments there are, and what they look like."""

from __future__ import annotations

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
        masks: Whether legal actions depend on the state.
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
    payload = {"id": id, "keywords": _native.json_value(keywords)}
    reply, _ = _native.text(_native.lib.azs_spec, payload)
    return decode(reply)


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
        keyword_docs=tuple(reply["keyword_docs"] or ()),
    )


def _array_spec(a: dict[str, Any]) -> ArraySpec:
    shape = tuple(a["shape"])

    def bounds(values: list[str]) -> np.ndarray[Any, Any]:
        numbers = np.array([float(v.replace("+Inf", "inf").replace("-Inf", "-inf")) for v in values])
        return numbers.reshape(shape) if numbers.size == np.prod(shape) else numbers[0].reshape(())

    return ArraySpec(a["name"], np.dtype(a["dtype"]), shape, bounds(a["low"]), bounds(a["high"]))
