"""Inputs on which EnvPool 1.2.5 crashes, hangs or says nothing: a typed error, and a pool that goes on."""

import subprocess
import sys

import numpy as np
import pytest

import azserve


@pytest.fixture
def pool(make):
    pool = make("CartPole-v1", num_envs=4, seed=0)
    pool.reset()
    return pool


@pytest.mark.parametrize(
    ("actions", "env_id", "error", "text"),
    [
        (np.array(1), None, ValueError, "actions is a single number"),
        ([0], [4], azserve.EnvIdError, "row 0: env_id 4; want 0 to 3"),
        ([0, 0], [0, -1], azserve.EnvIdError, "row 1: env_id -1; want 0 to 3"),
        ([0, 0], None, ValueError, "actions has 2 entries; want num_envs=4, or give env_id"),
        ([0] * 5, None, ValueError, "actions has 5 entries; want num_envs=4"),
        ([0] * 5, [0, 1, 2, 3, 0], azserve.EnvIdError, "row 4: env_id 0 occurs twice"),
        ([0, 7, 0, 0], None, azserve.ActionError, "row 1: env_id 1: action 7; want 0 to 1"),
        ([0, 0, -3, 0], None, azserve.ActionError, "row 2: env_id 2: action -3; want 0 to 1"),
        ([0, 0], [1, 1], azserve.EnvIdError, "row 1: env_id 1 occurs twice"),
        ("0101", None, ValueError, "actions is a single number"),
        ([None] * 4, None, ValueError, "actions has dtype object; want integers"),
        ([[0, 1], [0, 1]], None, ValueError, r"actions has shape \(2, 2\); want one dimension"),
    ],
)
def test_actions(pool, actions, env_id, error, text):
    before = pool.dump(pool.snapshot())
    with pytest.raises(error, match=text):
        pool.send(actions, env_id)
    assert pool.stats()["pending"] == 0
    assert pool.dump(pool.snapshot()) == before, "something was stepped"
    assert pool.step([0, 1, 0, 1])[3]["elapsed_step"].tolist() == [1] * 4


def test_a_list_of_actions_is_taken(pool):
    assert pool.step([0, 1, 0, 1])[0]["obs"].shape == (4, 4)


def test_many_sends_without_recv(pool):
    pool.send([0] * 4)
    for _ in range(1000):
        with pytest.raises(azserve.EnvBusyError, match="env_id 0: receive its result first"):
            pool.send([0] * 4)
    assert pool.recv()[3]["elapsed_step"].tolist() == [1] * 4


def test_async_recv_with_nothing_sent(make):
    pool = make("CartPole-v1", num_envs=4, batch_size=2)
    with pytest.raises(azserve.NothingInFlightError):
        pool.recv()
    pool.async_reset()
    assert len(pool.recv()[1]) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_threads": -1}, OverflowError, "num_threads=-1"),
        ({"num_envs": 4, "batch_size": 5}, ValueError, "batch_size=5; want 1 to num_envs=4"),
        ({"num_envs": 0}, ValueError, "num_envs=0; want a positive integer"),
        ({"num_envs": 4, "seed": [1, 2]}, ValueError, r"seed has shape \(2,\); want an integer or 4 of them"),
        ({"seed": -1}, ValueError, "seed: row 0 is -1; want an integer from 0"),
        ({"seed": 1.5}, ValueError, "seed"),
        (
            {"autoreset": "always"},
            ValueError,
            "autoreset='always'; want one of 'same_step', 'next_step', 'disabled'",
        ),
        ({"dispatch": "gpu"}, ValueError, "dispatch='gpu'; want one of 'auto', 'inline', 'threads'"),
        ({"thread_affinity_offset": -1}, ValueError, "thread_affinity_offset=-1"),
        ({"thread_affinity_offset": 0.5}, TypeError, "thread_affinity_offset=0.5"),
        (
            {"sutton_barto": True},
            TypeError,
            'no keyword "sutton_barto"; known: max_episode_steps, sutton_barto_reward',
        ),
        ({"max_episode_steps": b"8"}, TypeError, "max_episode_steps=b'8': a bytes can't be a setting"),
        ({"num_threads": True}, TypeError, "num_threads=True"),
        ({"max_states": 2**24 + 1}, ValueError, "max_states=16777217; want at most 16777216"),
        ({"max_episode_steps": "ten"}, TypeError, 'max_episode_steps="ten": want int'),
    ],
)
def test_construction(arguments, error, text):
    with pytest.raises(error, match=text):
        azserve.make("CartPole-v1", **arguments)


def test_calls_after_close(pool):
    pool.close()
    for call in (
        lambda: pool.step([0] * 4),
        lambda: pool.send([0] * 4),
        pool.recv,
        pool.reset,
        pool.snapshot,
    ):
        with pytest.raises(azserve.PoolClosedError):
            call()


def test_timeout_must_be_a_time(pool):
    for bad in (-1, float("nan"), float("inf"), "soon"):
        with pytest.raises(ValueError, match="timeout="):
            pool.recv(timeout=bad)


def test_nothing_kills_the_process():
    """A process in which every call of the library gets wrong numbers."""
    script = """
import numpy as np, azserve
from azserve import _native
ffi, lib = _native.ffi, _native.lib
calls = {}
calls["azs_text"] = [lib.azs_pool_stats, lib.azs_pool_close, lib.azs_pool_text, lib.azs_pool_actions]
calls["azs_text"].append(lib.azs_pool_open)
calls["azs_send"] = [lib.azs_pool_reset, lib.azs_pool_send, lib.azs_pool_snapshot, lib.azs_pool_restore,
                     lib.azs_pool_release, lib.azs_pool_replay, lib.azs_pool_hash]
calls["azs_recv"] = [lib.azs_pool_recv, lib.azs_pool_simulate, lib.azs_pool_observe]
calls["azs_blobs"] = [lib.azs_pool_dump, lib.azs_pool_load]
calls["azs_mask"], calls["azs_paint"] = [lib.azs_pool_mask], [lib.azs_pool_paint]
calls["azs_timing"] = [lib.azs_pool_timing]
pool = azserve.make("TicTacToe-v0", num_envs=2)
pool.reset()
for handle in (0, 1, 12345, 2**63, pool._handle):
    for kind, functions in calls.items():
        for f in functions:
            block = _native.Block(kind + " *")
            if kind == "azs_text":
                if handle == pool._handle and f == lib.azs_pool_close:
                    continue
                block.c.handle = handle
            else:
                block.c.pool = handle
            f(block.c)
pool.recv()  # a reset of all is the one call that was right
assert pool.step([0, 0])[0]["board"].shape == (2, 3, 3, 2)
print("lives")
"""
    p = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert p.stdout == "lives\n", p.stderr
