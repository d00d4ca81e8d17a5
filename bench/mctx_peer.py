"""mctx over an environment with pgx's names: the peer of several rows."""

from __future__ import annotations

import numpy as np


def uniform(board):
    """Return equal logits and values of 0."""
    import jax.numpy as jnp

    return jnp.zeros((len(board), 7)), jnp.zeros(len(board))


def search(env, apply, policy: str, roots: int, sims: int, plies: int = 0):
    """Return a search of Connect Four in one program: the environment (pgx's, or azserve's PureEnv), a network
    `apply` of boards, and mctx. The roots are positions after some random moves.
    """
    import jax
    import jax.numpy as jnp
    import mctx

    step = jax.vmap(env.step)
    state = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.key(0), roots))
    for actions in np.random.default_rng(2).integers(7, size=(plies, roots)):
        state = jax.jit(step)(state, jnp.asarray(actions))

    def look(state):
        logits, value = apply(state.observation)
        return jnp.where(state.legal_action_mask, logits, jnp.finfo(jnp.float32).min), value

    def recurrent(_, key, action, state):
        mover = state.current_player
        state = step(state, action)
        logits, value = look(state)
        over = state.terminated
        out = mctx.RecurrentFnOutput(
            reward=state.rewards[jnp.arange(roots), mover], discount=jnp.where(over, 0.0, -1.0),
            prior_logits=logits, value=jnp.where(over, 0.0, value),
        )
        return out, state

    f = mctx.gumbel_muzero_policy if policy == "gumbel" else mctx.muzero_policy

    @jax.jit
    def run(key, state):
        logits, value = look(state)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        return f((), key, root, recurrent, sims, invalid_actions=~state.legal_action_mask).action

    key = jax.random.key(1)
    return lambda: jax.block_until_ready(run(key, state))
