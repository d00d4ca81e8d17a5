"""A pool whose results are torch tensors.

On the CPU a tensor shares its memory with the pool's array, so nothing is copied; each batch has memory of
its own, so no later step changes it. On another device it is a copy::

    from azserve.torch_api import TorchEnvPool

    pool = TorchEnvPool("Maze-v0", num_envs=64, device="cpu")
    obs, reward, done, info = pool.reset()
    obs, reward, done, info = pool.step(policy(obs))
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from ._pool import Pool, _Link
from ._spec import Spec

__all__ = ["TorchEnvPool"]

Tensor = Any  # torch.Tensor, where torch is installed
Step = tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Any]]


class TorchEnvPool:
    """A ``Pool`` with tensors in place of arrays.

    Args:
        id: Name of the environment.
        num_envs: How many there are.
        batch_size: Rows that a ``recv`` waits for; ``num_envs`` if None.
        device: Where the tensors are.
        **settings: Those of ``azserve.make``, and the environment's own.

    Attributes:
        pool: The pool itself; what it returns are NumPy arrays.
        device: Where the tensors are.
    """

    def __init__(
        self,
        id: str,
        num_envs: int = 1,
        batch_size: int | None = None,
        *,
        device: Any = "cpu",
        **settings: Any,
    ) -> None:
        self._attach(Pool(id, num_envs, batch_size, **settings), device)

    @classmethod
    def from_pool(cls, pool: Pool, device: Any = "cpu") -> TorchEnvPool:
        """Use a pool that exists; closing either one closes both."""
        self = cls.__new__(cls)
        self._attach(pool, device)
        return self

    def _attach(self, pool: Pool, device: Any) -> None:
        self.pool = pool
        self.device = torch.device(device)
        self._copies = self.device.type != "cpu"
        self._local = threading.local()

    @property
    def spec(self) -> Spec:
        """What the environment looks like."""
        return self.pool.spec

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return self.pool.num_envs

    def reset(self, seed: int | Sequence[int | None] | None = None) -> Step:
        """Start an episode in every environment and receive the observations; only for whole batches."""
        self.pool._whole("reset")
        self.pool.async_reset(seed)
        return self.recv()

    def step(self, actions: Tensor | ArrayLike) -> Step:
        """Send an action to every environment and receive all results; see ``Pool.step``."""
        return self._moved(self.pool._step(self._link(), _array(actions)))

    def async_reset(
        self, seed: int | Sequence[int | None] | None = None, *, env_id: Tensor | ArrayLike | None = None
    ) -> None:
        """See ``Pool.async_reset``."""
        self.pool.async_reset(seed, env_id=None if env_id is None else _array(env_id))

    def send(self, actions: Tensor | ArrayLike, env_id: Tensor | ArrayLike | None = None) -> None:
        """See ``Pool.send``."""
        self.pool.send(_array(actions), None if env_id is None else _array(env_id))

    def recv(self, timeout: float | None = None) -> Step:
        """See ``Pool.recv``."""
        return self._moved(self.pool._recv(self._link(), timeout))

    def snapshot(self, env_id: Tensor | ArrayLike | None = None) -> Tensor:
        """See ``Pool.snapshot``."""
        return self._tensor(self.pool.snapshot(None if env_id is None else _array(env_id)))

    def simulate_batch(self, state_id: Tensor | ArrayLike, actions: Tensor | ArrayLike) -> Step:
        """See ``Pool.simulate_batch``."""
        obs, reward, done, child = self.pool.simulate_batch(_array(state_id), _array(actions))
        return self._dict(obs), self._tensor(reward), self._tensor(done), self._dict(child)

    def release_batch(self, state_id: Tensor | ArrayLike) -> None:
        """See ``Pool.release_batch``."""
        self.pool.release_batch(_array(state_id))

    def close(self) -> None:
        """End the pool."""
        self.pool.close()

    def __enter__(self) -> TorchEnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.pool)

    def __repr__(self) -> str:
        return f"<TorchEnvPool on {self.device}: {self.pool!r}>"

    def _link(self) -> _Link:
        """Return this thread's own blocks, whose batches are tensors of the memory that Go writes."""
        try:
            return self._local.link  # type: ignore[no-any-return]
        except AttributeError:
            link = self._local.link = _Link(self.pool, lambda array: torch.from_numpy(array).unbind(0))
            return link

    def _moved(self, step: Any) -> Step:
        """Copy what is not to stay on the CPU."""
        if not self._copies:
            return step  # type: ignore[no-any-return]
        obs, reward, done, info = step
        return self._dict(obs), self._tensor(reward), self._tensor(done), self._dict(info)

    def _dict(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: self._dict(v) if isinstance(v, dict) else self._tensor(v) for name, v in arrays.items()}

    def _tensor(self, x: Any) -> Tensor:
        tensor = torch.from_numpy(x) if isinstance(x, np.ndarray) else x
        return tensor.to(self.device) if self._copies else tensor


def _array(x: Tensor | ArrayLike) -> Any:
    """Return a tensor's numbers as an array, without a copy where it is on the CPU."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().cpu().numpy() if x.is_cuda or x.requires_grad else x.numpy()
