import ast
import pathlib
import re

import numpy as np
import pytest

import azserve


def uniform(obs, mask):
    return np.zeros(mask.shape, np.float32), np.zeros(len(mask), np.float32)


def roots(make, id="ConnectFour-v0", n=8, **kw):
    pool = make(id, num_envs=n, **kw)
    pool.reset()
    return pool, pool.snapshot()


@pytest.mark.parametrize("policy", ["alphazero", "muzero", "gumbel"])
def test_ask_tell_equals_the_built_in_loop(make, policy):
    pool, ids = roots(make)
    a = azserve.search(pool, ids, "uniform", num_simulations=48, policy=policy, seed=3)
    b = azserve.search(pool, ids, uniform, num_simulations=48, policy=policy, seed=3)
    for name in ("action", "action_weights", "visits", "qvalues", "value", "raw_value"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert (a.visits.sum(1) == 48).all()
    c = azserve.search(pool, ids, "uniform", num_simulations=48, policy=policy, seed=4)
    assert not np.array_equal(a.action_weights, c.action_weights) or not np.array_equal(a.action, c.action)


def test_seeds_a_row(make):
    pool, ids = roots(make)
    a = azserve.search(pool, ids, "uniform", seed=list(range(8)))
    b = azserve.search(pool, ids[::-1], "uniform", seed=list(range(8))[::-1])
    assert np.array_equal(a.visits, b.visits[::-1])
    x, y = (azserve.search(pool, ids, "uniform").visits for _ in range(2))
    assert not np.array_equal(x, y), "two searches without a seed are the same"


def test_evaluator_arrays(make):
    pool, ids = roots(make)
    want = azserve.search(
        pool, ids, lambda o, m: (o["board"].sum((1, 3)), o["board"].sum((1, 2, 3)) / 99.0), seed=1
    )
    for convert in (
        lambda x: np.asfortranarray(x),
        lambda x: np.asarray(x, np.float64),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x.astype(">f4"),
        lambda x: x.tolist(),
    ):
        got = azserve.search(
            pool,
            ids,
            lambda o, m, c=convert: (
                c(o["board"].sum((1, 3)).astype(np.float32)),
                c((o["board"].sum((1, 2, 3)) / 99.0).astype(np.float32)),
            ),
            seed=1,
        )
        assert np.array_equal(want.visits, got.visits)


def test_solve(make):
    pool, ids = roots(make, "TicTacToe-v0", n=2)
    pool.step([0, 0])
    pool.step([3, 4])
    pool.step([1, 1])
    pool.step([4, 2])
    ids = pool.snapshot()  # the first can win at once, the second must block
    r = azserve.search(pool, ids, "uniform", num_simulations=2000, policy="alphazero", solve=True)
    assert r.proven.all() and r.value.tolist() == [1, 0] and r.action.tolist() == [2, 6]
    with pytest.raises(ValueError, match="solve=true"):
        cart, one = roots(make, "CartPole-v1", n=1)
        azserve.search(cart, one, "uniform", solve=True)


LONG = """
import azserve
pool = azserve.make("ConnectFour-v0", max_states=2**24)
pool.reset()
print("ready", flush=True)
try:
    azserve.search(pool, pool.snapshot(), "rollout", num_simulations=10_000_000)
except KeyboardInterrupt:
    print("interrupted", pool.stats()["searches"], flush=True)
"""


def test_ctrl_c_ends_a_long_search(interrupt):
    out, seconds = interrupt(LONG, after=0.5)
    assert out == "interrupted 0\n" and seconds < 2


def test_advance(make):
    pool, ids = roots(make, n=4)
    seen = []

    def counted(obs, mask):
        seen.append(len(mask))
        return uniform(obs, mask)

    with azserve.Search(pool, ids, num_simulations=64, policy="alphazero", seed=1) as s:
        for ply in range(5):
            while (leaves := s.select()) is not None:
                s.expand(*counted(leaves.obs, leaves.action_mask))
            r = s.result()
            assert (r.visits.sum(1) == 64).all()
            with pytest.raises(azserve.ActionError, match="row 1: action 9"):
                s.advance([0, 9, 0, 0])
            s.advance(r.action)
            if ply == 0:
                assert sum(seen) == 4 * 65
                seen.clear()
    assert sum(seen) < 4 * 4 * 60, "nothing was kept"
    assert pool.stats()["reserved_states"] == 0


def test_bad_evaluators(make):
    pool, ids = roots(make)
    for bad, text in [
        (
            lambda o, m: (np.zeros((len(m), 6)), np.zeros(len(m))),
            r"prior_logits has shape \(8, 6\); want \(8, 7\)",
        ),
        (lambda o, m: (np.zeros(m.shape), np.zeros(len(m) - 1)), r"value has shape \(7,\); want \(8,\)"),
        (lambda o, m: (np.zeros(m.shape), np.full(len(m), np.nan)), "row 0: value is NaN"),
        (lambda o, m: (np.zeros(m.shape, complex), np.zeros(len(m))), "complex"),
    ]:
        with pytest.raises(azserve.EvaluatorError, match=text):
            azserve.search(pool, ids, bad)

    def fails(obs, mask):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        azserve.search(pool, ids, fails)
    stats = pool.stats()
    assert stats["searches"] == 0 and stats["reserved_states"] == 0
    with pytest.raises(ValueError, match='evaluator "magic"'):
        azserve.search(pool, ids, "magic")
    with pytest.raises(ValueError, match="num_simulations=0"):
        azserve.search(pool, ids, "uniform", num_simulations=0)
    with pytest.raises(ValueError, match="pb_c_initt"):
        azserve.search(pool, ids, "uniform", pb_c_initt=1)


def test_invalid_actions_and_order(make):
    pool, ids = roots(make, n=2)
    invalid = np.zeros((2, 7), bool)
    invalid[:, :6] = True
    r = azserve.search(pool, ids, "uniform", invalid_actions=invalid)
    assert r.action.tolist() == [6, 6] and r.visits[:, 6].tolist() == [32, 32]
    with azserve.Search(pool, ids) as s:
        with pytest.raises(azserve.CallOrderError):
            s.expand(None, [])
        s.select()
        with pytest.raises(azserve.CallOrderError):
            s.select()
    with pytest.raises(azserve.PoolClosedError):
        s.select()


def test_table_and_tree(make):
    table = {
        "next_state": np.array([[1, 2], [3, 3], [3, 3], [3, 3]]),
        "reward": np.array([[0, 0], [1, 0], [0, 0], [0, 0.0]]),
        "to_play": [0, 1, 1, 0],
        "terminal": [0, 0, 0, 1],
        "prior_logits": np.array([[0, -np.inf], [0, 0], [0, 0], [0, 0]]),
    }
    pool = make("Table-v0", num_envs=1, table=table)
    pool.reset()
    ids = pool.snapshot()
    kw = {"num_simulations": 64, "policy": "muzero", "dirichlet_fraction": 0, "temperature": 0}
    r = azserve.search(pool, ids, "table", **kw)
    assert r.qvalues[0, 0] < -0.9
    table["prior_logits"] = np.zeros((4, 2))
    pool = make("Table-v0", num_envs=1, table=table)
    pool.reset()
    r = azserve.search(pool, pool.snapshot(), "table", **kw)
    assert r.visits.tolist() == [[4, 60]] and r.qvalues.tolist() == [[-0.75, 0]]

    def answer(obs, mask):
        return np.zeros(mask.shape), np.zeros(len(mask))

    r = azserve.search(pool, pool.snapshot(), answer, keep_tree=True, **kw)
    t = r.tree()
    assert t.node_visits[0, 0] == 65 and t.children_visits[0, 0].tolist() == [4, 60]
    child = t.children_index[0, 0, 1]
    assert t.parents[0, child] == 0 and t.action_from_parent[0, child] == 1
    with pytest.raises(ValueError, match="keep_tree=True"):
        azserve.search(pool, pool.snapshot(), answer, **kw).tree()


def test_agrees_with_mctx(make):
    pytest.importorskip("mctx")
    from mctx_peer import compare, compare_stochastic

    compare(make, tables=200)
    compare_stochastic(make, tables=200)


def board_network(obs, mask):
    board = obs["board"].reshape(len(mask), -1).astype(np.float32)
    weights = np.linspace(-1, 1, board.shape[1] * 7, dtype=np.float32).reshape(-1, 7)
    return board @ weights, np.tanh(board @ weights[:, 0])


def same(a, b, *names):
    for name in names or ("action", "action_weights", "visits", "qvalues", "value", "raw_value"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


def test_groups_in_turn_change_nothing(make):
    pool, ids = roots(make)
    kw = {"num_simulations": [5, 40, 7, 8, 9, 10, 11, 12], "seed": 3, "keep_tree": True}
    a = azserve.search(pool, ids, board_network, **kw)
    b = azserve.search(pool, ids, board_network, pipeline=True, **kw)
    same(a, b)
    assert np.array_equal(a.tree().children_visits, b.tree().children_visits)
    assert a.stats["simulations"] == b.stats["simulations"] == 102
    assert a.visits.sum(1).tolist() == kw["num_simulations"]
    order = []
    azserve.search(pool, ids, lambda o, m: order.append(len(m)) or board_network(o, m), pipeline=True, seed=3)
    assert order[:4] == [4, 4, 4, 4]


def test_cache(make):
    pool, ids = roots(make)
    cache = azserve.Cache(pool, positions=10_000)
    asked = 0

    def network(obs, mask):
        nonlocal asked
        asked += len(mask)
        return board_network(obs, mask)

    want = azserve.search(pool, ids, network, seed=3)
    assert want.stats["evaluations"] == asked
    asked = 0
    got = azserve.search(pool, ids, network, seed=3, cache=cache)
    same(want, got)
    assert asked == got.stats["evaluations"] and got.stats["cache_hits"] > 0
    assert asked + got.stats["cache_hits"] == want.stats["evaluations"]
    asked = 0
    same(want, azserve.search(pool, ids, network, seed=3, cache=cache))
    assert asked == 0
    cache.forget()
    same(want, azserve.search(pool, ids, network, seed=3, cache=cache))
    assert asked > 0
    other, states = roots(make, "TicTacToe-v0")
    with pytest.raises(ValueError, match="a cache for 7 actions; want 9"):
        azserve.search(other, states, "uniform", cache=cache)


@pytest.mark.parametrize("policy", ["alphazero", "gumbel", "stochastic"])
def test_chance(make, policy):
    pool, ids = roots(make, "Pig-v0", target=20)
    assert pool.spec.num_outcomes == 6
    kw = {"num_simulations": 60, "policy": policy, "seed": 1, "keep_tree": True}

    def value(obs, mask):
        mine, theirs, turn, pending = obs["points"].T
        return np.zeros(mask.shape), np.tanh(mine + turn / 2 - theirs + pending / 10)

    a = azserve.search(pool, ids, value, **kw)
    chance = 0
    with azserve.Search(pool, ids, **kw) as s:
        while (leaves := s.select()) is not None:
            assert np.array_equal(leaves.chance, leaves.obs["points"][:, 3] > 0)
            chance += leaves.chance.sum()
            s.expand(*value(leaves.obs, leaves.action_mask))
        same(a, s.result())
    assert (chance > 0) == (policy == "stochastic")
    t = a.tree()
    assert t.chance.any() and t.children_visits.shape[2] == 6
    b = azserve.search(pool, ids, "rollout", **kw)
    assert b.tree().node_visits.shape == t.node_visits.shape


def test_budgets(make):
    pool, ids = roots(make)
    r = azserve.search(pool, ids, board_network, num_simulations=100_000, time_limit=0.05, max_bytes=200_000)
    assert (r.visits.sum(1) < 100_000).all() and (r.visits.sum(1) > 0).all()
    r = azserve.search(pool, ids, "uniform", num_simulations=3000, max_nodes=100, policy="alphazero")
    assert (r.visits.sum(1) == 3000).all() and r.stats["pruned"] > 0
    limit = np.full(8, -1.0)
    limit[3] = 100
    r = azserve.search(pool, ids, "uniform", num_simulations=64, time_limit=limit)
    assert r.visits.sum(1).tolist() == [0, 0, 0, 64, 0, 0, 0, 0]
    for kw, message in (
        ({"num_simulations": [1, 2]}, "num_simulations has 2 entries; want 8"),
        ({"max_nodes": 3}, "max_nodes=3; want at least 11"),
        ({"time_limit": float("nan")}, "time_limit=nan"),
        ({"fast": [True]}, r"fast has shape \(1,\); want \(8,\)"),
        ({"fpu": "none", "policy": "alphazero"}, "fpu=none; want one of"),
        ({"lcb": 1.0}, "lcb=1; want 0, or more with another policy than gumbel"),
        ({"count_kept": False}, "max_nodes=0; want more than 0 with count_kept=false"),
    ):
        with pytest.raises(ValueError, match=message):
            azserve.search(pool, ids, "uniform", **kw)


def test_go_on_in_a_kept_tree(make):
    pool, ids = roots(make)
    kw = {"num_simulations": 50, "policy": "muzero", "temperature": 0, "seed": 1}
    for count_kept, visits in ((True, [50, 50]), (False, [50, 80])):
        with azserve.Search(pool, ids, count_kept=count_kept, max_nodes=400, **kw) as s:
            for least in visits:
                while (leaves := s.select()) is not None:
                    s.expand(*board_network(leaves.obs, leaves.action_mask))
                r = s.result()
                assert (r.visits.sum(1) >= least).all()
                s.advance(r.action)


def test_search_with_a_named_evaluator(make):
    pool, ids = roots(make)
    kw = {"num_simulations": 30, "policy": "muzero", "seed": 1, "temperature": 0}
    with azserve.Search(pool, ids, evaluator="uniform", **kw) as a, azserve.Search(pool, ids, **kw) as b:
        for _ in range(3):
            a.run()
            while (leaves := b.select()) is not None:
                b.expand(*uniform(leaves.obs, leaves.action_mask))
            same(a.result(), b.result())
            with pytest.raises(ValueError, match="call run"):
                a.select()
            with pytest.raises(ValueError, match="call select"):
                b.run()
            a.advance(a.result().action)
            b.advance(b.result().action)


def test_named_evaluators_keep_trees(make):
    pool, ids = roots(make)
    kw = {"num_simulations": 30, "policy": "muzero", "seed": 1}
    a = azserve.search(pool, ids, uniform, keep_tree=True, **kw)
    b = azserve.search(pool, ids, "uniform", keep_tree=True, **kw)
    same(a, b)
    assert np.array_equal(a.tree().children_index, b.tree().children_index)


def test_ten_lines(make):
    pool = azserve.make("ConnectFour-v0", num_envs=64, seed=1)
    pool.reset()
    with pool.scope():
        states = pool.snapshot()
        result = azserve.search(pool, states, uniform, num_simulations=32)
        pool.step(result.action)
    assert pool.stats()["live_states"] == 0
    pool.close()


def test_header_library_and_package_agree():
    package = pathlib.Path(azserve.__file__).parent
    declared = set(re.findall(r"^int32_t (azs_\w+)\(", (package / "azserve.h").read_text(), re.M))
    native = pathlib.Path(__file__).parents[1] / "native"
    exported = set()
    for f in native.glob("*.go"):
        exported |= set(re.findall(r"^//export (azs_\w+)$", f.read_text(), re.M))
    assert declared == exported
    codes = set(map(int, re.findall(r"\{(\d+), \w+", (native / "errors.go").read_text())))
    from azserve import _errors

    assert codes <= set(_errors._CLASSES)


def test_all_is_sorted():
    tree = ast.parse(pathlib.Path(azserve.__file__).read_text())
    names = next(
        ast.literal_eval(n.value)
        for n in tree.body
        if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
    )
    assert names == sorted(names)
    assert all(hasattr(azserve, n) for n in names)
