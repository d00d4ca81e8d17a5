"""The examples run, on one device and on two."""

import json
import pathlib
import subprocess
import sys

import pytest

import azserve

FOLDER = pathlib.Path(__file__).parents[2] / "examples/alphazero"


def run(name, *args, log):
    command = [sys.executable, FOLDER / name, *args, "--log", log]
    p = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("devices", ["1", "2", "0"])
def test_ppo(tmp_path, devices):
    pytest.importorskip("torch")
    args = ["--task", "CartPole-v1", "--total-steps", "1024", "--num-envs", "8", "--num-steps", "32"]
    rows = run("ppo_torch.py", *args, "--num-devices", devices, log=tmp_path / "log")
    assert rows[-1]["steps"] == 1024 and rows[-1]["return"] > 8


def test_ppo_on_mazes(tmp_path):
    pytest.importorskip("torch")
    args = [
        "--total-steps",
        "512",
        "--num-envs",
        "8",
        "--num-steps",
        "32",
        "--env-args",
        '{"rows": 3, "cols": 3}',
    ]
    assert run("ppo_torch.py", *args, log=tmp_path / "log")[-1]["steps"] == 512


@pytest.mark.parametrize("devices", ["1", "2"])
def test_alphazero(tmp_path, devices):
    pytest.importorskip("torch")
    args = [
        "--num-simulations",
        "4",
        "--num-envs",
        "8",
        "--moves",
        "12",
        "--minutes",
        "0.03",
        "--batch",
        "16",
    ]
    args += ["--eval-games", "6", "--updates", "2", "--env-args", '{"rows": 4, "cols": 4, "connect": 3}']
    rows = run("alphazero_torch.py", *args, "--num-devices", devices, log=tmp_path / "log")
    assert rows[-1]["games"] > 0 and 0 <= rows[-1]["score"] <= 1


def jax_is_there():
    pytest.importorskip("jax")
    pytest.importorskip("optax")
    if azserve._native.lib.azs_xla_handler(0) == azserve._native.ffi.NULL:
        pytest.skip("built without JAX")


@pytest.mark.parametrize("devices", ["1", "2", "0"])
def test_ppo_jax(tmp_path, devices, monkeypatch):
    jax_is_there()
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    args = [
        "--total-steps",
        "1024",
        "--num-envs",
        "8",
        "--num-steps",
        "32",
        "--env-args",
        '{"rows": 3, "cols": 3}',
    ]
    rows = run("ppo_jax.py", *args, "--num-devices", devices, log=tmp_path / "log")
    assert rows[-1]["steps"] == 1024 and 0 < rows[-1]["return"] <= 1


@pytest.mark.parametrize("devices", ["1", "2"])
def test_alphazero_jax(tmp_path, devices, monkeypatch):
    jax_is_there()
    pytest.importorskip("mctx")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    args = [
        "--num-simulations",
        "4",
        "--num-envs",
        "16",
        "--moves",
        "16",
        "--minutes",
        "0.03",
        "--batch",
        "32",
    ]
    args += ["--eval-games", "6", "--env-args", '{"rows": 4, "cols": 4, "connect": 3}']
    rows = run("alphazero_jax.py", *args, "--num-devices", devices, log=tmp_path / "log")
    assert rows[-1]["games"] > 0 and 0 <= rows[-1]["score"] <= 1


def test_refused_settings():
    pytest.importorskip("torch")
    for name, task in (("ppo_torch.py", "TicTacToe-v0"), ("alphazero_torch.py", "CartPole-v1")):
        p = subprocess.run(
            [sys.executable, FOLDER / name, "--task", task], capture_output=True, text=True, timeout=100
        )
        assert p.returncode == 1 and "want" in p.stderr
