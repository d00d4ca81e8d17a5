"""The service: round trips against a bare gRPC echo of the same bytes, throughput, remote steps, and a busy evaluator."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

import azserve
from measure import Row, in_turns, installed

ROOT = pathlib.Path(__file__).parents[1]

# An environment of rlmesh in a process of its own.
RLMESH = """
import sys, gymnasium, rlmesh
rlmesh.EnvServer(gymnasium.make("CartPole-v1"), "unix://" + sys.argv[1]).serve()
"""


def wait_for(path: pathlib.Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} didn't come"
        time.sleep(0.02)


@contextlib.contextmanager
def process(args: list[object]):
    p = subprocess.Popen([str(a) for a in args], stderr=subprocess.DEVNULL)
    try:
        yield p
    finally:
        p.terminate()
        p.wait()


def go_rows(seconds: float, quick: bool):
    """Times are medians and 99th percentiles in microseconds; the ratio is ours over the echo's: less is better."""
    run = ["go", "run", "./bench/serving", "-seconds", str(seconds / 3)]
    out = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line in map(json.loads, out.splitlines()):
        if line["unit"] == "us":
            yield Row(f"{line['what']} (p50, us; less is better)", line["ours"], "bare grpc-go echo", line["peer"])
            yield Row(f"{line['what']} (p99, us; less is better)", line["ours_p99"], "bare grpc-go echo", line["peer_p99"])
        elif line["unit"] == "1/s":
            yield Row(line["what"], line["ours"], "bare grpc-go echo", line["peer"])
        else:
            yield Row(f"{line['what']} (rows/s)", line["ours"], "the evaluator's own peak", line["peer"], "0.9")


def stepper(pool):
    pool.reset()
    actions = [np.zeros(pool.num_envs, np.int32), np.ones(pool.num_envs, np.int32)]
    count = [0]

    def run():
        count[0] += 1
        pool.step(actions[count[0] % 2])

    return run


def rlmesh_stepper(socket: pathlib.Path):
    import rlmesh

    env = rlmesh.RemoteEnv(f"unix://{socket}")
    env.reset(seed=0)
    count = [0]

    def run():
        count[0] += 1
        _, _, terminated, truncated, _ = env.step(count[0] % 2)
        if terminated or truncated:
            env.reset()

    return run


def remote_rows(seconds: float, quick: bool):
    with tempfile.TemporaryDirectory() as tmp, contextlib.ExitStack() as stack:
        folder = pathlib.Path(tmp)
        ours, theirs = folder / "a", folder / "r"
        stack.enter_context(process([ROOT / "bin/azserve", "serve", "--listen", f"unix:{ours}"]))
        wait_for(ours)
        server = stack.enter_context(azserve.connect(f"unix:{ours}"))
        peer = None
        if installed("rlmesh") and not quick:
            stack.enter_context(process([sys.executable, "-c", RLMESH, theirs]))
            wait_for(theirs)
            peer = rlmesh_stepper(theirs)
        a, b = in_turns(stepper(server.make("CartPole-v1")), peer, 1, seconds)
        yield Row("remote CartPole from Python, Unix socket, 1 environment (steps/s)", a, "rlmesh", b, "2")
        for n in (64, 1024):
            a, b = in_turns(stepper(server.make("CartPole-v1", num_envs=n)), None, n, seconds)
            yield Row(f"remote CartPole from Python, Unix socket, {n} environments (steps/s)", a)
        pool = server.make("ConnectFour-v0", num_envs=64)
        pool.reset()
        ids = pool.snapshot()
        own = azserve.make("ConnectFour-v0", num_envs=64)
        own.reset()
        mine = own.snapshot()
        a, b = in_turns(
            lambda: azserve.search(pool, ids, "uniform", num_simulations=64, seed=1),
            lambda: azserve.search(own, mine, "uniform", num_simulations=64, seed=1),
            64, seconds,
        )
        yield Row("remote search from Python, Unix socket, 64 roots, 64 sims (roots/s)", a, "azserve in process", b)


GROUPS = {"serving": go_rows, "remote": remote_rows}
