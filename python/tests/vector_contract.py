"""Checks that a vector environment keeps the contract of gymnasium 1.4's vector API.

Gymnasium ships a checker for single environments and none for vector ones, so this module is that
checker. It compares an environment with itself and with counts kept by hand, never with another
implementation. `SyncVectorEnv` passes all of it; run this file to see that.

The environments under test must be CartPole-like, which here means:

* the observation is a `Box` or a `Dict`, and every step and every reset changes it;
* the actions are `Discrete`, and both transitions and infos depend on the state alone;
* only `reset` draws random numbers;
* no episode ends before `max_steps` steps, at which it is truncated; `max_steps` is at least 2.

Short episodes are the point: with `max_steps=3` almost every step resets something.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from itertools import chain, combinations
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TransformObservation
from gymnasium.wrappers.vector import (
    ClipReward,
    DictInfoToList,
    DtypeObservation,
    FlattenObservation,
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    VectorizeTransformObservation,
)

Make = Callable[[int], VectorEnv]
Wrap = Callable[[VectorEnv], VectorEnv]

ROWS = 3
SEED = 123
EPISODES = 4  # how many episodes the longer checks play in each row


def check_vector_env(make: Make, mode: AutoresetMode, *, max_steps: int = 3) -> None:
    """Assert that the environments `make(num_envs)` returns keep the contract in `mode`."""
    check_attributes(make, mode)
    check_close(make)
    check_seeds(make, mode, max_steps)
    check_streams(make)
    check_actions(make)
    check_full_reset(make, max_steps)
    check_partial_reset(make)
    check_reset_mask_errors(make)
    check_mode = {
        AutoresetMode.NEXT_STEP: check_next_step,
        AutoresetMode.SAME_STEP: check_same_step,
        AutoresetMode.DISABLED: check_disabled,
    }[mode]
    check_mode(make, max_steps)
    check_fresh_buffers(make, mode, max_steps)


def check_wrappers(make: Make, mode: AutoresetMode, *, max_steps: int = 3) -> None:
    """Assert that gymnasium's vector wrappers give the right numbers on these environments."""
    steps = EPISODES * (max_steps + 1)
    check_episode_statistics(make, mode, steps)
    check_info_lists(make, mode, steps)
    check_clipped_rewards(make, mode, steps)
    check_normalized_rewards(make, mode, steps)
    check_observation_wrappers(make, mode, steps)
    check_normalized_observations(make, mode, steps)


# What every single return must look like.


class Checked(VectorWrapper):
    """Passes everything through, and asserts that each return is well formed."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Reset, then check the observations and that the infos speak of the reset rows only."""
        rows = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        obs, infos = self.env.reset(seed=seed, options=options)
        check_observations(self.env, obs)
        check_infos(infos, rows)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Step, then check the five returns and that the actions were only read."""
        given = actions.copy()
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        assert np.array_equal(actions, given), "step must not write to the actions"
        check_observations(self.env, obs)
        check_vector("rewards", rewards, self.num_envs, (np.float64, np.float32))
        check_vector("terminations", terminations, self.num_envs, (np.bool_,))
        check_vector("truncations", truncations, self.num_envs, (np.bool_,))
        check_infos(infos, np.ones(self.num_envs, np.bool_))
        check_final(self.env, terminations | truncations, infos)
        return obs, rewards, terminations, truncations, infos


def check_observations(env: VectorEnv, obs: Any) -> None:
    """Assert that a batch of observations has the space's structure, shapes and exact dtypes."""
    assert env.observation_space.contains(obs), f"{obs} is not in {env.observation_space}"
    for space, array in leaves(env.observation_space, obs):
        assert isinstance(array, np.ndarray), f"observations must be arrays, got {type(array)}"
        assert array.dtype == space.dtype, f"observation dtype {array.dtype}, not {space.dtype}"
        # Wrappers whose output space equals their input space transform the batch in place.
        assert array.flags.writeable, "observations must be writeable"


def check_vector(name: str, array: Any, num_envs: int, dtypes: tuple[type, ...]) -> None:
    """Assert that `array` is a writeable array with one number of an allowed dtype per row."""
    assert isinstance(array, np.ndarray), f"{name} must be an array, got {type(array)}"
    assert array.shape == (num_envs,), f"{name} must have shape ({num_envs},), got {array.shape}"
    assert array.dtype in dtypes, f"{name} must have a dtype of {dtypes}, got {array.dtype}"
    # Reward wrappers such as ClipReward write their results into the array they were given.
    assert array.flags.writeable, f"{name} must be writeable"


def check_infos(infos: Any, allowed: np.ndarray) -> None:
    """Assert that each info has its mask, set in some of the `allowed` rows and in no other."""
    assert type(infos) is dict, f"infos must be a dict, got {type(infos)}"
    for key, value in infos.items():
        if key.startswith("_"):
            assert key[1:] in infos, f"infos has the mask {key!r} without {key[1:]!r}"
            continue
        assert f"_{key}" in infos, f"infos has {key!r} without its mask '_{key}'"
        mask = infos[f"_{key}"]
        check_vector(f"infos['_{key}']", mask, len(allowed), (np.bool_,))
        assert mask.any(), f"infos has {key!r} though no row set it"
        assert not (mask & ~allowed).any(), f"infos has {key!r} set in rows that it cannot be set in"
        if isinstance(value, dict):
            check_infos(value, mask)
        else:
            assert isinstance(value, np.ndarray), f"infos[{key!r}] must be an array or a dict"
            assert value.shape[:1] == mask.shape, f"infos[{key!r}] must have one entry per row"


def check_final(env: VectorEnv, done: np.ndarray, infos: dict[str, Any]) -> None:
    """Assert that the rows that ended, and only they, have final infos, and only in SAME_STEP."""
    expected = env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and done.any()
    for key in ("final_obs", "final_info"):
        assert (key in infos) == expected, f"unexpected presence or absence of infos[{key!r}]"
    if not expected:
        return
    assert np.array_equal(infos["_final_obs"], done), "_final_obs must mark the rows that ended"
    assert np.array_equal(infos["_final_info"], done), "_final_info must mark the rows that ended"
    assert isinstance(infos["final_info"], dict), "final_info must be a batched dict"
    assert infos["final_obs"].dtype == object, "final_obs must be an array of objects"
    for final, ended in zip(infos["final_obs"], done, strict=True):
        if ended:
            assert env.single_observation_space.contains(final), f"{final} is no observation"
        else:
            assert final is None, "final_obs must be None in rows that did not end"


# What holds in every mode.


def check_attributes(make: Make, mode: AutoresetMode) -> None:
    """Assert that the attributes that wrappers and training code read are there and right."""
    for num_envs in (1, ROWS):
        with closing(make(num_envs)) as env:
            assert isinstance(env, VectorEnv), f"{type(env)} is not a gymnasium.vector.VectorEnv"
            assert env.num_envs == num_envs, f"num_envs is {env.num_envs}, not {num_envs}"
            check_spaces(env)
            check_metadata(env, mode)
            spec = gymnasium.spec("CartPole-v1")
            env.unwrapped.spec = spec  # as gymnasium.make_vec does
            assert env.spec is spec, "spec must be settable on the unwrapped environment"
            Checked(env).reset(seed=SEED)
            Checked(env).step(env.action_space.sample())
    with closing(make(1)) as one, closing(make(1)) as other:
        assert one.metadata is not other.metadata, "two environments must not share metadata"
        assert one.metadata is not type(one).metadata, "metadata must not be the class's dict"


def check_spaces(env: VectorEnv) -> None:
    """Assert that the batched spaces are gymnasium's batches of the single ones."""
    for name in ("observation", "action"):
        single, batched = getattr(env, f"single_{name}_space"), getattr(env, f"{name}_space")
        expected = batch_space(single, env.num_envs)
        assert batched == expected, f"{name}_space is {batched}, not {expected}"
    assert isinstance(env.single_action_space, spaces.Discrete), "the actions must be Discrete"
    assert isinstance(env.action_space, spaces.MultiDiscrete), "batched actions: MultiDiscrete"
    assert env.action_space.dtype == np.int64, "the action space must have dtype int64"


def check_metadata(env: VectorEnv, mode: AutoresetMode) -> None:
    """Assert that the metadata names the mode as the enum, and that render_mode fits it."""
    found = env.metadata.get("autoreset_mode")
    # Wrappers refuse the equal-looking string, so the identity is what counts.
    assert found is mode, f"metadata['autoreset_mode'] is {found!r}, not {mode!r}"
    assert "render_modes" in env.metadata, "metadata must have render_modes"
    modes = (None, *env.metadata["render_modes"])
    assert env.render_mode in modes, f"render_mode is {env.render_mode!r}, not one of {modes}"


def check_close(make: Make) -> None:
    """Assert that close takes keywords, sets closed, and does nothing the second time."""
    env = make(ROWS)
    assert env.closed is False, "a new environment must not be closed"
    env.reset(seed=SEED)
    env.close(terminate=True)  # a keyword of AsyncVectorEnv's that code written for it passes
    assert env.closed is True, "close must set closed"
    env.close()


def check_seeds(make: Make, mode: AutoresetMode, max_steps: int) -> None:
    """Assert that a seed fixes everything, and that an int means one seed more in each row."""
    steps = EPISODES * max_steps
    seeds = list(range(SEED, SEED + ROWS))
    with opened(make) as env, opened(make) as other:
        first = list(run(env, mode, SEED, steps))
        assert equal(first, list(run(env, mode, SEED, steps))), "reset(seed) must restart it all"
        assert equal(first, list(run(other, mode, SEED, steps))), "equal seeds must give equal runs"
        assert equal(first, list(run(env, mode, seeds, steps))), f"seed {SEED} must mean {seeds}"
        assert tuple(env.np_random_seed) == tuple(seeds), f"np_random_seed must be {seeds}"
        assert not equal(row(first[0][0], 0), row(first[0][0], 1)), "seeds must matter"
        for wrong in (seeds[:-1], [*seeds, 0]):
            expect_error(ValueError, lambda w=wrong: env.reset(seed=w), "seeds of the wrong length")


def check_streams(make: Make) -> None:
    """Assert that a reset without a seed, or with None for a row, continues the row's stream."""
    starts = episode_starts(make, SEED)
    again = episode_starts(make, SEED)
    other = episode_starts(make, [7] * ROWS)
    assert equal(starts, again), "resets without a seed must continue a reproducible stream"
    for (one, _), (two, _) in combinations(starts, 2):
        assert not equal(one, two), "a reset without a seed must not start the stream again"
    with opened(make) as env:
        env.reset(seed=SEED)
        obs, infos = env.reset(seed=[None, 7, None])
        expect_starts([0, 2], [1, 1, 1], starts, obs, infos)
        expect_starts([1], [0, 0, 0], other, obs, infos)
        expected = (SEED, 7, SEED + 2)
        assert tuple(env.np_random_seed) == expected, f"np_random_seed must be {expected}"


def check_actions(make: Make) -> None:
    """Assert that actions outside the space, or too few or many, are errors."""
    with closing(make(ROWS)) as env:
        low, high = env.action_space.start, env.action_space.start + env.action_space.nvec
    wrong = {
        "an action above the space": np.where(np.arange(ROWS) == 1, high, low),
        "an action below the space": np.where(np.arange(ROWS) == 1, low - 1, low),
        "an action too few": low[:-1],
        "an action too many": np.append(low, low[0]),
    }
    for what, actions in wrong.items():
        # A new environment each time: SyncVectorEnv steps the rows before the one it refuses. It is
        # called unwrapped so that an assertion of `Checked` does not pass for a refusal.
        with opened(make) as env:
            env.reset(seed=SEED)
            expect_error(Exception, lambda e=env.unwrapped, a=actions: e.step(a), what)


def check_full_reset(make: Make, max_steps: int) -> None:
    """Assert that resetting every row, at any time, begins whole new episodes in all of them."""
    starts = episode_starts(make, SEED)
    for steps in (1, max_steps):
        for options in (None, {}, {"reset_mask": np.ones(ROWS, np.bool_)}):
            with opened(make) as env:
                env.reset(seed=SEED)
                for _ in range(steps):
                    env.step(env.action_space.sample())
                # SAME_STEP has already taken the rows to their second start by max_steps.
                same_step = env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
                episode = 2 if same_step and steps == max_steps else 1
                obs, infos = env.reset(options=options)
                expect_starts(range(ROWS), [episode] * ROWS, starts, obs, infos)
                for length in range(1, max_steps + 1):
                    _, _, *flags, _ = env.step(env.action_space.sample())
                    expect_ends(np.full(ROWS, length == max_steps), *flags)


def check_partial_reset(make: Make) -> None:
    """Assert that reset_mask limits a reset, seeds included, to the rows it marks."""
    starts, other = episode_starts(make, SEED), episode_starts(make, [7] * ROWS)
    with opened(make) as env:
        env.reset(seed=SEED)
        before, *_ = env.step(env.action_space.sample())
        mask = np.array([False, True, True])
        obs, infos = env.reset(seed=[1000, 7, None], options={"reset_mask": mask})
        expect_rows(~mask, before, obs, "a row outside reset_mask must keep its observation")
        expect_starts([1], [0, 0, 0], other, obs, infos)
        expect_starts([2], [1, 1, 1], starts, obs, infos)

        # Row 0 was not reset, so neither was its stream, whatever its seed in the list said.
        obs, infos = env.reset()
        expect_starts([0, 2], [1, 1, 2], starts, obs, infos)
        expect_starts([1], [1, 1, 1], other, obs, infos)

        mask = np.array([False, True, False])
        again, infos = env.reset(seed=SEED, options={"reset_mask": mask})
        expect_rows(~mask, obs, again, "a row outside reset_mask must keep its observation")
        expect_starts([1], [0, 0, 0], starts, again, infos)


def check_reset_mask_errors(make: Make) -> None:
    """Assert that a malformed reset_mask is refused, and that a refused reset changes nothing."""
    wrong = {
        "a list as reset_mask": (TypeError, [True] * ROWS),
        "a reset_mask of integers": (TypeError, np.ones(ROWS, np.int64)),
        "a reset_mask that is too long": (ValueError, np.ones(ROWS + 1, np.bool_)),
        "a reset_mask of two dimensions": (ValueError, np.ones((ROWS, 1), np.bool_)),
        "a reset_mask that marks no row": (ValueError, np.zeros(ROWS, np.bool_)),
    }
    with opened(make) as env, opened(make) as twin:
        for each in (env, twin):
            each.reset(seed=SEED)
            each.step(each.action_space.sample())
        for what, (error, mask) in wrong.items():
            options = {"reset_mask": mask}
            expect_error(error, lambda o=options: env.unwrapped.reset(seed=SEED, options=o), what)
        results = [each.step(each.action_space.sample()) for each in (env, twin)]
        assert equal(*results), "a refused reset must not change the environment"


def check_fresh_buffers(make: Make, mode: AutoresetMode, max_steps: int) -> None:
    """Assert that each return is the caller's own: nothing is shared with or seen by the others."""
    steps = EPISODES * max_steps
    with opened(make) as env, opened(make) as twin:
        kept, copies = [], []
        for result in chain(run(env, mode, SEED, steps), run(env, mode, None, steps)):
            kept.append(result)
            copies.append(deepcopy(result))
        assert equal(kept, copies), "a later call changed what an earlier one had returned"
        for one, two in combinations(kept, 2):
            assert one[-1] is not two[-1], "two returns share their infos"
            for a in arrays(one):
                assert not any(np.shares_memory(a, b) for b in arrays(two)), "returns share memory"

        # Spoiling what was returned must not reach the environment either: the twin's returns,
        # which nobody touched, are what both must say next.
        for _ in chain(run(twin, mode, SEED, steps), run(twin, mode, None, steps)):
            pass
        for array in arrays(kept):
            array.fill(None if array.dtype == object else 0)
        mask = np.array([False] * (ROWS - 1) + [True])
        results = [each.reset(options={"reset_mask": mask.copy()}) for each in (env, twin)]
        assert equal(*results), "the environment reads an array that it has returned"


# The three modes. Each plays rows that are out of phase, and counts episodes and steps by hand.


def check_next_step(make: Make, max_steps: int) -> None:
    """Assert that the step after an end ignores the action and returns the next start."""
    starts = episode_starts(make, SEED)
    with opened(make) as env, opened(make) as twin:
        _, episode, length = stagger(env)
        stagger(twin)
        pending = np.zeros(ROWS, np.bool_)
        for _ in range(EPISODES * max_steps):
            actions = env.action_space.sample()
            result = env.step(actions)
            obs, rewards, *flags, infos = result
            # The twin gets another action wherever the action must not matter.
            ignored = np.where(pending, other_actions(env, actions), actions)
            assert equal(result, twin.step(ignored)), "an autoreset step must ignore its action"

            episode, length = episode + pending, np.where(pending, 0, length + 1)
            expect_starts(np.flatnonzero(pending), episode, starts, obs, infos)
            assert not rewards[pending].any(), "an autoreset step must have reward 0"
            pending = length == max_steps
            expect_ends(pending, *flags)
            if pending[0]:
                # A reset replaces the pending autoreset of row 0, and leaves those of the others.
                first = np.arange(ROWS) == 0
                for each in (env, twin):
                    new, infos = each.reset(options={"reset_mask": first.copy()})
                episode, length, pending = episode + first, length * ~first, pending & ~first
                expect_starts([0], episode, starts, new, infos)
                expect_rows(~first, obs, new, "a row outside reset_mask must keep its observation")


def check_same_step(make: Make, max_steps: int) -> None:
    """Assert that the step that ends an episode returns the next start, and the end in the infos."""
    starts = episode_starts(make, SEED)
    with opened(make) as env:
        before, episode, length = stagger(env)
        for _ in range(EPISODES * max_steps):
            obs, _, *flags, infos = env.step(env.action_space.sample())
            length = length + 1
            done = length == max_steps
            expect_ends(done, *flags)
            episode, length = episode + done, length * ~done
            expect_starts(np.flatnonzero(done), episode, starts, obs, infos)
            for i in np.flatnonzero(done):
                final = infos["final_obs"][i]
                assert not equal(final, row(obs, i)), "final_obs must be the end, not the new start"
                assert not equal(final, row(before, i)), "final_obs must be the end, not the step before"
            before = obs


def check_disabled(make: Make, max_steps: int) -> None:
    """Assert that a row that ended stays so, and cannot be stepped, until it is reset."""
    starts = episode_starts(make, SEED)
    with opened(make) as env:
        _, episode, length = stagger(env)
        for _ in range(EPISODES * max_steps):
            before, _, *flags, _ = env.step(env.action_space.sample())
            length = length + 1
            done = length == max_steps
            expect_ends(done, *flags)
            if done[0]:
                # Only asked while the first row is over: SyncVectorEnv refuses a later row when it
                # has stepped the ones before it already.
                actions = env.action_space.sample()
                expect_error(Exception, lambda a=actions: env.unwrapped.step(a), "stepping an ended row")
            if done.any():
                obs, infos = env.reset(options={"reset_mask": done.copy()})
                episode, length = episode + done, length * ~done
                expect_starts(np.flatnonzero(done), episode, starts, obs, infos)
                expect_rows(~done, before, obs, "a row outside reset_mask must keep its observation")


# The wrappers.


def check_episode_statistics(make: Make, mode: AutoresetMode, steps: int) -> None:
    """Assert that RecordEpisodeStatistics counts the returns and lengths that we count."""
    with opened(make) as env:
        wrapped = RecordEpisodeStatistics(env)
        if mode is AutoresetMode.DISABLED:
            # All rows in phase: gymnasium's own environments take reset_mask out of the options
            # before this wrapper looks for it, so it forgets the rows that were not reset as well.
            wrapped.reset(seed=SEED)
        else:
            stagger(env)
        counts: list[tuple[float, int]] = []
        returns, lengths = np.zeros(ROWS), np.zeros(ROWS, np.int64)
        pending = np.zeros(ROWS, np.bool_)
        for _, rewards, terminations, truncations, infos in play(wrapped, mode, steps):
            returns, lengths = returns + rewards, lengths + ~pending
            done = terminations | truncations
            assert ("episode" in infos) == done.any(), "each end must have its statistics"
            if done.any():
                assert np.array_equal(infos["_episode"], done), "_episode must mark the ends"
                assert np.allclose(infos["episode"]["r"], returns * done), "wrong episode returns"
                assert np.array_equal(infos["episode"]["l"], lengths * done), "wrong lengths"
            counts += zip(returns[done], lengths[done], strict=True)
            returns, lengths = returns * ~done, lengths * ~done
            pending = done & (mode is AutoresetMode.NEXT_STEP)
        assert len(counts) >= (EPISODES - 1) * ROWS, f"only {len(counts)} episodes ended"
        queues = zip(wrapped.return_queue, wrapped.length_queue, strict=True)
        assert np.allclose(list(queues), counts), "wrong queues of statistics"


def check_info_lists(make: Make, mode: AutoresetMode, steps: int) -> None:
    """Assert that DictInfoToList finds in each row what the row's masks say."""
    with opened(make) as plain, opened(make) as env:
        wrapped = DictInfoToList(RecordEpisodeStatistics(env))
        for one, two in in_step(plain, wrapped, mode, steps):
            assert len(two[-1]) == ROWS, "there must be one dict of infos per row"
            done = np.logical_or(*one[2:4]) if len(one) == 5 else np.zeros(ROWS, np.bool_)
            for i, info in enumerate(two[-1]):
                assert ("episode" in info) == done[i], "statistics belong to the rows that ended"
                info.pop("episode", None)
                assert equal(info, row_info(one[-1], i)), f"row {i} has {info} in the list"


def check_clipped_rewards(make: Make, mode: AutoresetMode, steps: int) -> None:
    """Assert that ClipReward, which writes into the rewards, changes them and nothing else."""
    with opened(make) as plain, opened(make) as env:
        for one, two in in_step(plain, ClipReward(env, -0.5, 0.5), mode, steps):
            if len(one) == 5:
                assert np.array_equal(two[1], np.clip(one[1], -0.5, 0.5)), "wrong clipped rewards"
            assert equal((two[0], *two[2:]), (one[0], *one[2:])), "more than the rewards changed"


def check_normalized_rewards(make: Make, mode: AutoresetMode, steps: int) -> None:
    """Assert that NormalizeReward divides the rewards by its running deviation."""
    with opened(make) as plain, opened(make) as env:
        wrapped = NormalizeReward(env)
        for one, two in in_step(plain, wrapped, mode, steps):
            if len(one) == 5:
                scale = np.sqrt(wrapped.return_rms.var + wrapped.epsilon)
                assert np.allclose(two[1] * scale, one[1]), "wrong normalized rewards"


def check_observation_wrappers(make: Make, mode: AutoresetMode, steps: int) -> None:
    """Assert that observation wrappers transform each row; gymnasium refuses them in SAME_STEP."""
    for wrap, factor in ((FlattenObservation, 1), (widen, 1), (double, 2)):
        with opened(make) as plain, opened(make) as env:
            if mode is AutoresetMode.SAME_STEP:
                expect_error(ValueError, lambda w=wrap, e=env: w(e), f"{wrap.__name__} in {mode}")
                continue
            wrapped = wrap(env)
            for one, two in in_step(plain, wrapped, mode, steps):
                single = plain.single_observation_space
                flat = [spaces.flatten(single, row(one[0], i)) for i in range(ROWS)]
                assert wrapped.observation_space.contains(two[0]), f"{wrap.__name__}: wrong type"
                found = two[0].reshape(ROWS, -1)
                assert np.array_equal(found, np.stack(flat) * factor), f"{wrap.__name__}: wrong rows"
                assert equal(two[1:], one[1:]), f"{wrap.__name__} changed more than observations"


def check_normalized_observations(make: Make, mode: AutoresetMode, steps: int) -> None:
    """Assert that NormalizeObservation sees every observation; it takes NEXT_STEP only."""
    with opened(make) as plain, opened(make) as env:
        if mode is not AutoresetMode.NEXT_STEP:
            expect_error(ValueError, lambda: NormalizeObservation(boxed(env)), f"use in {mode}")
            return
        wrapped = NormalizeObservation(boxed(env))
        seen = []
        for one, two in in_step(boxed(plain), wrapped, mode, steps):
            seen.append(one[0])
            assert wrapped.observation_space.contains(two[0]), "normalized observations: wrong type"
        mean, var = np.mean(seen, axis=(0, 1)), np.var(seen, axis=(0, 1))
        assert np.allclose(wrapped.obs_rms.mean, mean, atol=1e-3), "wrong running mean"
        assert np.allclose(wrapped.obs_rms.var, var, rtol=1e-2, atol=1e-3), "wrong running variance"


def boxed(env: VectorEnv) -> VectorEnv:
    """Flatten `Dict` observations, for the wrappers that take nothing but a `Box`."""
    is_dict = isinstance(env.single_observation_space, spaces.Dict)
    return FlattenObservation(env) if is_dict else env


def widen(env: VectorEnv) -> VectorEnv:
    """Make the observations float64."""
    return DtypeObservation(boxed(env), np.float64)


def double(env: VectorEnv) -> VectorEnv:
    """Make the observations float64 and twice as large, row by row."""
    env = boxed(env)
    space = spaces.Box(-np.inf, np.inf, env.single_observation_space.shape, np.float64)
    return VectorizeTransformObservation(
        env, TransformObservation, func=lambda obs: 2.0 * obs.astype(np.float64), observation_space=space
    )


# Helpers: playing.


@contextmanager
def opened(make: Make) -> Iterator[VectorEnv]:
    """Make a checked environment whose action space is seeded, and close it at the end."""
    with closing(Checked(make(ROWS))) as env:
        env.action_space.seed(SEED)
        yield env


def play(env: VectorEnv, mode: AutoresetMode, steps: int) -> Iterator[tuple]:
    """Take random steps and yield their returns; in DISABLED, reset the rows that ended."""
    for _ in range(steps):
        result = env.step(env.action_space.sample())
        yield result
        done = result[2] | result[3]
        if mode is AutoresetMode.DISABLED and done.any():
            env.reset(options={"reset_mask": done})


def run(env: VectorEnv, mode: AutoresetMode, seed: Any, steps: int) -> Iterator[tuple]:
    """Yield what a reset with `seed`, and then `steps` reproducible steps, return."""
    env.action_space.seed(SEED)
    yield env.reset(seed=seed)
    yield from play(env, mode, steps)


def in_step(
    plain: VectorEnv, wrapped: VectorEnv, mode: AutoresetMode, steps: int
) -> Iterator[tuple[tuple, tuple]]:
    """Yield the returns of two environments that get the same seed and actions."""
    runs = (run(env, mode, SEED, steps) for env in (plain, wrapped))
    return zip(*runs, strict=True)


def stagger(env: VectorEnv) -> tuple[Any, np.ndarray, np.ndarray]:
    """Bring the last row a step behind; return the observations, each row's episode and length."""
    env.reset(seed=SEED)
    env.step(env.action_space.sample())
    last = np.arange(ROWS) == ROWS - 1
    obs, _ = env.reset(options={"reset_mask": last.copy()})
    return obs, last.astype(np.int64), 1 - last


def episode_starts(make: Make, seed: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the first starts of a seeded environment, one after the other, for all its rows."""
    with opened(make) as env:
        # One more for the episode that `stagger` gives up, one for the episode begun at the end.
        return [env.reset(seed=seed), *(env.reset() for _ in range(EPISODES + 1))]


def other_actions(env: VectorEnv, actions: np.ndarray) -> np.ndarray:
    """Return an action different from the given one for each row."""
    space = env.action_space
    return space.start + (actions - space.start + 1) % space.nvec


# Helpers: comparing.


def equal(one: Any, two: Any) -> bool:
    """Say whether two returns, or parts of them, have the same types, shapes, dtypes and values."""
    return data_equivalence(one, two, exact=True)


def expect_error(error: type[Exception], call: Callable[[], Any], what: str) -> None:
    """Assert that `call` raises `error`."""
    try:
        call()
    except Exception as raised:
        assert isinstance(raised, error), f"{what} must raise {error.__name__}, not {raised!r}"
        return
    raise AssertionError(f"{what} must raise {error.__name__}, but was accepted")


def expect_ends(done: np.ndarray, terminations: np.ndarray, truncations: np.ndarray) -> None:
    """Assert that just the rows in `done` were truncated, and that none terminated."""
    assert np.array_equal(truncations, done), f"truncations are {truncations}, not {done}"
    assert not terminations.any(), f"terminations are {terminations}, though no episode may end early"


def expect_rows(rows: np.ndarray, before: Any, after: Any, what: str) -> None:
    """Assert that two batches of observations are equal in the rows that the mask marks."""
    assert all(equal(row(before, i), row(after, i)) for i in np.flatnonzero(rows)), what


def expect_starts(rows: Any, episode: Any, starts: list, obs: Any, infos: dict[str, Any]) -> None:
    """Assert that each of `rows` is at the start of its episode, and has that start's infos."""
    for i in rows:
        start, start_infos = starts[episode[i]]
        assert equal(row(obs, i), row(start, i)), f"row {i} is not at the start of episode {episode[i]}"
        found = row_info(infos, i)
        found = {key: found[key] for key in found if key not in ("final_obs", "final_info")}
        assert equal(found, row_info(start_infos, i)), f"row {i} has {found}, not its start's infos"


def row(batch: Any, i: int) -> Any:
    """Return one row of a batch of observations."""
    return {key: row(batch[key], i) for key in batch} if isinstance(batch, dict) else batch[i]


def row_info(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """Return the infos that one row has set."""
    keys = [key for key in infos if not key.startswith("_") and infos[f"_{key}"][i]]
    nested = {key: isinstance(infos[key], dict) for key in keys}
    return {key: row_info(infos[key], i) if nested[key] else infos[key][i] for key in keys}


def leaves(space: spaces.Space, batch: Any) -> Iterator[tuple[spaces.Space, Any]]:
    """Yield the spaces that are not `Dict`, each with its part of the batch."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield from leaves(part, batch[key])
    else:
        yield space, batch


def arrays(tree: Any) -> Iterator[np.ndarray]:
    """Yield every array within a return, those that an array of objects holds before itself."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    is_array = isinstance(tree, np.ndarray)
    if isinstance(tree, (list, tuple)) or (is_array and tree.dtype == object):
        for part in tree:
            yield from arrays(part)
    if is_array:
        yield tree


# The checker's own test.


class DictCartPole(gymnasium.Wrapper):
    """CartPole with `Dict` observations and infos of every kind."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=3))
        signs = spaces.MultiBinary(4)
        self.observation_space = spaces.Dict({"state": self.env.observation_space, "signs": signs})

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset CartPole."""
        state, _ = self.env.reset(**kwargs)
        return self._observe(state)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step CartPole."""
        state, reward, terminated, truncated, _ = self.env.step(action)
        obs, info = self._observe(state)
        if truncated:
            info["why"] = "time"
        return obs, reward, terminated, truncated, info

    def _observe(self, state: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the observation and the infos of a state."""
        nested = {"moving": bool(state[1] > 0), "deeper": {"state": state * 2}}
        info = {"angle": float(state[2]), "state": state.copy(), "nested": nested}
        return {"state": state, "signs": (state > 0).astype(np.int8)}, info


def main() -> None:
    """Run both checks on SyncVectorEnv, in all modes and with both kinds of observations."""
    singles = {
        "CartPole": lambda: gymnasium.make("CartPole-v1", max_episode_steps=3),
        "DictCartPole": DictCartPole,
    }
    for name, single in singles.items():
        for mode in AutoresetMode:

            def make(num_envs: int, single: Any = single, mode: Any = mode) -> VectorEnv:
                return SyncVectorEnv([single] * num_envs, autoreset_mode=mode)

            check_vector_env(make, mode, max_steps=3)
            check_wrappers(make, mode, max_steps=3)
            print(f"passed: SyncVectorEnv of {name}, {mode.name}")


if __name__ == "__main__":
    main()
