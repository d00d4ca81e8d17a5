"""Go simulators inside jit: live pools, state ids, pure environments, and the search."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import azserve  # noqa: E402

try:
    import azserve.jax_api as aj
    from azserve import _xla
except azserve.LibraryError as e:  # built before jaxlib was there
    pytest.skip(str(e), allow_module_level=True)

USAGE = """
import jax, jax.numpy as jnp, azserve.jax_api as aj
pool = aj.JaxPool("Maze-v0", num_envs=256)
out = jax.jit(pool.reset)(jax.random.key(0))
out = jax.jit(pool.step)(jnp.zeros(256, jnp.int32))
pool.close()
"""


def test_usage():
    names = {}
    exec(USAGE, names)
    obs, reward, done, info = names["out"]
    assert obs["walls"].shape == (256, 8, 8) and obs["action_mask"].shape == (256, 4)
    assert reward.dtype == jnp.float32 and done.dtype == jnp.bool_
    assert info["elapsed_step"].tolist() == [1] * 256 and info["invalid_action"].all()


@pytest.fixture
def jax_pool():
    pools = []

    def build(*args, **kwargs):
        pools.append(aj.JaxPool(*args, **kwargs))
        return pools[-1]

    yield build
    for p in pools:
        p.close()


def test_steps_are_the_pools(jax_pool, make):
    pool, plain = jax_pool("CartPole-v1", 8), make("CartPole-v1", 8)
    step = jax.jit(pool.step)
    jax.jit(pool.reset)(jax.random.key(0))
    seeds = np.asarray(jax.random.bits(jax.random.key(0), (8, 2), jnp.uint32)).astype(np.uint64)
    want, _ = plain.reset([int(a << 32 | b) for a, b in seeds.tolist()])
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(2, size=8)
        obs, reward, done, info = step(jnp.asarray(actions))
        want, rewards, dones, infos = plain.step(actions)
        assert np.array_equal(obs["obs"], want["obs"]) and np.array_equal(reward, rewards)
        assert np.array_equal(done, dones) and np.array_equal(info["elapsed_step"], infos["elapsed_step"])


def test_handles(jax_pool):
    pool = jax_pool("CartPole-v1", 4)
    reset, step = jax.jit(pool.reset_with), jax.jit(pool.step_with)
    actions = jnp.zeros(4, jnp.int32)
    first, _ = reset(pool.handle, jax.random.key(0))
    second, _ = step(first, actions)
    assert np.array_equal(jax.block_until_ready(second), pool.handle)
    with pytest.raises(Exception, match=r"stale handle: .* call 1 of 2"):
        jax.block_until_ready(step(first, actions))
    third, (_, _, _, info) = step(second, actions)
    assert info["elapsed_step"].tolist() == [2] * 4, "a refused call stepped"

    @jax.jit
    def branch(handle, yes):
        return jax.lax.cond(yes, lambda h: pool.step_with(h, actions)[0], lambda h: h, handle)

    assert np.array_equal(branch(third, False), third)
    assert np.array_equal(jax.block_until_ready(branch(third, True)), pool.handle)
    merged = jax.jit(lambda h: (pool.step_with(h, actions)[1], pool.step_with(h, actions)[1]))(pool.handle)
    jax.block_until_ready(merged)
    assert np.array_equal(merged[0][3]["elapsed_step"], merged[1][3]["elapsed_step"])
    unused = pool.handle
    jax.block_until_ready(jax.jit(lambda h: (pool.step_with(h, actions), h)[1])(unused))
    assert np.array_equal(unused, pool.handle), "a step that nobody asked for"
    with pytest.raises(Exception, match="action 7; want 0 to 1"):
        jax.block_until_ready(jax.jit(pool.step)(actions + 7))


def test_a_scan_of_1000_steps(jax_pool):
    pool = jax_pool("ConnectFour-v0", 16, autoreset="same_step")
    jax.jit(pool.reset)(jax.random.key(0))

    @jax.jit
    def play(handle, key):
        def body(carry, _):
            handle, mask, key = carry
            key, sub = jax.random.split(key)
            actions = jax.random.categorical(sub, jnp.where(mask, 0.0, -jnp.inf)).astype(jnp.int32)
            handle, (obs, reward, done, _) = pool.step_with(handle, actions)
            return (handle, obs["action_mask"], key), (reward, done)

        return jax.lax.scan(body, (handle, jnp.ones((16, 7), bool), key), None, 1000)

    (handle, _, _), (reward, done) = play(pool.handle, jax.random.key(1))
    jax.block_until_ready(handle)
    assert np.array_equal(handle, pool.handle) and done.sum() > 300
    assert ((reward != 0) <= done).all()
    assert pool.pool.stats()["states"] == 16 and pool.pool.stats()["live_states"] == 0


def net(params, obs, mask):
    """Return a small fixed network's answer on boards."""
    x = obs["board"].reshape(len(mask), -1).astype(jnp.float32)
    return x @ params["policy"], jnp.tanh(x @ params["value"])


def params(seed=0):
    rng = np.random.default_rng(seed)
    weights = {"policy": rng.normal(size=(84, 7)), "value": 0.1 * rng.normal(size=84)}
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), weights)


def positions(pool, moves=6, seed=0):
    """Play random moves and return the states."""
    rng = np.random.default_rng(seed)
    pool.reset(seed=0)
    for _ in range(moves):
        pool.step(rng.integers(7, size=pool.num_envs))
    return pool.snapshot()


@pytest.mark.parametrize("policy", ["gumbel", "muzero", "alphazero"])
def test_search_in_jit_is_azserves(jax_pool, policy):
    pool = jax_pool("ConnectFour-v0", 8)
    ids, p = positions(pool.pool), params()

    def numpy_net(obs, mask):
        logits, value = net(p, {"board": jnp.asarray(obs["board"])}, jnp.asarray(mask))
        return np.asarray(logits), np.asarray(value)

    kw = {"num_simulations": 40, "policy": policy, "seed": 5}
    for leaves in (1, 3):
        inside = jax.jit(
            lambda p, ids, leaves=leaves: aj.search(pool, ids, net, p, leaves_per_step=leaves, **kw)
        )
        for _ in range(3):
            got = inside(p, ids)
            want = azserve.search(pool.pool, ids, numpy_net, leaves_per_step=leaves, **kw)
            assert np.array_equal(got.search_tree.visit_counts, want.visits)
            assert np.array_equal(got.action, want.action)
            np.testing.assert_allclose(got.action_weights, want.action_weights, atol=1e-6)
    uniform = jax.jit(lambda ids: aj.search(pool, ids, "uniform", **kw))(ids)
    want = azserve.search(pool.pool, ids, "uniform", **kw)
    assert np.array_equal(uniform.action_weights, want.action_weights)
    summary = uniform.search_tree.summary()
    assert np.array_equal(summary.visit_counts, want.visits) and np.allclose(summary.visit_probs.sum(1), 1)
    assert pool.pool.stats()["searches"] == 0 and pool.pool.stats()["live_states"] == 8


def test_mctx_three_ways_and_azserves_own(jax_pool):
    mctx = pytest.importorskip("mctx")
    from azserve import mctx_api

    pool, env, p, n, sims = jax_pool("ConnectFour-v0", 8), aj.PureEnv("ConnectFour-v0"), params(), 8, 32
    moves = np.random.default_rng(3).integers(7, size=(6, n))
    pool.pool.reset(seed=0)
    state = jax.vmap(env.init)(jax.random.split(jax.random.key(0), n))
    for m in moves:
        pool.pool.step(m)
        state = jax.vmap(env.step)(state, jnp.asarray(m))
    ids, key = pool.pool.snapshot(), jax.random.key(7)

    def output(state, mover, reward):
        logits, value = net(p, {"board": state.observation}, state.legal_action_mask)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        over = state.terminated
        return mctx.RecurrentFnOutput(
            reward=reward,
            discount=jnp.where(over, 0.0, -1.0),
            prior_logits=logits,
            value=jnp.where(over, 0.0, value),
        )

    def pure(_, key, action, state):
        mover = state.current_player
        state = jax.vmap(env.step)(state, action)
        return output(state, mover, state.rewards[jnp.arange(n), mover]), state

    def root(embedding):
        logits, value = net(p, {"board": state.observation}, state.legal_action_mask)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        return mctx.RootFnOutput(prior_logits=logits, value=value, embedding=embedding)

    def run(root, recurrent, invalid):
        search = jax.jit(
            lambda: mctx.gumbel_muzero_policy(
                p, key, root, recurrent, sims, invalid_actions=invalid, gumbel_scale=0.0
            )
        )
        return search()

    invalid = ~state.legal_action_mask
    a = run(root(state), pure, invalid)
    by_ids, invalid_ids = mctx_api.root(pool, jnp.asarray(ids), net, p)
    before = pool.pool.stats()["live_states"]
    with pool.scope():
        b = run(by_ids, mctx_api.recurrent_fn(pool, net), invalid_ids)
        jax.block_until_ready(b.action)
        assert pool.pool.stats()["live_states"] > before
    assert pool.pool.stats()["live_states"] == before, "a state leaked"
    _xla._force_callback = True
    try:
        c = run(root(state), pure, invalid)
        jax.block_until_ready(c.action)
    finally:
        _xla._force_callback = False
    for other in (b, c):
        assert np.array_equal(a.action, other.action)
        np.testing.assert_allclose(a.action_weights, other.action_weights, atol=1e-6)
        assert np.array_equal(a.search_tree.summary().visit_counts, other.search_tree.summary().visit_counts)
    own = jax.jit(lambda ids: aj.search(pool, ids, net, p, num_simulations=sims, gumbel_scale=0.0))(ids)
    assert np.array_equal(own.search_tree.visit_counts, a.search_tree.summary().visit_counts)
    assert np.array_equal(own.action, a.action)
    np.testing.assert_allclose(own.action_weights, a.action_weights, atol=1e-5)


def test_lockstep_with_pgx():
    pgx = pytest.importorskip("pgx")
    n, theirs, ours = 1000, pgx.make("connect_four"), aj.PureEnv("ConnectFour-v0")
    keys = jax.random.split(jax.random.key(0), n)
    step_a, step_b = jax.jit(jax.vmap(theirs.step)), jax.jit(jax.vmap(ours.step))
    a, b = jax.jit(jax.vmap(theirs.init))(keys), jax.jit(jax.vmap(ours.init))(keys)
    first, rng, spoilt = np.asarray(a.current_player), np.random.default_rng(0), np.zeros(n, bool)
    for turn in range(60):
        # After an illegal action pgx shows a board that can't be.
        assert np.array_equal(a.observation[~spoilt], b.observation[~spoilt]), f"turn {turn}"
        assert np.array_equal(a.legal_action_mask, b.legal_action_mask)
        assert np.array_equal(a.terminated, b.terminated)
        assert np.array_equal(
            a.rewards, np.take_along_axis(np.asarray(b.rewards), np.stack([first, 1 - first], 1), 1)
        )
        live = ~np.asarray(a.terminated)
        if not live.any():
            break
        assert np.array_equal(
            np.asarray(a.current_player)[live], (np.asarray(b.current_player) ^ first)[live]
        )
        mask = np.asarray(a.legal_action_mask)
        actions = np.array([rng.choice(np.flatnonzero(m)) for m in mask])
        wild = rng.random(n) < 0.02
        actions[wild] = rng.integers(7, size=wild.sum())
        spoilt |= ~mask[np.arange(n), actions] & live
        a, b = step_a(a, jnp.asarray(actions)), step_b(b, jnp.asarray(actions))
    assert not live.any() and 10 < spoilt.sum() < 500


def test_pure_transforms():
    env = aj.PureEnv("CartPole-v1")
    key = jax.random.key(3)
    one = jax.jit(env.init)(key)
    many = jax.vmap(jax.vmap(env.init))(jax.random.split(key, (2, 3)))
    assert (
        one.observation.shape == (4,)
        and many.observation.shape == (2, 3, 4)
        and many.terminated.shape == (2, 3)
    )

    @jax.jit
    def play(state):
        return jax.lax.scan(lambda s, a: (env.step(s, a), s.observation), state, jnp.zeros(30, jnp.int32))

    last, seen = play(one)
    assert last.terminated and seen.shape == (30, 4)
    again, _ = play(one)
    assert np.array_equal(last._bytes, again._bytes), "one state, one future"
    plain = jax.tree.map(lambda x: x[1, 2], many)
    assert np.array_equal(env.step(plain, 1).observation, jax.vmap(jax.vmap(env.step))(many, jnp.ones((2, 3)))
                          .observation[1, 2])  # fmt: skip
    with pytest.raises(azserve.UnsupportedError, match="BinPack-v0: its states have pointers"):
        aj.PureEnv("BinPack-v0")


def test_from_pools_and_errors(make):
    pool = make("ConnectFour-v0", num_envs=4)
    with aj.JaxPool.from_pools([pool]) as wrapped:
        assert wrapped.pool is pool
        jax.jit(wrapped.reset)(jax.random.key(0))
    assert pool.closed
    with pytest.raises(ValueError, match="batch_size=2; want num_envs=4"):
        aj.JaxPool.from_pools([make("ConnectFour-v0", num_envs=4, batch_size=2)])
    with pytest.raises(ValueError, match="pools differ"):
        aj.JaxPool.from_pools([make("ConnectFour-v0"), make("TicTacToe-v0")])
    with pytest.raises(ValueError, match="pools is empty"):
        aj.JaxPool.from_pools([])


def test_two_devices():
    script = """
        import jax, jax.numpy as jnp, numpy as np, azserve.jax_api as aj
        assert jax.local_device_count() == 2
        pool = aj.JaxPool("CartPole-v1", num_envs=4, num_devices=2, seed=3)
        keys = jax.random.split(jax.random.key(0), 2)
        handle, (obs, *_) = jax.pmap(pool.reset_with)(pool.handle, keys)
        for _ in range(20):
            handle, (obs, reward, done, info) = jax.pmap(pool.step_with)(handle, jnp.ones((2, 4), jnp.int32))
        assert np.array_equal(jax.block_until_ready(handle), pool.handle)
        assert obs["obs"].shape == (2, 4, 4) and not np.array_equal(obs["obs"][0], obs["obs"][1])

        from jax.sharding import Mesh, PartitionSpec

        def step(handle, actions):
            handle, (obs, *_) = pool.step_with(handle[0], actions[0])
            return handle[None], obs["obs"][None]

        spec, mesh = PartitionSpec("d"), Mesh(np.array(jax.devices()), ("d",))
        sharded = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
        for _ in range(5):
            handle, seen = sharded(handle, jnp.ones((2, 4), jnp.int32))
        assert seen.shape == (2, 4, 4) and np.array_equal(jax.block_until_ready(handle), pool.handle)
        print("well")
    """
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    p = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert p.stdout == "well\n", p.stderr


def test_forks_and_searches_in_a_scan(jax_pool):
    pool = jax_pool("ConnectFour-v0", 8)
    pool.pool.reset(seed=0)
    p = params()

    @jax.jit
    def play(ids):
        def body(carry, _):
            ids, mask = carry
            forked = pool.simulate(ids, mask.argmax(1))
            pool.release(ids, forked.state_id)
            return (forked.state_id, forked.action_mask), forked.terminated

        return jax.lax.scan(body, (ids, jnp.ones((8, 7), bool)), None, 1000)

    (ids, _), ended = play(jnp.asarray(pool.pool.snapshot()))
    assert ended[-1].all() and not ended[0].any()
    stats = pool.pool.stats()
    assert stats["live_states"] == 8 and stats["peak_states"] < 64
    roots = jnp.asarray(pool.pool.snapshot())

    @jax.jit
    def searches(ids):
        def body(total, seed):
            return total + aj.search(pool, ids, net, p, num_simulations=8, seed=seed).action.sum(), None

        return jax.lax.scan(body, 0, jnp.arange(200, dtype=jnp.uint32))[0]

    assert searches(roots) > 0
    assert pool.pool.stats()["searches"] == 0 and pool.pool.stats()["reserved_states"] == 0
    pool.pool.release_batch(ids)
    pool.pool.release_batch(roots)
    assert pool.pool.stats()["live_states"] == 0
