"""Evaluators by name, and what happens when one answers badly."""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import azserve

ROOT = pathlib.Path(__file__).parents[2]


def roots(make, n=16, env="ConnectFour-v0", plies=3):
    pool = make(env, num_envs=n, seed=1)
    obs, info = pool.reset()
    rng = np.random.default_rng(2)
    for _ in range(plies):
        obs, _, _, info = pool.step(
            np.array([rng.choice(np.flatnonzero(m)) for m in obs["action_mask"]], np.int32)
        )
    return pool, pool.snapshot(info["env_id"]), obs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small residual network of ours, and the same as an ONNX file."""
    folder = tmp_path_factory.mktemp("model")
    program = ROOT / "bin/azserve"
    run = [program, "train", "ConnectFour-v0", "--games", "8", "--games-per-iteration", "4"]
    run += ["--blocks", "1", "--channels", "8", "--simulations", "4", "--out", folder / "run"]
    run += ["--eval-games", "2", "--eval-simulations", "2", "--eval-opponent", "random"]
    subprocess.run(run, check=True, timeout=120, capture_output=True)
    model, file = folder / "run/model", folder / "model.onnx"
    subprocess.run([program, "export", model, "--out", file], check=True, timeout=60, capture_output=True)
    return model, file


@pytest.fixture
def onnx(make):
    """Skip where there is no ONNX Runtime."""
    pytest.importorskip("onnxruntime")


def test_onnx_and_gorgonia_agree(make, trained, onnx):
    model, file = trained
    pool, ids, _ = roots(make)
    ours = azserve.evaluate(pool, ids, f"gorgonia:{model}")
    theirs = azserve.evaluate(pool, ids, f"onnx:{file}")
    np.testing.assert_allclose(theirs.prior_logits, ours.prior_logits, atol=1e-4)
    np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
    assert np.abs(ours.prior_logits).max() > 0
    assert theirs.version != 0 and ours.version != 0
    plain, named = (azserve.evaluate(pool, ids, str(path)) for path in trained)
    assert np.array_equal(plain.value, ours.value) and np.array_equal(named.value, theirs.value)
    result = azserve.search(pool, ids, f"onnx:{file}", num_simulations=32, seed=1)
    assert result.version == theirs.version
    np.testing.assert_allclose(result.raw_value, theirs.value, atol=1e-5)


def test_symmetries_by_name(make, trained):
    model, _ = trained
    pool, ids, obs = roots(make)
    plain, averaged = (azserve.evaluate(pool, ids, f"{model}{s}") for s in ("", "?symmetry=average"))
    assert not np.allclose(plain.value, averaged.value)
    mirror = make("ConnectFour-v0", num_envs=16)
    mirror.reset()
    # The same games mirrored: columns counted from the right.
    turned = make("ConnectFour-v0", num_envs=16, seed=1)
    seen, info = turned.reset()
    rng = np.random.default_rng(2)
    for _ in range(3):
        left = [rng.choice(np.flatnonzero(m[::-1])) for m in seen["action_mask"]]
        seen, _, _, info = turned.step(6 - np.array(left, np.int32))
    assert np.array_equal(seen["board"], obs["board"][:, :, ::-1])
    other = azserve.evaluate(turned, turned.snapshot(info["env_id"]), f"{model}?symmetry=average")
    np.testing.assert_allclose(other.value, averaged.value, atol=1e-5)


def test_a_file_that_changes(make, trained, onnx, tmp_path):
    _, file = trained
    path = tmp_path / "m.onnx"
    path.write_bytes(file.read_bytes())
    pool, ids, _ = roots(make)
    first = azserve.evaluate(pool, ids, f"onnx:{path}")
    new = tmp_path / "new"
    # The producer's name: the same weights in another file.
    new.write_bytes(file.read_bytes().replace(b"azserve", b"AZSERVE", 1))
    os.replace(new, path)
    azserve.evaluate(pool, ids, f"onnx:{path}")
    time.sleep(1.1)
    second = azserve.evaluate(pool, ids, f"onnx:{path}")
    assert second.version != first.version
    assert np.array_equal(second.value, first.value)


def test_refusals(make, trained, onnx, tmp_path):
    model, file = trained
    pool, ids, _ = roots(make)
    other = make("TicTacToe-v0")
    other.reset()
    for name, text in {
        "onnx:nowhere.onnx": "nowhere.onnx",
        "gorgonia:nowhere": "nowhere",
        "nowhere": "known: uniform, rollout, table, gorgonia:FOLDER, onnx:FILE",
        f"onnx:{file}?threads=0": "threads=0; want a whole number from 1 on",
        f"{model}?threads=2": 'setting "threads"',
        f"{model}?symmetry=all": 'want "random" or "average"',
    }.items():
        with pytest.raises(azserve.InvalidArgumentError, match=text.replace("?", r"\?")):
            azserve.evaluate(pool, ids, name)
    with pytest.raises(azserve.InvalidArgumentError, match=r'input "board".*want \[batch, 3, 3, 2\]'):
        azserve.evaluate(other, other.snapshot(), f"onnx:{file}")
    with pytest.raises(azserve.InvalidArgumentError, match=r"made for ConnectFour-v0"):
        azserve.evaluate(other, other.snapshot(), f"gorgonia:{model}")


def test_no_runtime_says_how_to_get_it(trained):
    script = f"""
        import azserve
        pool = azserve.make("ConnectFour-v0")
        pool.reset()
        azserve.evaluate(pool, pool.snapshot(), "gorgonia:{trained[0]}")
        try:
            azserve.evaluate(pool, pool.snapshot(), "onnx:{trained[1]}")
        except azserve.InvalidArgumentError as e:
            print(e)
    """
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | {"AZSERVE_SITE_PACKAGES": os.devnull}
    code = "\n".join(line[8:] for line in script.splitlines())
    run, folder = [sys.executable, "-c", code], trained[1].parent
    p = subprocess.run(run, capture_output=True, text=True, timeout=60, env=env, cwd=folder)
    assert p.returncode == 0, p.stderr
    if "pip install onnxruntime" not in p.stdout:
        assert p.stdout == "", "the system has one"


def test_a_cache_of_bytes(make):
    pool, ids, _ = roots(make)
    cache = azserve.Cache(pool, max_bytes=1 << 16)
    calls = []

    def network(obs, mask):
        calls.append(len(mask))
        return np.zeros(mask.shape, np.float32), np.zeros(len(mask), np.float32)

    for _ in range(2):
        azserve.search(pool, ids, network, num_simulations=8, seed=1, cache=cache)
    alone = sum(calls)
    calls.clear()
    azserve.search(pool, ids, network, num_simulations=8, seed=1)
    assert alone < 2 * sum(calls)
    with pytest.raises(azserve.InvalidArgumentError, match="want at least 11264 bytes"):
        azserve.Cache(pool, max_bytes=100)


def test_b35_evaluator_answers_badly(make):
    """B35: a bad row ends its search alone, by name; a bad answer ends all; the next search works."""
    pool, ids, _ = roots(make, n=4)
    few = ids[:4]

    def good(obs, mask):
        value = np.tanh(obs["board"].reshape(len(mask), -1) @ np.sin(np.arange(84))).astype(np.float32)
        return np.cos(value[:, None] + np.arange(7)).astype(np.float32), value

    clean = azserve.search(pool, few, good, num_simulations=16, seed=1)

    def spoilt(change):
        calls = []

        def network(obs, mask):
            logits, value = good(obs, mask)
            calls.append(1)
            if len(calls) == 1:
                logits, value = change(logits, value)
            return logits, value

        return network

    def bad_row(logits, value):
        logits[2, 3] = np.nan
        return logits, value

    with azserve.Search(pool, few, num_simulations=16, seed=1) as s:
        network = spoilt(bad_row)
        while (leaves := s.select()) is not None:
            s.expand(*network(leaves.obs, leaves.action_mask))
        with pytest.raises(azserve.EvaluatorError, match="row 2: logit of action 3 is NaN"):
            s.result()
    for change in (
        lambda logits, value: (logits[:-1], value[:-1]),
        lambda logits, value: (np.zeros((len(value), 8)), value),
        lambda logits, value: (logits[:0], value[:0]),
        lambda logits, value: (logits, np.full(len(value), np.inf)),
    ):
        with pytest.raises(azserve.EvaluatorError):
            azserve.search(pool, few, spoilt(change), num_simulations=16, seed=1)
    again = azserve.search(
        pool, few, lambda o, m: tuple(x.astype(np.float64) for x in good(o, m)), num_simulations=16, seed=1
    )
    assert np.array_equal(again.visits, clean.visits), "float64 is fine"
    assert pool.stats()["reserved_states"] == 0


def test_torch_export(make, onnx, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import export_torch
    finally:
        sys.path.pop(0)
    torch.manual_seed(1)
    pool, ids, obs = roots(make, n=33)
    spec = pool.spec
    network = export_torch.Network(spec.obs[0].shape, spec.num_actions, blocks=2, planes=16)
    path = tmp_path / "torch.onnx"
    export_torch.export(network, spec, str(path))
    with torch.no_grad():
        logits, value = network(torch.from_numpy(obs["board"]).float())
    for n in (1, 33):
        got = azserve.evaluate(pool, ids[:n], f"onnx:{path}")
        np.testing.assert_allclose(got.prior_logits, logits[:n], atol=1e-4)
        np.testing.assert_allclose(got.value, value[:n], atol=1e-4)
