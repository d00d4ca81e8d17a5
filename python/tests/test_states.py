"""Snapshots as bytes, replay, hashes, pictures."""

import multiprocessing
import pickle
import threading

import numpy as np
import pytest

import azserve

GAMES = ["BinPack-v0", "CartPole-v1", "ConnectFour-v0", "Gomoku-v0", "Maze-v0", "Pig-v0", "TicTacToe-v0"]


def legal(obs, spec, rng):
    if "action_mask" not in obs:
        return rng.integers(spec.num_actions, size=len(next(iter(obs.values()))))
    return np.array([rng.choice(np.flatnonzero(m)) if m.any() else 0 for m in obs["action_mask"]])


def future(blobs, id, actions):
    """Play on from bytes in another process, and return what comes of it."""
    with azserve.make(id) as pool:
        ids = pool.load(pickle.loads(blobs))
        for a in actions:
            ids = pool.simulate_batch(ids, a)[3]["state_id"]
        return pool.dump(ids)


@pytest.mark.parametrize("id", GAMES)
def test_bytes_go_to_another_process(make, id):
    rng = np.random.default_rng(0)
    pool = make(id, num_envs=3, seed=5, autoreset="disabled")
    obs, _ = pool.reset()
    obs, *_ = pool.step(legal(obs, pool.spec, rng))
    ids = pool.snapshot()
    blobs = pickle.dumps(pool.dump(ids))
    actions = []
    for _ in range(3):
        actions.append(legal(obs, pool.spec, rng))
        obs, _, _, child = pool.simulate_batch(ids, actions[-1])
        ids = child["state_id"]
    with multiprocessing.get_context("spawn").Pool(1) as other:
        assert other.apply(future, (blobs, id, actions)) == pool.dump(ids)


@pytest.mark.parametrize("id", GAMES)
def test_foreign_and_damaged_bytes(make, id):
    pool = make(id)
    pool.reset()
    blob = pool.dump(pool.snapshot())[0]
    for other in GAMES:
        if other != id:
            with pytest.raises(azserve.BadStateError, match=f'row 0: .*of "{id}" version 1; want {other}'):
                make(other).load([blob])
    rng = np.random.default_rng(0)
    for _ in range(200):
        bad = bytearray(blob)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        bad = bytes(bad[: rng.integers(len(bad)) if rng.random() < 0.3 else None])
        if bad != blob:
            with pytest.raises(azserve.BadStateError, match="row 1"):
                pool.load([blob, bad])
    assert pool.stats()["live_states"] == 1, "a refused load left states"
    with pytest.raises(ValueError, match="blobs: row 0 is a str; want bytes"):
        pool.load(["AZ"])


def test_replay(make):
    pool = make("Maze-v0", num_envs=4, seed=2, record=True)
    rng = np.random.default_rng(1)
    pool.reset()
    seen = [pool.dump(pool.snapshot())]
    for _ in range(10):
        pool.step(rng.integers(4, size=4))
        seen.append(pool.dump(pool.snapshot()))
    for t in (0, 3, 10):
        assert pool.dump(pool.replay([0, 1, 2, 3], t)) == seen[t]
    assert pool.dump(pool.replay([2, 0], [1, 7])) == [seen[1][2], seen[7][0]]
    assert len(pool.episode_actions(1)) == 10
    with pytest.raises(ValueError, match="step 11 of env_id 0; want 0 to 10"):
        pool.replay([0], [11])
    with pytest.raises(ValueError, match="record=true"):
        make("Maze-v0").replay([0], 0)


def test_hash_and_observe(make):
    pool = make("TicTacToe-v0", num_envs=2)
    pool.reset()
    for actions in ([0, 4], [8, 1], [4, 0]):
        pool.step(actions)
    ids = pool.snapshot()
    obs, info = pool.observe()
    assert np.array_equal(obs["board"], pool.observe(state_id=ids)[0]["board"])
    assert info["to_play"].tolist() == [1, 1] and info["action_mask"].sum(1).tolist() == [6, 6]
    other, _, _, child = pool.simulate_batch(pool.snapshot(), [1, 8])
    assert np.array_equal(other["board"][0], other["board"][1]), "the same position in another order"
    keys = pool.state_hash(child["state_id"])
    assert keys[0] == keys[1] and pool.state_hash(ids)[0] != keys[0]


def test_render(make):
    pool = make("ConnectFour-v0", num_envs=2)
    pool.reset()
    pool.step([3, 3])
    ids = pool.snapshot()
    frames = pool.render()
    assert frames.shape == (2, 288, 336, 3) and np.array_equal(frames, pool.render(state_id=ids))
    assert frames[0, 264, 168].tolist() == [245, 205, 70], "a yellow stone at the bottom of column 3"
    assert "X" in pool.text(ids[0]) or "O" in pool.text(ids[0])


def test_rewards_of_all_players(make):
    pool = make("TicTacToe-v0", num_envs=2)
    pool.reset()
    for actions in ([0, 0], [1, 1], [3, 3], [4, 4]):
        info = pool.step(actions)[3]
    assert info["rewards"].tolist() == [[0, 0], [0, 0]]
    _, reward, done, child = pool.simulate_batch(pool.snapshot(), [6, 8])
    assert reward.tolist() == [1, 0] and child["rewards"].tolist() == [[1, -1], [0, 0]]
    _, reward, done, info = pool.step([6, 8])
    assert info["rewards"].tolist() == [[1, -1], [0, 0]] and done.tolist() == [True, False]


def test_partial_reset(make):
    pool = make("CartPole-v1", num_envs=4, seed=0)
    obs, _ = pool.reset()
    pool.step([0, 1, 0, 1])
    pool.async_reset([7, None], env_id=[3, 1])
    got, _, _, info = pool.recv()
    assert info["env_id"].tolist() == [3, 1] and info["elapsed_step"].tolist() == [0, 0]
    want, _ = make("CartPole-v1", seed=7).reset()
    assert np.array_equal(got["obs"][0], want["obs"][0]) and not np.array_equal(got["obs"][1], obs["obs"][1])


@pytest.mark.parametrize("id", GAMES)
def test_bits_do_not_depend_on_threads_or_batches(make, id):
    want = None
    for threads, batch, dispatch in (
        (1, 12, "inline"),
        (2, 12, "threads"),
        (7, 12, "auto"),
        (2, 5, "auto"),
        (7, 1, "threads"),
    ):
        pool = make(id, num_envs=12, batch_size=batch, seed=9, num_threads=threads, dispatch=dispatch)
        seen, short = [[] for _ in range(12)], 12
        pool.async_reset()
        while short:
            obs, reward, done, info = pool.recv()
            actions = np.zeros(len(reward), np.int32)
            for i, e in enumerate(info["env_id"]):
                seen[e].append([v[i].tobytes() for v in (*obs.values(), reward, done)])
                short -= len(seen[e]) == 30
                possible = np.flatnonzero(obs["action_mask"][i]) if "action_mask" in obs else [0, 1]
                actions[i] = possible[len(seen[e]) * (e + 1) % len(possible)]
            pool.send(actions, info["env_id"])
        rows = [s[:30] for s in seen]
        assert want is None or rows == want, f"{threads} threads, batch {batch}"
        want = rows


def test_scopes_belong_to_threads(make):
    pool = make("TicTacToe-v0", num_envs=2)
    pool.reset()
    made = []

    def other():
        made.append(pool.snapshot())

    with pool.scope():
        pool.snapshot()
        t = threading.Thread(target=other)
        t.start()
        t.join()
    assert len(pool.dump(made[0])) == 2 and pool.stats()["live_states"] == 2


def test_scopes_count_references(make):
    pool = make("TicTacToe-v0", num_envs=2)
    pool.reset()
    a = pool.snapshot([0])
    with pool.scope():
        b, _ = pool.snapshot([0]), pool.snapshot([1])
        assert a[0] == b[0], "one state, one id"
        pool.release_batch([a[0], b[0]])
    assert pool.stats()["live_states"] == 0
    with pool.scope():
        outer = pool.snapshot([0])
        with pool.scope():
            pool.release_batch(pool.snapshot([0]))
            assert pool.stats()["live_states"] == 1
        assert pool.dump(outer)
    assert pool.stats()["live_states"] == 0


def test_large_seeds(make):
    pool = make("CartPole-v1", num_envs=2, seed=[1, 2**64 - 1])
    first = pool.reset()[0]["obs"]
    assert np.array_equal(pool.reset(seed=[1, 2**64 - 1])[0]["obs"], first)
    assert not np.array_equal(pool.reset(seed=2**63 - 1)[0]["obs"], first)
    for bad in (-1, 2**64 - 1, [0, 2**64], [0, 0.5], [True, 1]):
        with pytest.raises(ValueError, match=r"seed: row \d is .*; want an integer from 0 to 2\*\*64 - 1"):
            pool.reset(seed=bad)


def test_restore_of_an_ended_state(make):
    for mode in ("same_step", "next_step", "disabled"):
        pool = make("TicTacToe-v0", autoreset=mode)
        pool.reset()
        ids = pool.snapshot()
        for a in (0, 3, 1, 4, 2):
            ids = pool.simulate_batch(ids, [a])[3]["state_id"]
        pool.restore([0], ids)
        if mode == "disabled":
            with pytest.raises(azserve.EpisodeEndedError):
                pool.step([8])
            continue
        obs, _, done, info = pool.step([8])
        assert not obs["board"].any() and not done[0] and info["elapsed_step"][0] == 0
