import contextlib
import functools
import os
import pathlib
import re
import threading
import time

import numpy as np
import pytest

import azserve


def test_lists_and_describes():
    assert {"CartPole-v1", "ConnectFour-v0", "Table-v0", "TicTacToe-v0"} <= set(azserve.list_envs())
    s = azserve.spec("ConnectFour-v0", rows=4, cols=5)
    assert (s.num_actions, s.num_players, s.obs[0].shape) == (5, 2, (4, 5, 2))
    assert s.keywords == "rows=4 cols=5 connect=4"
    assert azserve.spec("CartPole-v1").obs[0].high.tolist()[1] == float("inf")
    with pytest.raises(TypeError, match='no keyword "row"; known: rows, cols, connect'):
        azserve.spec("ConnectFour-v0", row=4)
    with pytest.raises(azserve.UnknownEnvError, match="ConnectFour-v0"):
        azserve.make("Conect4")


def test_send_and_recv(make):
    pool = make("ConnectFour-v0", num_envs=4)
    pool.async_reset()
    obs, reward, done, info = pool.recv()
    assert obs["board"].shape == (4, 6, 7, 2) and obs["board"].dtype == np.bool_
    assert obs["action_mask"].all()
    assert reward.dtype == np.float32 and done.dtype == np.bool_
    assert info["env_id"].dtype == np.int32 and info["env_id"].tolist() == [0, 1, 2, 3]
    pool.send(np.array([3, 3], np.int32), np.array([2, 0], np.int32))
    obs2, _, _, info = pool.recv()
    assert info["env_id"].tolist() == [2, 0] and info["to_play"].tolist() == [1, 1]
    assert not obs["board"].any(), "an old observation changed"
    assert obs2["board"][0, 5, 3].tolist() == [False, True]


def test_cartpole_is_gymnasiums(make):
    gymnasium = pytest.importorskip("gymnasium")
    pool = make("CartPole-v1", num_envs=3, seed=[7, 42, 5], autoreset="disabled")
    envs = [gymnasium.make("CartPole-v1") for _ in range(3)]
    obs, _ = pool.reset()
    assert np.array_equal(obs["obs"], [e.reset(seed=s)[0] for e, s in zip(envs, [7, 42, 5], strict=True)])
    rng = np.random.default_rng(0)
    for _ in range(10):
        actions = rng.integers(2, size=3)
        obs, _, done, _ = pool.step(actions)
        want = [e.step(int(a)) for e, a in zip(envs, actions, strict=True)]
        assert np.array_equal(obs["obs"], [w[0] for w in want])
        assert done.tolist() == [w[2] or w[3] for w in want]


def test_final_obs(make):
    pool = make("CartPole-v1", num_envs=5, seed=1, max_episode_steps=3)
    pool.reset()
    for i in range(1, 7):
        obs, _, done, info = pool.step([0, 1, 0, 1, 0])
        assert done.all() == (i % 3 == 0)
        assert ("final_obs" in info) == done.any()
        if done.any():
            assert info["truncated"].all() and not info["terminated"].any()
            assert info["final_obs"]["obs"].shape == (5, 4)
            assert not np.array_equal(info["final_obs"]["obs"], obs["obs"])
            assert (np.abs(obs["obs"]) <= 0.05).all()


def test_b30_seeds(make):
    pool = make("CartPole-v1", num_envs=8, seed=42)
    first = pool.reset()[0]["obs"]
    assert len({row.tobytes() for row in first}) == 8
    assert np.array_equal(pool.reset(seed=42)[0]["obs"], first)
    assert np.array_equal(pool.reset(seed=43)[0]["obs"][:7], first[1:])
    three = make("CartPole-v1", num_envs=3, seed=[3, 5, 7]).reset()[0]["obs"]
    for i, s in enumerate([3, 5, 7]):
        assert np.array_equal(three[i], make("CartPole-v1", seed=s).reset()[0]["obs"][0])
    with pytest.raises(ValueError, match="3 of them"):
        make("CartPole-v1", num_envs=3, seed=[1, 2])
    with pytest.raises(ValueError):
        pool.reset(seed=[1, 2])
    a, b = (make("CartPole-v1", num_envs=2, seed=None).reset()[0]["obs"] for _ in range(2))
    assert not np.array_equal(a, b)


def test_b31_recv_and_close(make):
    for dispatch in ("auto", "inline", "threads"):
        pool = make("CartPole-v1", num_envs=4, dispatch=dispatch)
        pool.async_reset()
        pool.recv()
        with pytest.raises(azserve.NothingInFlightError):
            pool.recv()
        pool.send([0, 1, 0, 1])
        pool.close()
        pool.close()
        for call in (
            pool.recv,
            pool.async_reset,
            pool.reset,
            pool.snapshot,
            pool.stats,
            functools.partial(pool.send, [0] * 4),
        ):
            with pytest.raises(azserve.PoolClosedError):
                call()
    pool = make("CartPole-v1", num_envs=4, batch_size=2)
    pool.async_reset()
    pool.recv()
    pool.recv()
    with pytest.raises(azserve.NothingInFlightError):
        pool.recv(timeout=0.1)


SLOW = """
import sys, threading, time, azserve, numpy as np
pool = azserve.make("CartPole-v1", num_envs=2, batch_size=2, dispatch="threads")
pool.reset()
pool.send([0, 0])
pool.recv()
try:
    print("ready", flush=True)
    while True:  # the moment of the signal is anywhere in here
        pool.send([0, 0]); pool.recv()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_recv(interrupt):
    out, seconds = interrupt(SLOW)
    assert out == "interrupted\n" and seconds < 2


def test_close_ends_a_blocked_recv(make):
    # Nothing blocks for long with the built-in environments, so the race is run many times.
    for _ in range(20):
        pool = azserve.make("CartPole-v1", num_envs=256, dispatch="threads")
        pool.reset()
        errors = []

        def loop(pool=pool, errors=errors):
            try:
                while True:
                    pool.send(np.zeros(256, np.int32))
                    pool.recv()
            except azserve.AzserveError as e:
                errors.append(e)

        t = threading.Thread(target=loop)
        t.start()
        time.sleep(0.005)
        pool.close()
        t.join(2)
        assert not t.is_alive()
        assert isinstance(errors[0], azserve.PoolClosedError)


def test_b33_actions(make):
    pool = make("ConnectFour-v0", num_envs=4)

    def column_of(actions):
        pool.reset()
        obs, *_ = pool.step(actions)
        return [int(np.flatnonzero(b[5, :, 1])[0]) for b in obs["board"]]

    wide = np.arange(8, dtype=np.int32).reshape(4, 2)[:, 0]
    assert column_of(wide) == [0, 2, 4, 6]
    assert column_of(np.arange(4)[::-1]) == [3, 2, 1, 0]
    assert column_of(np.array([1, 2, 0, 5], ">i4")) == [1, 2, 0, 5]
    assert column_of(np.array([1, 2, 0, 5], np.uint64)) == [1, 2, 0, 5]
    frozen = np.array([1, 2, 0, 5], np.int32)
    frozen.flags.writeable = False
    assert column_of(frozen) == [1, 2, 0, 5]
    assert column_of([6, 5, 4, 3]) == [6, 5, 4, 3]
    pool.reset()
    before = pool.dump(pool.snapshot())
    for bad, text in [
        (np.array([2**32 + 1, 0, 0, 0]), "row 0: 4294967297 doesn't fit int32"),
        (np.array([1.7, 0.2, 0, 0]), "dtype float64; want integers"),
        (np.array([True, False, True, False]), "dtype bool; want integers"),
        (np.zeros((4, 1), np.int32), r"shape \(4, 1\); want one dimension"),
        (np.array(1), "single number"),
        ([0, 0, 0, 7], "row 3: env_id 3: action 7; want 0 to 6"),
        ([0, 0, 0, -1], "row 3: env_id 3: action -1"),
        ([0, 0, 0], "3 entries; want num_envs=4"),
        ("0123", "want"),
    ]:
        with pytest.raises(ValueError, match=text):
            pool.send(bad)
    assert pool.dump(pool.snapshot()) == before, "a refused send changed a state"


def test_states(make):
    pool = make("TicTacToe-v0", num_envs=3)
    pool.reset()
    pool.step([0, 4, 8])
    ids = pool.snapshot()
    obs, reward, done, child = pool.simulate_batch(np.repeat(ids, 2), [1, 2, 1, 2, 1, 2])
    assert child["action_mask"].sum(1).tolist() == [7] * 6
    assert child["to_play"].tolist() == [0] * 6 and not done.any() and not reward.any()
    assert pool.stats()["live_states"] == 9
    pool.step([8, 8, 0])
    pool.restore([0, 1, 2], ids)
    obs, *_ = pool.step([1, 1, 1])
    assert np.array_equal(obs["board"][:, 0, 1], [[True, False]] * 0 + [[False, True]] * 3)
    blobs = pool.dump(ids)
    other = make("TicTacToe-v0", num_envs=1)
    assert other.dump(other.load(blobs)) == blobs
    with pytest.raises(azserve.BadStateError, match="damaged"):
        other.load([blobs[0], blobs[1][:-1] + b"x"])
    assert other.stats()["live_states"] == 3
    with pytest.raises(azserve.ForeignStateError):
        other.simulate_batch(ids, [0, 0, 0])
    pool.release_batch(child["state_id"])
    pool.release_batch(ids)
    with pytest.raises(azserve.StaleStateError, match=str(ids[0])):
        pool.release_batch(ids)
    assert pool.stats()["live_states"] == 0


def test_errors_name_the_row(make):
    pool = make("TicTacToe-v0", num_envs=2, max_states=4)
    pool.reset()
    ids = pool.snapshot()
    with pytest.raises(azserve.ActionError, match="row 1: action 9; want 0 to 8"):
        pool.simulate_batch(ids, [0, 9])
    _, _, _, child = pool.simulate_batch(ids, [4, 4])
    with pytest.raises(azserve.ActionError, match=r"row 0: action 4 is illegal; legal: \[0 1 2 3 5"):
        pool.simulate_batch(child["state_id"], [4, 0])
    with pytest.raises(azserve.BudgetError, match="raise max_states"):
        pool.simulate_batch(np.repeat(ids, 3), [0] * 6)
    with pytest.raises(azserve.EnvIdError, match="row 1: env_id 0 occurs twice"):
        pool.send([0, 0], [0, 0])
    with pytest.raises(azserve.EnvIdError, match="env_id 7; want 0 to 1"):
        pool.snapshot([0, 7])


def test_scope(make):
    pool = make("TicTacToe-v0", num_envs=2)
    pool.reset()
    outside = pool.snapshot()
    with pool.scope():
        ids = pool.snapshot()
        with pool.scope():
            pool.simulate_batch(ids, [0, 0])
        assert pool.stats()["live_states"] == 4
        pool.release_batch(ids[:1])
    assert pool.stats()["live_states"] == 2
    pool.release_batch(outside)


def test_threads(make, monkeypatch):
    monkeypatch.setenv("AZSERVE_NUM_THREADS", "3")
    assert make("TicTacToe-v0", num_envs=8).num_threads == 3
    assert make("TicTacToe-v0", num_envs=8, num_threads=2).num_threads == 2
    monkeypatch.setenv("AZSERVE_NUM_THREADS", "two")
    with pytest.raises(ValueError, match='AZSERVE_NUM_THREADS="two"'):
        make("TicTacToe-v0")
    monkeypatch.setenv("AZSERVE_NUM_THREADS", "")
    assert make("TicTacToe-v0", num_envs=1).num_threads == 1
    for bad, kind in ((0, ValueError), (-1, OverflowError), (1.5, TypeError), ("2", TypeError)):
        with pytest.raises(kind):
            make("TicTacToe-v0", num_threads=bad)
    with pytest.raises(ValueError, match="dispatch='gpu'; want one of 'auto', 'inline', 'threads'"):
        make("TicTacToe-v0", dispatch="gpu")
    with pytest.raises(ValueError, match="batch_size=3"):
        make("TicTacToe-v0", num_envs=2, batch_size=3)


def test_several_pools_and_threads(make):
    pools = [make("ConnectFour-v0", num_envs=32, seed=i) for i in range(3)]

    def work(pool):
        for _ in range(50):
            with pool.scope():
                pool.simulate_batch(pool.snapshot(), np.full(32, 3))

    for p in pools:
        p.reset()
    threads = [threading.Thread(target=work, args=(p,)) for p in pools]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [p.stats()["live_states"] for p in pools] == [0, 0, 0]


def test_fork_is_a_clear_error(make):
    pool = make("TicTacToe-v0")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            pool.async_reset()
        except azserve.ForkError as e:
            os.write(write, str(e).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b'start method "spawn"' in os.read(read, 1000)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads can be pinned on Linux only")
def test_thread_affinity(make):
    def pinned():
        n = 0
        for path in pathlib.Path("/proc/self/task").glob("*/status"):
            with contextlib.suppress(OSError):  # the thread is gone
                n += re.search(r"Cpus_allowed_list:\s*\d+$", path.read_text(), re.M) is not None
        return n

    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one CPU only: every thread is pinned")
    before = pinned()
    pool = make("CartPole-v1", num_envs=64, num_threads=3, thread_affinity_offset=1, dispatch="threads")
    pool.reset()
    pool.step([0, 1] * 32)
    assert pinned() >= before + 3
    pool.close()
    deadline = time.monotonic() + 5
    while pinned() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    # Go may have made one thread of its own from a pinned one.
    assert pinned() <= before + 1, "threads outlive their pool"
