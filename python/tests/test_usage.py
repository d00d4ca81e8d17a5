"""The first uses of a pool, as users of such pools write them."""

import pathlib
import re

import numpy as np
import pytest

import azserve

POOL = """
import numpy as np, azserve
print(azserve.list_envs())
pool = azserve.make("Maze-v0", num_envs=64, batch_size=64)
pool.async_reset()
obs, reward, done, info = pool.recv()
pool.send(np.zeros(len(info["env_id"]), dtype=np.int32), info["env_id"])
obs, reward, done, info = pool.recv()
pool.close()
"""

FORKS = """
import numpy as np, azserve
pool = azserve.make("Maze-v0", num_envs=8, batch_size=8); pool.async_reset()
_, _, _, info = pool.recv()
roots = pool.snapshot(info["env_id"])
obs, rew, done, child = pool.simulate_batch(np.array(roots, np.int32), np.zeros(len(roots), np.int32))
pool.release_batch(np.array(child["state_id"], np.int32))
pool.close()
"""

TORCH = """
from azserve.torch_api import TorchEnvPool
pool = TorchEnvPool("Maze-v0", num_envs=64, device="cpu")
obs, reward, done, info = pool.reset()
pool.close()
"""


def test_pool():
    names = {}
    exec(POOL, names)
    assert names["obs"]["walls"].shape == (64, 8, 8) and names["obs"]["action_mask"].shape == (64, 4)
    assert names["reward"].dtype == np.float32 and names["done"].dtype == np.bool_
    assert names["info"]["env_id"].dtype == np.int32 and names["info"]["elapsed_step"].tolist() == [1] * 64
    assert {"BinPack-v0", "CartPole-v1", "Maze-v0"} <= set(azserve.list_envs())


def test_forks():
    names = {}
    exec(FORKS, names)
    assert set(names["child"]) == {
        "state_id", "terminated", "truncated", "to_play", "action_mask", "invalid_action",
    }  # fmt: skip


def test_torch():
    torch = pytest.importorskip("torch")
    names = {}
    exec(TORCH, names)
    assert isinstance(names["obs"]["action_mask"], torch.Tensor) and names["reward"].shape == (64,)


def readme():
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize("block", readme())
def test_readme(block, serve):
    if "torch_api" in block:
        pytest.importorskip("torch")
    if "jax_api" in block:
        pytest.importorskip("jax")
        if azserve._native.lib.azs_xla_handler(0) == azserve._native.ffi.NULL:
            pytest.skip("built without JAX")
    names = {"np": np, "azserve": azserve}
    if "localhost:50051" in block:
        target = serve("--env", "ConnectFour-v0", "--model", "uniform").target
        block = block.replace("localhost:50051", target)
        block = block.replace("max_batch=256)", "max_batch=256, wait=False).close()")
        names["network"] = lambda obs, mask: (np.zeros(mask.shape), np.zeros(len(mask)))
    exec(block, names)
