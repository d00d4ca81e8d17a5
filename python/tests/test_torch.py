"""Tensors that share the pool's memory."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import azserve  # noqa: E402
from azserve.torch_api import TorchEnvPool  # noqa: E402


def test_tensors():
    with (
        TorchEnvPool("Maze-v0", num_envs=16, seed=3) as pool,
        azserve.make("Maze-v0", num_envs=16, seed=3) as plain,
    ):
        obs, reward, done, info = pool.reset()
        want, _ = plain.reset()
        assert {k: v.dtype for k, v in obs.items()} == {
            "walls": torch.bool, "agent": torch.int32, "goal": torch.int32, "step_count": torch.int32,
            "action_mask": torch.bool,
        }  # fmt: skip
        assert (
            reward.dtype == torch.float32 and done.dtype == torch.bool and info["env_id"].dtype == torch.int32
        )
        for _ in range(40):
            assert all(np.array_equal(obs[k].numpy(), want[k]) for k in want)
            actions = torch.multinomial(obs["action_mask"].float().clamp(min=1e-9), 1)[:, 0]
            obs, reward, done, info = pool.step(actions)
            want, rewards, *_ = plain.step(actions.numpy())
            assert np.array_equal(reward.numpy(), rewards)


def test_memory_is_shared_and_stays():
    pool = azserve.make("CartPole-v1", num_envs=4)
    wrapped = TorchEnvPool.from_pool(pool)
    first = wrapped.reset(seed=0)[0]["obs"]
    kept = first.clone()
    array = first.numpy()
    array[0, 0] = 7.0
    assert first[0, 0] == 7.0, "one memory"
    array[0, 0] = float(kept[0, 0])
    for _ in range(50):
        wrapped.step(torch.zeros(4, dtype=torch.int64))
    assert torch.equal(first, kept), "an old observation changed"
    assert first.data_ptr() % 64 == 0


def test_async_and_forks():
    pool = TorchEnvPool("ConnectFour-v0", num_envs=4, batch_size=2)
    pool.async_reset()
    _, _, _, info = pool.recv()
    pool.send(torch.tensor([3, 3]), info["env_id"])
    assert pool.recv(timeout=5)[1].shape == (2,)
    with pytest.raises(ValueError, match="reset needs batch_size == num_envs"):
        pool.reset()
    pool.close()
    pool = TorchEnvPool("ConnectFour-v0", num_envs=2)
    pool.reset()
    ids = pool.snapshot()
    obs, _, _, child = pool.simulate_batch(ids, torch.tensor([0, 6]))
    assert obs["board"].shape == (2, 6, 7, 2) and child["state_id"].dtype == torch.int32
    pool.release_batch(child["state_id"])
    pool.release_batch(ids)
    assert pool.pool.stats()["live_states"] == 0


def test_wrong_actions():
    pool = TorchEnvPool("CartPole-v1", num_envs=2)
    pool.reset()
    for bad in (torch.tensor([0.5, 0]), torch.tensor([2**40, 0]), torch.tensor([[0], [1]])):
        with pytest.raises(ValueError):
            pool.step(bad)
    assert pool.step(torch.tensor([0, 1, 0, 1])[::2])[0]["obs"].shape == (2, 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_other_device():
    pool = TorchEnvPool("CartPole-v1", num_envs=2, device="cuda")
    obs, *_ = pool.reset()
    assert obs["obs"].device.type == "cuda"
    pool.step(torch.zeros(2, dtype=torch.int32, device="cuda"))
