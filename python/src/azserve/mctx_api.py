"""mctx over the states of a pool: its root and its recurrent function.

::

    pool = azserve.jax_api.JaxPool("ConnectFour-v0", num_envs=64)
    step = mctx_api.recurrent_fn(pool, apply_fn)

    @jax.jit
    def act(params, key, ids):
        root, invalid = mctx_api.root(pool, ids, apply_fn, params)
        return mctx.gumbel_muzero_policy(params, key, root, step, 32, invalid_actions=invalid)

    with pool.scope():          # every state of the search is released at the end
        output = act(params, key, ids)

``apply_fn(params, obs, action_mask)`` returns logits [n, A] and values [n], from the view of the player to
move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import mctx

from .jax_api import ApplyFn, Array, JaxPool

__all__ = ["recurrent_fn", "root"]


def root(pool: JaxPool, state_id: Array, apply_fn: ApplyFn, params: Any = None) -> tuple[Any, Array]:
    """Return mctx's RootFnOutput of states [n], embedded as their ids, and ``invalid_actions`` [n, A]."""
    obs, mask, _ = pool.observe(state_id)
    logits, value = apply_fn(params, obs, mask)
    output = mctx.RootFnOutput(prior_logits=_masked(logits, mask), value=value, embedding=state_id)
    return output, ~mask


def recurrent_fn(pool: JaxPool, apply_fn: ApplyFn, discount: float = 1.0) -> Callable[..., tuple[Any, Array]]:
    """Return mctx's recurrent function: a step of the real simulator, and the network's view of what comes.

    Args:
        pool: Whose states the embeddings are.
        apply_fn: The network.
        discount: Of a step that leaves the same player to move; it turns its sign where the mover changes,
            and is 0 where the episode ended.
    """

    def recurrent(params: Any, key: Array, action: Array, state_id: Array) -> tuple[Any, Array]:
        del key
        s = pool.simulate(state_id, action)
        logits, value = apply_fn(params, s.obs, s.action_mask)
        over = s.terminated | s.truncated
        turned = jnp.where(s.to_play == s.mover, discount, -discount)
        output = mctx.RecurrentFnOutput(
            reward=s.reward,
            discount=jnp.where(over, 0.0, turned),
            prior_logits=_masked(logits, s.action_mask),
            value=jnp.where(over, 0.0, value),
        )
        return output, s.state_id

    return recurrent


def _masked(logits: Array, mask: Array) -> Array:
    """Return logits with the least number where an action is illegal, unless all are."""
    return jnp.where(mask | ~mask.any(-1, keepdims=True), logits, jnp.finfo(logits.dtype).min)
