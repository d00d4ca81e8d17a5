"""Gymnasium's own checkers and wrappers, and bits equal to its CartPole."""

import json
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import vector_contract
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.env_match import check_environments_match
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import azserve
from azserve.gymnasium_api import Env, VectorEnv

MODES = list(AutoresetMode)
PLAYABLE = [i for i in azserve.list_envs() if i != "Table-v0"]


@pytest.mark.parametrize("mode", MODES)
def test_vector_contract(mode):
    def build(n):
        return VectorEnv("CartPole-v1", n, autoreset_mode=mode, max_episode_steps=3)

    vector_contract.check_vector_env(build, mode)
    vector_contract.check_wrappers(build, mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_contract_is_gymnasiums(mode):
    def build(n):
        one = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)] * n
        return SyncVectorEnv(one, autoreset_mode=mode)

    vector_contract.check_vector_env(build, mode)


# It takes any action first; holding is illegal at the start of Pig.
@pytest.mark.parametrize("id", [i for i in PLAYABLE if i != "Pig-v0"])
def test_check_env(id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unbounded observations, and spaces that it finds unusual
        check_env(gymnasium.make(f"azserve/{id}", render_mode="rgb_array").unwrapped)


def test_matches_gymnasiums_cartpole():
    ours, theirs = gymnasium.make("azserve/CartPole-v1"), gymnasium.make("CartPole-v1")
    assert ours.spec.max_episode_steps == 500 and ours.spec.reward_threshold == 475.0
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    check_environments_match(theirs, ours, num_steps=2000, info_comparison="equivalence")


def test_start_bounds():
    theirs, ours = gymnasium.make("CartPole-v1"), gymnasium.make("azserve/CartPole-v1", low=-0.2, high=0.1)
    obs, _ = theirs.reset(seed=5, options={"low": -0.2, "high": 0.1})
    assert np.array_equal(ours.reset(seed=5)[0], obs)


def test_time_limit_of_make():
    for limit in (5, 700):
        env = gymnasium.make("azserve/CartPole-v1", max_episode_steps=limit)
        env.reset(seed=0)
        steps, truncated, terminated = 0, False, False
        while not (terminated or truncated):
            _, _, terminated, truncated, _ = env.step(steps % 2)
            steps += 1
        assert truncated == (steps == limit)


@pytest.mark.parametrize("mode", MODES)
def test_equals_sync_vector_env(mode):
    """Observations, rewards, flags and final observations are the same bits."""
    n, steps = 20, 1000
    one = [lambda: gymnasium.make("CartPole-v1")] * n
    theirs, ours = SyncVectorEnv(one, autoreset_mode=mode), VectorEnv("CartPole-v1", n, autoreset_mode=mode)
    rng = np.random.default_rng(3)
    assert data_equivalence(theirs.reset(seed=17), ours.reset(seed=17), exact=True)
    for _ in range(steps):
        actions = rng.integers(2, size=n)
        a, b = theirs.step(actions), ours.step(actions)
        assert data_equivalence(a[:4], b[:4], exact=True)
        done = a[2] | a[3]
        if mode == AutoresetMode.SAME_STEP and done.any():
            assert (a[4]["_final_obs"] == b[4]["_final_obs"]).all()
            for x, y in zip(a[4]["final_obs"][done], b[4]["final_obs"][done], strict=True):
                assert np.array_equal(x, y)
        if mode == AutoresetMode.DISABLED and done.any():
            options = {"reset_mask": done}
            assert data_equivalence(
                theirs.reset(options=dict(options)), ours.reset(options=options), exact=True
            )


def test_bit_exact_over_200_seeds():
    """Seed by seed over 1,000 steps, through the autoresets."""
    envs = VectorEnv("CartPole-v1", 200, autoreset_mode="SameStep")
    one = [lambda: gymnasium.make("CartPole-v1")] * 200
    theirs = SyncVectorEnv(one, autoreset_mode="SameStep")
    rng = np.random.default_rng(0)
    assert np.array_equal(envs.reset(seed=0)[0], theirs.reset(seed=0)[0])
    for _ in range(1000):
        actions = rng.integers(2, size=200)
        assert np.array_equal(envs.step(actions)[0], theirs.step(actions)[0])


@pytest.mark.parametrize("id", PLAYABLE)
def test_vector_env_of_every_id(id):
    envs = gymnasium.make_vec(f"azserve/{id}", num_envs=3, render_mode="rgb_array")
    obs, infos = envs.reset(seed=1)
    assert obs in envs.observation_space and envs.spec.id == f"azserve/{id}"
    rng = np.random.default_rng(0)
    for _ in range(20):
        if isinstance(obs, dict) and "action_mask" in obs:
            live = obs["action_mask"].any(1)
            actions = [
                rng.choice(np.flatnonzero(m)) if ok else 0
                for m, ok in zip(obs["action_mask"], live, strict=True)
            ]
        else:
            actions = envs.action_space.sample()
        obs, *_, infos = envs.step(np.array(actions))
        assert obs in envs.observation_space
        assert {f"_{k}" for k in infos if not k.startswith("_")} == {k for k in infos if k.startswith("_")}
    frames = envs.render()
    width, height = envs.pool.spec.frame_size
    assert len(frames) == 3 and frames[0].shape == (height, width, 3) and frames[0].dtype == np.uint8
    assert len(np.unique(frames[0])) > 1
    envs.close()


def test_ids():
    vec = gymnasium.make_vec(
        "azserve.gymnasium_api:azserve/CartPole-v1", num_envs=2, autoreset_mode="Disabled"
    )
    assert vec.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    vec = gymnasium.make_vec("azserve/CartPole-v1", num_envs=2, max_episode_steps=7)
    assert vec.pool.spec.max_episode_steps == 7
    spec = gymnasium.spec("azserve/Maze-v0")
    assert gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    maze = gymnasium.make("azserve/Maze-v0", rows=3, cols=4, render_mode="ansi")
    maze.reset(seed=0)
    assert [len(line) for line in maze.render().split()] == [4, 4, 4]
    with pytest.raises(TypeError, match='no keyword "row"; known: rows'):
        gymnasium.make("azserve/Maze-v0", row=3)
    with pytest.raises(ValueError, match="'Sometimes'; want one of 'NextStep', 'SameStep', 'Disabled'"):
        VectorEnv("CartPole-v1", autoreset_mode="Sometimes")


def test_ids_without_import():
    script = (
        "import gymnasium\n"
        "envs = gymnasium.make_vec('azserve.gymnasium_api:azserve/CartPole-v1', num_envs=8)\n"
        "print(envs.reset(seed=0)[0].shape)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == "(8, 4)\n"


def test_errors():
    envs = VectorEnv("CartPole-v1", 2, autoreset_mode="Disabled", max_episode_steps=2)
    with pytest.raises(azserve.NotStartedError):
        envs.step([0, 0])
    envs.reset(seed=0)
    with pytest.raises(azserve.ActionError, match="row 1: env_id 1: action 2; want 0 to 1"):
        envs.step([0, 2])
    envs.step([0, 0])
    envs.step([0, 0])
    with pytest.raises(azserve.EpisodeEndedError, match="env_id 0"):
        envs.step([0, 0])
    with pytest.raises(ValueError, match=r"\['low'\] is unknown; want reset_mask"):
        envs.reset(options={"low": 0})
    with pytest.raises(azserve.NotStartedError, match="reset all environments first"):
        VectorEnv("CartPole-v1", 2).reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ValueError, match="num_envs=-1"):
        VectorEnv("CartPole-v1", -1)
    env = Env("TicTacToe-v0")
    env.reset(seed=0)
    for bad in (0.9, "1", 2**40, None):
        with pytest.raises(azserve.ActionError, match="want an integer from 0 to 8"):
            env.step(bad)
    env.step(4)
    with pytest.raises(azserve.ActionError, match="action 4 is illegal"):
        env.step(4)


def test_pool_info():
    envs = VectorEnv("ConnectFour-v0", 3, pool_info=True)
    _, infos = envs.reset(seed=0)
    assert infos["env_id"].tolist() == [0, 1, 2] and infos["_env_id"].all()
    infos = envs.step([0, 1, 2])[4]
    assert infos["elapsed_step"].tolist() == [1, 1, 1] and infos["to_play"].tolist() == [1, 1, 1]
    masked = np.array([False, True, False])
    _, infos = envs.reset(options={"reset_mask": masked})
    assert infos["_elapsed_step"].tolist() == masked.tolist() and json.dumps(infos["elapsed_step"].tolist())


def test_numpy_to_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    from gymnasium.wrappers.vector import NumpyToTorch

    envs = NumpyToTorch(gymnasium.make_vec("azserve/CartPole-v1", num_envs=4))
    obs, _ = envs.reset(seed=0)
    assert isinstance(obs, torch.Tensor) and obs.shape == (4, 4)
    obs, reward, *_ = envs.step(torch.zeros(4, dtype=torch.int64))
    assert reward.tolist() == [1.0] * 4


def test_record_video(tmp_path):
    pytest.importorskip("moviepy")
    from gymnasium.wrappers import RecordVideo as Single
    from gymnasium.wrappers.vector import RecordVideo

    envs = RecordVideo(
        gymnasium.make_vec("azserve/CartPole-v1", num_envs=2, render_mode="rgb_array"), str(tmp_path / "many")
    )
    envs.reset(seed=0)
    for _ in range(40):
        envs.step(np.zeros(2, np.int64))
    envs.close()
    env = Single(gymnasium.make("azserve/ConnectFour-v0", render_mode="rgb_array"), str(tmp_path / "one"))
    env.reset(seed=0)
    for column in (0, 1, 0, 1, 0, 1, 0):
        env.step(column)
    env.close()
    assert list((tmp_path / "many").glob("*.mp4")) and list((tmp_path / "one").glob("*.mp4"))
