"""Rows about Go simulators inside of compiled JAX programs."""

from __future__ import annotations

import contextlib
import time

import mctx_peer
import numpy as np
from measure import Row, in_turns, installed


@contextlib.contextmanager
def callbacks():
    """Trace what is compiled inside with Python callbacks, as other systems do it."""
    from azserve import _xla

    _xla._force_callback = True
    try:
        yield
    finally:
        _xla._force_callback = False


def scan(n: int, length: int):
    """Return a program that steps n carts `length` times."""
    import jax
    import jax.numpy as jnp

    import azserve.jax_api as aj

    pool = aj.JaxPool("CartPole-v1", n)
    jax.jit(pool.reset)(jax.random.key(0))
    actions = jnp.arange(n) % 2

    @jax.jit
    def run(handle):
        def body(h, _):
            h, (obs, *_) = pool.step_with(h, actions)
            return h, obs["obs"][0, 0]

        return jax.lax.scan(body, handle, None, length)[0]

    handle = [pool.handle]

    def call():
        handle[0] = run(handle[0])
        jax.block_until_ready(handle[0])

    call()
    return call


def network(hidden: int):
    """Return a small network; hidden 0 is none: equal logits, value 0."""
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    one, two = (jnp.asarray(0.1 * rng.normal(size=s), jnp.float32) for s in ((84, max(hidden, 1)), (max(hidden, 1), 8)))

    def apply(board):
        if not hidden:
            return jnp.zeros((len(board), 7)), jnp.zeros(len(board))
        out = jnp.maximum(board.reshape(len(board), -1).astype(jnp.float32) @ one, 0) @ two
        return out[:, :7], jnp.tanh(out[:, 7])

    return apply


def mctx_pure(policy: str, roots: int, sims: int, hidden: int):
    """Return mctx's search over the pure environment."""
    import azserve.jax_api as aj

    run = mctx_peer.search(aj.PureEnv("ConnectFour-v0"), network(hidden), policy, roots, sims)
    run()
    return run


def own_search(policy: str, roots: int, sims: int, hidden: int):
    """Return azserve's search inside of jit."""
    import jax
    import jax.numpy as jnp

    import azserve.jax_api as aj

    pool, net = aj.JaxPool("ConnectFour-v0", roots), network(hidden)
    pool.pool.reset(seed=0)
    ids = jnp.asarray(pool.pool.snapshot())
    apply = (lambda _, obs, mask: net(obs["board"])) if hidden else "uniform"
    run = jax.jit(lambda ids: aj.search(pool, ids, apply, num_simulations=sims, policy=policy, seed=1).action)
    jax.block_until_ready(run(ids))
    return lambda: jax.block_until_ready(run(ids))


def jax_rows(seconds: float, quick: bool):
    if quick or not installed("jax", "mctx"):
        return
    for n, goal in ((1, "50"), (256, "50")):
        ours = scan(n, 200)
        with callbacks():
            theirs = scan(n, 200)
        a, b = in_turns(ours, theirs, 200, seconds)
        yield Row(f"a step of {n} CartPole in a scan (steps of all/s)", a, "the same by a callback", b, goal)
    ours = mctx_pure("gumbel", 256, 32, 0)
    with callbacks():
        theirs = mctx_pure("gumbel", 256, 32, 0)
    a, b = in_turns(ours, theirs, 256 * 32, seconds)
    yield Row("mctx over PureEnv, ConnectFour, 256 roots, 32 sims (sims/s)", a, "the same by a callback", b, "4")
    for hidden, goal in ((0, "3"), (64, "1")):
        for roots in (64, 256):
            for sims in (64, 256):
                for policy in ("gumbel", "muzero"):
                    sides = own_search(policy, roots, sims, hidden), mctx_pure(policy, roots, sims, hidden)
                    a, b = in_turns(*sides, roots * sims, seconds, time.process_time)
                    name = "a network of 64" if hidden else "no network"
                    what = f"search in jit, {name}, {roots} roots, {sims} sims, {policy} (sims/CPU s)"
                    yield Row(what, a, "mctx over PureEnv", b, goal)


GROUPS = {"jax": jax_rows}
