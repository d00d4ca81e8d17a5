"""Rows about networks: positions a CPU second in each form, the share of SGEMM's rate, self-play."""

from __future__ import annotations

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

import mctx_peer
import numpy as np
from measure import Row, best, in_turns, installed

import azserve

ROOT = pathlib.Path(__file__).parents[1]
NETS = {"3x32": (3, 32), "4x64": (4, 64)}
BATCHES = (1, 8, 64, 256)
HEAD, VALUE, CELLS = 8, 64, 42


def weights(blocks: int, planes: int) -> dict[str, np.ndarray]:
    """Return random weights of a residual network for Connect Four, by azserve's names: matrices [in, out]."""
    rng = np.random.default_rng(0)
    shapes = {"stem": (9 * 2, planes)}
    shapes |= {f"block{i}.conv{j}": (9 * planes, planes) for i in range(blocks) for j in range(2)}
    flat = CELLS * HEAD
    shapes |= {"policy.conv": (planes, HEAD), "policy.linear": (flat, 7), "value.conv": (planes, HEAD)}
    shapes |= {"value.linear0": (flat, VALUE), "value.linear1": (VALUE, 1)}
    out = {}
    for name, (n, m) in shapes.items():
        out[f"{name}.weight"] = (rng.normal(size=(n, m)) / np.sqrt(n)).astype(np.float32)
        out[f"{name}.bias"] = np.zeros(m, np.float32)
    return out


def write_model(folder: pathlib.Path, blocks: int, planes: int) -> None:
    """Write a network as azserve train does, and as an ONNX file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = azserve.spec("ConnectFour-v0")
    config = {
        "kind": "resnet", "env": spec.id, "keywords": "rows=6 cols=7 connect=4", "inputs": 84, "actions": 7,
        "bounded": True, "board": [6, 7, 2], "blocks": blocks, "channels": planes, "head": HEAD, "value": VALUE,
    }
    (folder / "config.json").write_text(json.dumps(config))
    header, body = {}, b""
    for name, w in weights(blocks, planes).items():
        header[name] = {"dtype": "F32", "shape": w.shape, "data_offsets": [len(body), len(body) + w.nbytes]}
        body += w.tobytes()
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    run = [ROOT / "bin/azserve", "export", folder, "--out", folder / "model.onnx"]
    subprocess.run(run, check=True, capture_output=True)


def positions(n: int):
    """Return a pool of n games after a few moves, their states and observations."""
    pool = azserve.make("ConnectFour-v0", num_envs=n, seed=1, num_threads=1)
    obs, info = pool.reset()
    rng = np.random.default_rng(2)
    for _ in range(4):
        obs, _, _, info = pool.step(np.array([rng.choice(np.flatnonzero(m)) for m in obs["action_mask"]], np.int32))
    return pool, pool.snapshot(info["env_id"]), obs


def azserve_net(name: str, n: int):
    pool, ids, _ = positions(n)
    return lambda: azserve.evaluate(pool, ids, name)


def jax_apply(blocks: int, planes: int):
    """Return the same network in JAX: parameters, and a function of boards [B, 6, 7, 2]."""
    import jax
    import jax.numpy as jnp

    w = {k: jnp.asarray(v) for k, v in weights(blocks, planes).items()}

    def conv(x, name, size):
        kernel = w[f"{name}.weight"].reshape(size, size, x.shape[-1], -1)
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def apply(board):
        x = jax.nn.relu(conv(board.astype(jnp.float32), "stem", 3))
        for i in range(blocks):
            x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, f"block{i}.conv0", 3)), f"block{i}.conv1", 3))
        flat = [jax.nn.relu(conv(x, f"{h}.conv", 1)).reshape(len(x), -1) for h in ("policy", "value")]
        value = linear(jax.nn.relu(linear(flat[1], "value.linear0")), "value.linear1")
        return linear(flat[0], "policy.linear"), jnp.tanh(value[:, 0])

    return apply


def jax_net(blocks: int, planes: int, n: int):
    import jax

    apply, (_, _, obs) = jax.jit(jax_apply(blocks, planes)), positions(n)
    board = jax.numpy.asarray(obs["board"])
    return lambda: jax.block_until_ready(apply(board))


def torch_net(blocks: int, planes: int, n: int):
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    import export_torch

    torch.set_num_threads(1)
    net = export_torch.Network((6, 7, 2), 7, blocks, planes).eval()
    board = torch.from_numpy(positions(n)[2]["board"]).float()

    def run():
        with torch.inference_mode():
            return net(board)

    return run


def gonum_rate(folder: pathlib.Path, n: int, seconds: float) -> float:
    """Return the rate without OpenBLAS: the library is chosen once a process."""
    code = f"import eval_rows as e; print(e.rate({str(folder)!r}, {n}, {seconds}))"
    env = os.environ | {"AZSERVE_BLAS": "gonum", "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return float(out.stdout)


def rate(name: str, n: int, seconds: float) -> float:
    return best(azserve_net(name, n), n, seconds, time.process_time)


def net_rows(seconds: float, quick: bool):
    with tempfile.TemporaryDirectory() as tmp:
        for net, (blocks, planes) in NETS.items():
            folder = pathlib.Path(tmp) / net
            write_model(folder, blocks, planes)
            for n in BATCHES:
                peers = {}
                if not quick and installed("jax"):
                    peers["JAX, jit"] = jax_net(blocks, planes, n)
                if not quick and installed("torch"):
                    peers["torch, one thread"] = torch_net(blocks, planes, n)
                if quick or not peers:
                    peers = {"": None}
                for form, name in (("onnx", f"onnx:{folder}/model.onnx"), ("gorgonia", f"gorgonia:{folder}")):
                    for peer, theirs in peers.items():
                        a, b = in_turns(azserve_net(name, n), theirs, n, seconds / 2, time.process_time)
                        yield Row(f"network {net}, batch {n}, {form} (positions/CPU s)", a, peer, b)
                a, b = rate(f"gorgonia:{folder}", n, seconds / 2), gonum_rate(folder, n, seconds / 2)
                yield Row(f"network {net}, batch {n}, gorgonia (positions/CPU s)", a, "with gonum for OpenBLAS", b)


def share_rows(seconds: float, quick: bool):
    """Compare the floating-point operations a second of whole networks with those of plain products."""
    run = ["go", "test", "-run", "xxx", "-bench", "Share", "-benchtime", f"{seconds / 2}s", "./evaluator/gorgonia"]
    env = os.environ | {"VIRTUAL_ENV": str(ROOT / ".venv")}
    out = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True).stdout
    for line in out.splitlines():
        if m := re.match(r"BenchmarkShare/(\S+?)(-\d+)?\s.* ([\d.]+) GFLOP/s\s+([\d.]+) SGEMM", line):
            what = f"network {m[1].replace('/', ', ')} (flops/s)"
            yield Row(what, float(m[3]) * 1e9, "SGEMM 512x512x512", float(m[4]) * 1e9, "0.4")


def selfplay_search(name: str, n: int, sims: int):
    pool, ids, _ = positions(n)
    return lambda: azserve.search(pool, ids, name, num_simulations=sims, policy="gumbel", seed=1)


def batch_fill(games: int, folder: pathlib.Path) -> float:
    """Return how full the evaluator's batches are in self-play of 128 games side by side, in percent."""
    run = [ROOT / "bin/azserve", "train", "ConnectFour-v0", "--games", games, "--games-per-iteration", games]
    run += ["--out", folder / "run", "--eval-games", 1, "--eval-opponent", "random", "--eval-simulations", 1]
    out = subprocess.run([str(x) for x in run], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"batches ([\d.]+) % full", out)[1])


def mctx_selfplay(blocks: int, planes: int, n: int, sims: int):
    import pgx

    return mctx_peer.search(pgx.make("connect_four"), jax_apply(blocks, planes), "gumbel", n, sims, plies=4)


def selfplay_rows(seconds: float, quick: bool):
    n, sims = 128, 32
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        write_model(folder, *NETS["3x32"])
        theirs = mctx_selfplay(*NETS["3x32"], n, sims) if installed("mctx", "pgx") and not quick else None
        for form, name in (("onnx", f"onnx:{folder}/model.onnx"), ("gorgonia", f"gorgonia:{folder}")):
            a, b = in_turns(selfplay_search(name, n, sims), theirs, n * sims, seconds, time.process_time)
            what = f"self-play moves, {n} games, {sims} sims, 3x32 by {form} (sims/CPU s)"
            yield Row(what, a, "pgx + mctx, same network", b, "1.3" if form == "onnx" else "")
        for games in (512, 4096):
            yield Row(f"self-play, {n} games side by side, of {games} (batch fill, %)", batch_fill(games, folder / str(games)))


GROUPS = {"network": net_rows, "share": share_rows, "selfplay": selfplay_rows}
