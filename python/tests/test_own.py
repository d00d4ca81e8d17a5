"""An environment from a module outside of the repository, and bug reports that need a strange one."""

import json
import subprocess


def test_its_own_battery(own):
    subprocess.run(["go", "test", "-mod=mod", "./..."], cwd=own.folder, check=True, timeout=600)


def test_command_line(own):
    def run(*args):
        return subprocess.run([own.program, *args], capture_output=True, text=True, timeout=60)

    p = run("envs")
    assert (
        "Counter-v0" in p.stdout
        and "ConnectFour-v0" in p.stdout
        and "seconds that action 1 takes" in p.stdout
    )
    p = run("search", "Counter-v0", "--simulations", "8", "--env-arg", "limit=5")
    assert p.returncode == 0, p.stderr
    p = run("search", "Counter-v0", "--env-arg", "limits=5")
    assert p.returncode == 2 and 'no keyword "limits"; known: limit, ending, sleep, panics' in p.stderr


def test_python_and_gymnasium(in_own):
    out = in_own("""
        import gymnasium, numpy as np, azserve.gymnasium_api
        assert {"Counter-v0", "Maze-v0"} <= set(azserve.list_envs())
        with azserve.make("Counter-v0", num_envs=3, limit=2) as pool:
            pool.reset()
            ids = pool.snapshot()
            obs, reward, done, info = pool.step([3, 4, 5])
            assert obs["count"].tolist() == [1, 1, 1] and obs["echo"].tolist() == [3, 4, 5]
            assert info["twice"].tolist() == [2, 2, 2]
            assert pool.simulate_batch(ids, [0, 0, 0])[0]["count"].tolist() == [1, 1, 1]
            result = azserve.search(pool, ids, "uniform", num_simulations=8)
            assert result.visits.sum() == 24
        env = gymnasium.make("azserve/Counter-v0", limit=4)
        env.reset(seed=1)
        assert env.step(0)[0]["count"] == 1
        envs = gymnasium.make_vec("azserve/Counter-v0", num_envs=2, limit=4)
        envs.reset(seed=1)
        assert envs.step([0, 7])[0]["echo"].tolist() == [0, 7]
        print("well")
    """)
    assert out == "well\n"


def test_library_is_chosen_once(in_own, own):
    out = in_own(f"""
        import pathlib
        azserve.list_envs()
        azserve.load_library({str(own.library)!r})  # the same one: nothing to do
        packaged = pathlib.Path(azserve.__file__).with_name("libazserve.so")
        try:
            azserve.load_library(packaged)
        except azserve.LibraryError as e:
            assert "in use already" in str(e)
            print("refused")
    """)
    assert out == "refused\n"


def test_missing_library():
    import sys

    script = (
        "import azserve\ntry:\n    azserve.load_library('/nowhere.so')\n"
        "except azserve.LibraryError as e:\n    print(e)\nprint(len(azserve.list_envs()) > 5)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "can't load /nowhere.so" in out and out.endswith("True\n"), "the packaged one can still be used"


def test_vector_contract_with_dict_observations(in_own):
    out = in_own("""
        import vector_contract
        from gymnasium.vector import AutoresetMode
        from azserve.gymnasium_api import VectorEnv
        for mode in AutoresetMode:
            make = lambda n: VectorEnv("Counter-v0", n, autoreset_mode=mode, limit=3, ending="truncate")
            vector_contract.check_vector_env(make, mode)
            vector_contract.check_wrappers(make, mode)
            print(mode.value)
    """)
    assert out.split() == ["NextStep", "SameStep", "Disabled"]


def test_b28_autoreset(in_own):
    out = in_own("""
        import json
        import numpy as np
        from gymnasium.wrappers.vector import RecordEpisodeStatistics
        from azserve.gymnasium_api import VectorEnv
        def play(mode, **keywords):
            envs = VectorEnv("Counter-v0", 2, autoreset_mode=mode, limit=3, **keywords)
            envs = RecordEpisodeStatistics(envs)
            envs.reset(seed=0)
            log = []
            for step in range(1, 13):
                obs, reward, terminated, truncated, infos = envs.step(np.zeros(2, np.int64))
                row = [step, obs["count"].tolist(), reward.tolist(), terminated.tolist(), truncated.tolist()]
                if "episode" in infos:
                    row += [infos["episode"]["r"].tolist(), infos["episode"]["l"].tolist()]
                if "final_obs" in infos:
                    row.append([int(o["count"]) for o in infos["final_obs"]])
                log.append(row)
            return log
        endings = "terminate", "truncate", "both"
        print(json.dumps([play(m, ending=e) for m in ("SameStep", "NextStep") for e in endings]))
    """)
    yes, no = [True, True], [False, False]
    for i, log in enumerate(json.loads(out)):
        same, ending = i < 3, ("terminate", "truncate", "both")[i % 3]
        flags = {"terminate": [yes, no], "truncate": [no, yes], "both": [yes, yes]}[ending]
        for step, *row in log:
            if same and step % 3 == 0:
                assert row == [[0, 0], [1, 1], *flags, [3, 3], [3, 3], [3, 3]]
            elif not same and step % 4 == 3:
                assert row == [[3, 3], [1, 1], *flags, [3, 3], [3, 3]]
            elif not same and step % 4 == 0:
                assert row == [[0, 0], [0, 0], no, no]
            else:
                assert row[2:] == [no, no] and row[1] == [1, 1]


def test_b31_timeout_and_close(in_own):
    out = in_own("""
        import threading, time
        import numpy as np
        pool = azserve.make("Counter-v0", num_envs=4, limit=100, sleep=1.0)
        pool.reset()
        pool.send([0, 1, 0, 0])
        began = time.monotonic()
        try:
            pool.recv(timeout=0.1)
        except TimeoutError:
            print("timeout", 0.1 <= time.monotonic() - began < 0.5)
        obs, *_ = pool.recv()
        print(obs["count"].tolist())  # nothing was lost
        pool.send([1, 1, 1, 1])
        errors = []
        def block():
            try:
                pool.recv()
            except azserve.PoolClosedError as e:
                errors.append(e)
        t = threading.Thread(target=block)
        t.start()
        time.sleep(0.1)
        began = time.monotonic()
        pool.close()
        t.join(3)
        print("closed", len(errors), time.monotonic() - began < 3)
        pool = azserve.make("Counter-v0", num_envs=4, batch_size=1)
        pool.async_reset()
        pool.recv()
        pool.close()  # with three unread
        for call in (pool.recv, pool.async_reset, lambda: pool.send([0], [0])):
            try:
                call()
            except azserve.PoolClosedError:
                print("closed")
    """)
    assert out == "timeout True\n[1, 1, 1, 1]\nclosed 1 True\nclosed\nclosed\nclosed\n"


def test_a_slow_environment_delays_no_other(in_own):
    out = in_own("""
        import time
        import numpy as np
        pool = azserve.make("Counter-v0", num_envs=4, batch_size=2, limit=10**6, sleep=1.0, num_threads=2)
        pool.async_reset()
        for _ in range(2):
            pool.send([0, 0], pool.recv()[3]["env_id"])
        began, rounds, slow = time.monotonic(), 0, 0
        while time.monotonic() - began < 0.8:
            ids = pool.recv()[3]["env_id"]
            rounds += 1
            actions = np.zeros(2, np.int32)
            if rounds > 5 and not slow and 3 in ids:
                actions[ids.tolist().index(3)] = slow = 1
            pool.send(actions, ids)
        print(slow, rounds > 100, pool.stats()["pending"])
    """)
    assert out == "1 True 4\n"


def test_b33_echo(in_own):
    out = in_own("""
        import numpy as np
        pool = azserve.make("Counter-v0", num_envs=4, limit=10**6)
        pool.reset()
        frozen = np.array([3, 4, 5, 6], np.int32)
        frozen.flags.writeable = False
        for actions in (
            np.arange(12, dtype=np.int32).reshape(4, 3)[:, 0], np.arange(3, 7)[::-1],
            np.array([3, 4, 5, 6], ">i4"), np.array([3, 4, 5, 6], np.uint8), frozen, [3, 4, 5, 6],
        ):
            print(pool.step(actions)[0]["echo"].tolist())
        for actions in (np.array([2**32 + 3, 0, 0, 0]), np.array([3.7, 3, 3, 3]), np.zeros((4, 1), np.int32)):
            try:
                pool.step(actions)
            except ValueError as e:
                print(type(e).__name__)
        print(pool.step([3, 3, 3, 3])[0]["count"].tolist())
    """)
    rows = out.splitlines()
    assert rows[:2] == ["[0, 3, 6, 9]", "[6, 5, 4, 3]"]
    assert rows[2:6] == ["[3, 4, 5, 6]"] * 4
    assert rows[6:] == ["InvalidArgumentError"] * 3 + ["[7, 7, 7, 7]"]


def test_panic_harms_one_environment(in_own):
    out = in_own("""
        pool = azserve.make("Counter-v0", num_envs=3, limit=100, panics=True)
        pool.reset()
        ids = pool.snapshot()
        try:
            pool.step([0, 2, 0])
        except azserve.EnvironmentPanicError as e:
            print(e)
            obs, reward, done, info = e.results
            assert e.env_id.tolist() == [1] and info["env_id"].tolist() == [0, 1, 2]
            assert obs["count"][[0, 2]].tolist() == [1, 1] and reward[[0, 2]].tolist() == [1, 1]
        pool.send([0, 0], [0, 2])
        print(pool.recv()[0]["count"].tolist())
        try:
            pool.simulate_batch(ids, [0, 0, 2])
        except azserve.EnvironmentPanicError as e:
            print(e)
        print(pool.stats()["live_states"], pool.reset()[0]["count"].tolist())
    """)
    first, second, third, last = out.splitlines()
    assert "env_id 1: panic: boom" in first and second == "[2, 2]"
    assert "row 2: panic: boom" in third and last == "3 [0, 0, 0]"


def test_stragglers(in_own):
    out = in_own("""
        import numpy as np
        pool = azserve.make("Counter-v0", num_envs=5, limit=1000, sleep=0.003, num_threads=2)
        pool.reset()
        for _ in range(12):
            pool.step([0, 0, 0, 1, 0])
        stats = pool.stats()
        p50, p99 = stats["step_time_p50"][3], stats["step_time_p99"][3]
        print(stats["stragglers"].tolist(), 0.001 < p50 <= p99 < 0.1)
    """)
    assert out == "[3] True\n"
