"""Conditional masks against brute force over the flat mask."""

import itertools

import numpy as np
import pytest

import azserve


def brute(flat, sizes, prefix):
    rest = flat.reshape(sizes)[tuple(prefix)]
    return rest.reshape(rest.shape[0], -1).any(1)


@pytest.fixture(
    params=[("Maze-v0", {"factored": True}), ("BinPack-v0", {"max_num_items": 7, "obs_num_ems": 9})]
)
def pool(make, request):
    id, keywords = request.param
    return make(id, num_envs=5, seed=3, **keywords)


def test_every_prefix(pool):
    rng = np.random.default_rng(0)
    f = pool.action_factorization
    obs, _ = pool.reset()
    for _ in range(12):
        flat = obs["action_mask"]
        ids = pool.snapshot()
        for k in range(len(f.sizes)):
            for prefix in itertools.product(*(range(s) for s in f.sizes[:k])):
                want = np.array([brute(row, f.sizes, prefix) for row in flat])
                assert np.array_equal(pool.query_mask(prefix=prefix), want)
                assert np.array_equal(pool.query_mask(state_id=ids, prefix=prefix), want)
        pool.release_batch(ids)
        obs, *_ = pool.step([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in flat])


def test_ragged_prefixes(pool):
    f = pool.action_factorization
    obs, _ = pool.reset()
    prefix = np.full((5, 1), 99, np.int32)  # what doesn't count may be anything
    prefix[[1, 3], 0] = [0, 1]
    lengths = [0, 1, 0, 1, 0]
    mask, sizes = pool.query_mask(prefix=prefix, prefix_len=lengths)
    assert mask.shape == (5, max(f.sizes)) and sizes.tolist() == [f.sizes[k] for k in lengths]
    for i, k in enumerate(lengths):
        want = brute(obs["action_mask"][i], f.sizes, prefix[i, :k])
        assert np.array_equal(mask[i, : len(want)], want) and not mask[i, len(want) :].any()


def test_encode_and_decode(pool):
    f = pool.action_factorization
    every = np.arange(pool.spec.num_actions)
    parts = pool.decode_action(every)
    assert np.array_equal(parts, np.stack(np.unravel_index(every, f.sizes), 1))
    assert np.array_equal(pool.encode_action(parts), every)
    assert f.strides == (f.sizes[1], 1)


def test_teacher_forcing(pool):
    f = pool.action_factorization
    obs, _ = pool.reset()
    actions = [int(np.flatnonzero(m)[-1]) for m in obs["action_mask"]]
    parts = pool.decode_action(actions)
    ids = pool.snapshot()
    for masks in (pool.query_mask_all(actions=actions), pool.query_mask_all(state_id=ids, actions=actions)):
        assert [m.shape for m in masks] == [(5, s) for s in f.sizes]
        for i in range(5):
            for k in range(len(f.sizes)):
                assert np.array_equal(masks[k][i], brute(obs["action_mask"][i], f.sizes, parts[i, :k]))
                assert masks[k][i, parts[i, k]]
    pool.release_batch(ids)
    assert pool.stats()["live_states"] == 0


def test_samples_are_legal_and_as_likely_as_said(pool):
    f = pool.action_factorization
    obs, _ = pool.reset()
    rng = np.random.default_rng(1)
    tables = [rng.normal(size=s) for s in f.sizes]
    ids = np.repeat(pool.snapshot([0]), 4000)
    seen = {}
    actions, log_prob = pool.sample_factored(
        None, lambda k, p, m: np.tile(tables[k], (len(p), 1)), rng, state_id=ids
    )
    for a, lp in zip(actions.tolist(), log_prob.tolist(), strict=True):
        assert obs["action_mask"][0, a]
        seen.setdefault(a, [0, lp])[0] += 1
        assert seen[a][1] == lp
    for count, lp in seen.values():
        p = np.exp(lp)
        assert abs(count / 4000 - p) < 5 * np.sqrt(p / 4000)
    drawn, _ = pool.sample_factored(None, lambda k, p, m: np.zeros(m.shape), rng)
    assert obs["action_mask"][np.arange(5), drawn].all()


def test_errors(pool, make):
    f = pool.action_factorization
    pool.reset()
    for prefix, text in [
        (np.zeros((5, 2), int), "prefix has 2 components; want at most 1 of the 2"),
        (
            np.full((5, 1), f.sizes[0]),
            rf"prefix: row 0: component 0 \({f.names[0]}\) is {f.sizes[0]}; want 0 to",
        ),
        (np.zeros((4, 1), int), r"prefix has shape \(4, 1\); want \[5, k\]"),
        ([0.5], "prefix has dtype float64; want integers"),
    ]:
        with pytest.raises(ValueError, match=text):
            pool.query_mask(prefix=prefix)
    with pytest.raises(ValueError, match="both given"):
        pool.query_mask([0], state_id=[1])
    with pytest.raises(ValueError, match="prefix_len"):
        pool.query_mask(prefix=np.zeros((5, 1), int), prefix_len=[0, 0, 0, 0, 2])
    with pytest.raises(azserve.ActionError, match=f"row 1: {pool.spec.num_actions}; want 0 to"):
        pool.decode_action([0, pool.spec.num_actions])
    with pytest.raises(ValueError, match=r"components has shape \(2, 3\)"):
        pool.encode_action(np.zeros((2, 3), int))
    ids = pool.snapshot()
    pool.release_batch(ids)
    with pytest.raises(azserve.StaleStateError):
        pool.query_mask(state_id=ids)
    with pytest.raises(ValueError, match="isn't finite where a value is possible"):
        pool.sample_factored(None, lambda k, p, m: np.full(m.shape, np.nan), np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"logits_fn\(0\) has shape"):
        pool.sample_factored(None, lambda k, p, m: m[:, 1:], np.random.default_rng(0))
    pool.send([0] * 5)
    with pytest.raises(azserve.EnvBusyError):
        pool.query_mask()
    plain = make("TicTacToe-v0")
    plain.reset()
    assert plain.action_factorization is None
    with pytest.raises(azserve.UnsupportedError, match="TicTacToe-v0: actions have no components"):
        plain.query_mask()


def test_no_completion(make):
    pool = make(
        "BinPack-v0", instance={"container": [2, 2, 2], "items": [[2, 2, 2], [1, 1, 1]]}, autoreset="disabled"
    )
    pool.reset()
    pool.step([0])
    assert not pool.query_mask().any() and not pool.query_mask(prefix=[0]).any()
    with pytest.raises(ValueError, match=r"row 0: no legal action begins with \[0\]"):
        pool.query_mask(prefix=[0], strict=True)
