"""Rows about the pool: steps, forks, the fronts for Gymnasium and torch, memory."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable, Iterator

import numpy as np
from measure import Row, best, in_turns, installed

import azserve

SIZES = (1, 16, 64, 256, 1024)


def cartpole_actions(n: int) -> Iterator[np.ndarray]:
    """Return random pushes, drawn beforehand: poles fall after about 22 steps."""
    rng = np.random.default_rng(0)
    return itertools.cycle(list(rng.integers(2, size=(64, n)).astype(np.int32)))


# -- CartPole ---------------------------------------------------------------------------------------


def azserve_cartpole(n: int, **settings):
    pool, actions = azserve.make("CartPole-v1", num_envs=n, **settings), cartpole_actions(n)
    pool.reset()
    return lambda: pool.step(next(actions))


def azserve_async(n: int):
    pool, actions = azserve.make("CartPole-v1", num_envs=n, batch_size=n // 4), cartpole_actions(n // 4)
    pool.async_reset()

    def step():
        for _ in range(4):
            pool.send(next(actions), pool.recv()[3]["env_id"])

    return step


def azserve_vector(n: int):
    from azserve.gymnasium_api import VectorEnv

    envs, actions = VectorEnv("CartPole-v1", n), cartpole_actions(n)
    envs.reset(seed=0)
    return lambda: envs.step(next(actions))


def envpool_cartpole(n: int):
    import envpool

    env, actions = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=n), cartpole_actions(n)
    env.reset()
    return lambda: env.step(next(actions))


def envpool_async(n: int):
    import envpool

    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=n, batch_size=n // 4)
    actions = cartpole_actions(n // 4)
    env.async_reset()

    def step():
        for _ in range(4):
            info = env.recv()[-1]
            env.send(next(actions), info["env_id"])

    return step


def gymnasium_numpy(n: int):
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

    env, actions = CartPoleVectorEnv(num_envs=n), cartpole_actions(n)
    env.reset(seed=0)
    return lambda: env.step(next(actions))


def gymnasium_sync(n: int):
    import gymnasium

    env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * n)
    actions = cartpole_actions(n)
    env.reset(seed=0)
    return lambda: env.step(next(actions))


def rlox_cartpole(n: int):
    import rlox

    env, actions = rlox.VecEnv(n, 0, "CartPole-v1"), cartpole_actions(n)
    env.reset_all(0)
    return lambda: env.step_all(next(actions))


def cartpole_rows(seconds: float, quick: bool):
    heavy = not quick
    for n in SIZES:
        sides = [("EnvPool, sync", envpool_cartpole, "10", heavy and installed("envpool"))]
        sides += [("rlox's VecEnv", rlox_cartpole, "2", heavy and installed("rlox", "torch"))]
        sides += [("gymnasium's CartPoleVectorEnv", gymnasium_numpy, "1.5", installed("gymnasium"))]
        sides += [("gymnasium's SyncVectorEnv", gymnasium_sync, "", installed("gymnasium") and n <= 256)]
        for name, peer, goal, there in sides:
            if there:
                a, b = in_turns(azserve_cartpole(n), peer(n), n, seconds)
                yield Row(f"CartPole, {n} environments (steps/s)", a, name, b, goal if n >= 256 else "")
        if heavy and installed("envpool") and n > 1:
            a, b = in_turns(azserve_async(n), envpool_async(n), n, seconds)
            what = f"CartPole, {n} environments, batches of {n // 4} (steps/s)"
            yield Row(what, a, "EnvPool, async", b, "10" if n >= 256 else "")
        a, b = in_turns(azserve_cartpole(n, math="go"), azserve_cartpole(n), n, seconds)
        yield Row(f'CartPole, {n} environments, math="go" (steps/s)', a, 'azserve, math="libm"', b)


def gymnasium_rows(seconds: float, quick: bool):
    if not installed("gymnasium"):
        return
    import gymnasium

    import azserve.gymnasium_api

    def single(id):
        env = gymnasium.make(id)

        def step():
            env.reset(seed=0)
            for t in range(8):
                env.step(t & 1)

        return step

    a, b = in_turns(single("azserve/CartPole-v1"), single("CartPole-v1"), 8, seconds)
    yield Row("gymnasium.make, 8 steps and a reset (steps/s)", a, "gymnasium's CartPole-v1", b)
    a, b = in_turns(azserve_cartpole(1), single("CartPole-v1"), 1, seconds)
    yield Row("a pool of one environment (steps/s)", a, "gymnasium's CartPole-v1", 8 * b)
    for n in (64, 256, 1024):
        a, b = in_turns(azserve_vector(n), gymnasium_numpy(n), n, seconds)
        yield Row(f"VectorEnv, CartPole, {n} environments (steps/s)", a, "gymnasium's CartPoleVectorEnv", b)


# -- games ------------------------------------------------------------------------------------------


def game(step: Callable[[np.ndarray], object], n: int, actions: int):
    """Return a function that plays action 0, 1, 2, ... in turn: legal in these games, whenever one begins."""
    every = itertools.cycle([np.full(n, a, np.int32) for a in range(actions)])
    return lambda: step(next(every))


def game_rows(seconds: float, quick: bool):
    for id, actions in (("TicTacToe", 9), ("ConnectFour", 7)):
        for n in (64, 256, 1024):
            pool, theirs = azserve.make(f"{id}-v0", num_envs=n), None
            pool.reset()
            if installed("envpool") and not quick:
                import envpool

                env = envpool.make(f"{id}-v1", env_type="gymnasium", num_envs=n)
                env.reset()
                theirs = game(env.step, n, actions)
            a, b = in_turns(game(pool.step, n, actions), theirs, n, seconds)
            yield Row(f"{id}, {n} environments (steps/s)", a, f"EnvPool's {id}-v1", b)
    for id in ("Maze-v0", "BinPack-v0"):
        pool = azserve.make(id, num_envs=64)
        obs, _ = pool.reset()
        state = [obs]

        def step(pool=pool, state=state):
            state[0] = pool.step(state[0]["action_mask"].argmax(1))[0]

        a, _ = in_turns(step, None, 64, seconds)
        yield Row(f"{id}, 64 environments, first legal action (steps/s)", a)


# -- forks and borders ------------------------------------------------------------------------------


def bare_loop() -> float:
    """Return the bare Go loop's states a second; 0 without Go."""
    try:
        out = subprocess.run(
            ["go", "test", "-run", "xxx", "-bench", "BareTicTacToe", "-benchtime", "0.5s", "./bench"],
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), capture_output=True, text=True, check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0.0
    words = out.split()
    return float(words[words.index("Mstates/s") - 1]) * 1e6


def simulate_rows(seconds: float, quick: bool):
    pool = azserve.make("TicTacToe-v0", num_envs=1024)
    pool.reset()
    ids, actions = pool.snapshot(), np.zeros(1024, np.int32)

    def fork():
        child = pool.simulate_batch(ids, actions)[3]
        pool.release_batch(child["state_id"])

    a, bare = 0.0, 0.0
    for _ in range(2):
        bare = max(bare, bare_loop())
        a = max(a, best(fork, 1024, seconds / 2, time.perf_counter))
    yield Row("simulate_batch, 1024 TicTacToe states (states/s)", a, "bare Go loop", bare, "0.5")


def torch_rows(seconds: float, quick: bool):
    if not installed("torch"):
        return
    import torch

    from azserve.torch_api import TorchEnvPool

    for n in (64, 256, 1024):
        pool = TorchEnvPool("CartPole-v1", num_envs=n)
        pool.reset()
        actions = itertools.cycle([torch.from_numpy(next(a)) for a in [cartpole_actions(n)] for _ in range(64)])
        a, b = in_turns(lambda: pool.step(next(actions)), azserve_cartpole(n), n, seconds)  # noqa: B023
        yield Row(f"TorchEnvPool, CartPole, {n} environments (steps/s)", a, "azserve with NumPy", b)


def border_rows(seconds: float, quick: bool):
    from azserve import _native

    version = _native.lib.azs_abi_version
    a = best(lambda: [version() for _ in range(100)], 100, seconds, time.perf_counter)
    yield Row("a call of Python into Go that does nothing (calls/s)", a, goal="1 M/s")
    pool = azserve.make("TicTacToe-v0")
    pool.reset()
    ids = pool.snapshot()
    a = best(lambda: pool.simulate_batch(ids, [0])[3] and pool.release_batch([]), 1, seconds, time.perf_counter)
    yield Row("simulate_batch of one state (calls/s)", a)


def memory_rows(seconds: float, quick: bool):
    """Show the bytes that each of a million states takes, as the operating system counts them."""
    for id in ("TicTacToe-v0", "ConnectFour-v0", "CartPole-v1", "Maze-v0"):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            taken, said = fresh.apply(memory_of, (id,))
        yield Row(f"memory of a {id} state (bytes)", taken, "its plain size", said)


def memory_of(id: str) -> tuple[float, float]:
    pool = azserve.make(id, num_envs=1000, max_states=1_100_000)
    pool.reset()
    many, actions = np.tile(pool.snapshot(), 20), np.zeros(20_000, np.int32)
    pool.simulate_batch(many, actions)
    before = resident()
    for _ in range(50):
        pool.simulate_batch(many, actions)
    taken = (resident() - before) / 1e6
    return taken, pool.stats()["bytes"] / pool.stats()["states"]


def resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")



GROUPS = {
    "cartpole": cartpole_rows, "gymnasium": gymnasium_rows, "boards": game_rows, "simulate": simulate_rows,
    "torch": torch_rows, "border": border_rows, "memory": memory_rows,
}
