"""Pools, searches and evaluators of a server against those in process; the server is a process of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import until

import azserve

ROOT = pathlib.Path(__file__).parents[2]

pytest.importorskip("grpc")


@pytest.fixture
def server(serve):
    s = serve()
    with azserve.connect(s.target) as client:
        client.served = s
        yield client


def network(obs, action_mask):
    """Exact in float32 whatever the batch: sums of small multiples of 1/4096."""
    board = next(iter(obs.values())).reshape(len(action_mask), -1).astype(np.float32)
    weights = ((np.arange(board.shape[1]) * 37) % 101 - 50).astype(np.float32) / 4096
    value = (board * weights).sum(1)
    return value[:, None] * np.arange(action_mask.shape[1], dtype=np.float32), value


# An evaluator in a process of its own; its arguments are the server and what it does wrong.
EVALUATOR = f"""
import sys, time, numpy as np
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import azserve
from test_server import network
def slow(obs, mask):
    time.sleep(0.002)
    return network(obs, mask)
azserve.serve_evaluator(sys.argv[1], "m", slow, max_batch=16, name=sys.argv[2])
"""


@pytest.fixture
def evaluator():
    made = []

    def start(client, name="e"):
        before = attached(client)
        made.append(subprocess.Popen([sys.executable, "-c", EVALUATOR, client.target, name]))
        until(lambda: attached(client) == before + 1, 20)
        return made[-1]

    yield start
    for p in made:
        p.kill()
        p.wait()


def attached(client):
    try:
        return sum(m.evaluators for m in client.models())
    except azserve.UnavailableError:  # on the way to a new server
        return -1


def same(a, b, path="it"):
    """Compare what pools return, to the last bit."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for k in a:
            same(a[k], b[k], f"{path}[{k!r}]")
    elif isinstance(a, tuple):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    else:
        assert type(a) is type(b), path
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, path
        np.testing.assert_array_equal(a, b, path)


def same_result(a, b):
    for name in ("action", "action_weights", "visits", "qvalues", "value", "raw_value", "proven"):
        same(getattr(a, name), getattr(b, name), name)


def legal(info, obs, spec, rng):
    mask = obs.get("action_mask", np.ones((len(next(iter(obs.values()))), spec.num_actions), bool))
    return np.where(mask.any(1), np.where(mask, rng.random(mask.shape), -1).argmax(1), 0).astype(np.int32)


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize(
    "env", ["CartPole-v1", "TicTacToe-v0", "ConnectFour-v0", "Maze-v0", "BinPack-v0", "Pig-v0", "Gomoku-v0"]
)
def test_pool_is_the_same(server, make, env, autoreset):
    keywords = {"CartPole-v1": {"max_episode_steps": 9}}.get(env, {})
    own = make(env, num_envs=5, seed=3, autoreset=autoreset, **keywords)
    theirs = server.make(env, num_envs=5, seed=3, autoreset=autoreset, **keywords)
    assert vars(own.spec).keys() == vars(theirs.spec).keys()
    assert (own.spec.id, own.spec.keywords) == (theirs.spec.id, theirs.spec.keywords)
    a, b = own.reset(), theirs.reset()
    same(a, b)
    rng, obs = np.random.default_rng(1), a[0]
    for _ in range(25):
        actions = legal(a[-1], obs, own.spec, rng)
        a, b = own.step(actions), theirs.step(actions)
        same(a, b)
        obs = a[0]
    same(own.observe(), theirs.observe())
    same(own.render(), theirs.render())
    with own.scope(), theirs.scope():
        x, y = own.snapshot(), theirs.snapshot()
        assert own.dump(x) == theirs.dump(y)
        same(own.state_hash(x), theirs.state_hash(y))
        actions = legal(None, own.observe(state_id=x)[0], own.spec, rng)
        a, b = own.simulate_batch(x, actions), theirs.simulate_batch(y, actions)
        a[3].pop("state_id"), b[3].pop("state_id")
        same(a, b)
        assert own.text(x[0]) == theirs.text(y[0])
        z = theirs.load(own.dump(x))
        theirs.restore([0], z[:1])
        if own.spec.factorization:
            masks = own.query_mask_all(actions=actions), theirs.query_mask_all(actions=actions)
            same(*masks)
    assert own.stats()["live_states"] == theirs.stats()["live_states"] == 0
    assert server.stats()["states"] == 5


def test_send_recv(server):
    pool = server.make("ConnectFour-v0", num_envs=6, batch_size=2, record=True)
    pool.async_reset()
    seen = [pool.recv()[3]["env_id"] for _ in range(3)]
    assert sorted(np.concatenate(seen)) == list(range(6))
    with pytest.raises(azserve.NothingInFlightError):
        pool.recv(timeout=0.1)
    pool.send([3, 4], [0, 1])
    pool.recv()
    assert pool.episode_actions(1).tolist() == [4]
    assert len(pool.replay([1], 0)) == 1


@pytest.mark.parametrize("policy", ["gumbel", "alphazero", "muzero", "uct"])
def test_search_is_the_same(server, make, policy):
    own, theirs = make("ConnectFour-v0", num_envs=9), server.make("ConnectFour-v0", num_envs=9)
    for p in (own, theirs):
        p.reset()
        p.step(np.arange(9) % 7)
    x, y = own.snapshot(), theirs.snapshot()
    rng = np.random.default_rng(0)
    options = {
        "num_simulations": rng.integers(5, 40, 9),
        "policy": policy,
        "seed": 5,
        "invalid_actions": rng.random((9, 7)) < 0.3,
        "leaves_per_step": 2,
    }
    with azserve.serve_evaluator(server.target, "m", network, max_batch=7, version=4, wait=False):
        for evaluator in (network, "uniform", "rollout"):
            a = azserve.search(own, x, evaluator, keep_tree=True, **options)
            b = azserve.search(theirs, y, evaluator, keep_tree=True, **options)
            same_result(a, b)
            same(vars(a.tree()), vars(b.tree()))
        same_result(azserve.search(own, x, network, **options), azserve.search(theirs, y, "m", **options))
        b = azserve.search(theirs, y, "m", **options)
        assert b.version == 4
        direct = server.search("ConnectFour-v0", states=own.dump(x), evaluator="m", **options)
        same_result(b, direct)
        evaluation = azserve.evaluate(theirs, y, "m")
        same(evaluation.value, network(own.observe(state_id=x)[0], np.ones((9, 7), bool))[1])
    moves = server.search("ConnectFour-v0", moves=[[i % 7] for i in range(9)], evaluator="uniform", **options)
    same_result(azserve.search(own, x, "uniform", **options), moves)


def test_session_is_the_same(server, make):
    own, theirs = make("ConnectFour-v0", num_envs=3), server.make("ConnectFour-v0", num_envs=3)
    own.reset(), theirs.reset()
    options = {"num_simulations": 30, "seed": 2, "policy": "alphazero", "evaluator": "uniform"}
    with (
        azserve.Search(own, own.snapshot(), **options) as a,
        azserve.Search(theirs, theirs.snapshot(), **options) as b,
    ):
        for _ in range(4):
            a.run(), b.run()
            x, y = a.result(), b.result()
            same_result(x, y)
            with pytest.raises(azserve.ActionError, match="row 1"):
                b.advance([0, 7, 0])
            a.advance(x.action), b.advance(x.action)
        with pytest.raises(azserve.AzserveError, match="select"):
            b.select()
    with pytest.raises(azserve.PoolClosedError):
        b.run()


def test_errors_have_their_class_and_say_where(server):
    pool = server.make("ConnectFour-v0", num_envs=2)
    pool.reset()
    ids = pool.snapshot()
    for error, field, row, call in [
        (azserve.UnknownEnvError, "env", None, lambda: server.make("Chess-v9")),
        (azserve.KeywordError, "env", None, lambda: server.make("ConnectFour-v0", rose=1)),
        (
            azserve.InvalidArgumentError,
            "num_envs",
            None,
            lambda: server.make("ConnectFour-v0", num_envs=10**6),
        ),
        (
            azserve.ForbiddenError,
            "env.keywords.table",
            None,
            lambda: server.make("Table-v0", table="/etc/passwd"),
        ),
        (azserve.ActionError, "", 1, lambda: pool.step([0, 7])),
        (azserve.EnvIdError, "", 0, lambda: pool.send([0], [5])),
        (azserve.ForeignStateError, "state_id", 0, lambda: pool.release_batch([12345])),
        (azserve.BadStateError, "states", 1, lambda: pool.load([*pool.dump(ids[:1]), b"xyz"])),
        (azserve.UnknownModelError, "model", None, lambda: azserve.search(pool, ids, "nobody")),
        (
            azserve.InvalidArgumentError,
            "settings.num_simulations",
            None,
            lambda: azserve.search(pool, ids, "uniform", num_simulations=-1),
        ),
        (azserve.InvalidArgumentError, "", None, lambda: azserve.search(pool, ids, "uniform", rose=1)),
    ]:
        with pytest.raises(error) as e:
            call()
        assert (e.value.field, e.value.row) == (field, row), e.value
        assert not e.value.retryable
    pool.release_batch(ids)
    with pytest.raises(azserve.StaleStateError):
        pool.release_batch(ids)
    pool.close()
    with pytest.raises(azserve.PoolClosedError):
        pool.step([0, 0])


def test_nobody_there(tmp_path):
    began = time.monotonic()
    with pytest.raises(azserve.UnavailableError):
        azserve.connect(f"unix:{tmp_path}/none", timeout=0.3)
    assert time.monotonic() - began < 3


def searches(client, count, options):
    """Run searches side by side; return their results and errors."""
    from concurrent.futures import ThreadPoolExecutor

    def one(i):
        try:
            moves = [[i % 7, i // 7 % 7]] * 2
            return client.search("ConnectFour-v0", moves=moves, evaluator="m", seed=i, **options)
        except azserve.AzserveError as e:
            return e

    executor = ThreadPoolExecutor(count)
    return [executor.submit(one, i) for i in range(count)]


def test_evaluator_killed_in_mid_search(server, evaluator):
    """With another one nothing is lost, bit for bit; without, an error in time; then all is well."""
    options = {"num_simulations": 60}
    first = evaluator(server)
    want = [f.result() for f in searches(server, 16, options)]
    for _ in range(3):
        second = evaluator(server)
        running = searches(server, 16, options)
        time.sleep(0.1)
        assert not all(f.done() for f in running), "no search was in flight"
        first.kill()
        for a, f in zip(want, running, strict=True):
            same_result(a, f.result())
        first = second
    running = searches(server, 16, options)
    time.sleep(0.1)
    began = time.monotonic()
    first.kill()
    errors = [f.result() for f in running]
    assert sum(isinstance(e, azserve.UnavailableError) for e in errors) > 0
    assert time.monotonic() - began < 4
    assert server.models()  # the server lives
    evaluator(server)
    for a, f in zip(want, searches(server, 16, options), strict=True):
        same_result(a, f.result())


def test_evaluator_stalls(serve, evaluator):
    """It is cut off after the batch's time, and its batches are done by another."""
    s = serve("--evaluator-timeout", "500ms")
    with azserve.connect(s.target) as client:
        first = evaluator(client)
        want = [f.result() for f in searches(client, 8, {"num_simulations": 60})]
        first.send_signal(signal.SIGSTOP)
        evaluator(client, "fresh")
        running = searches(client, 8, {"num_simulations": 60})
        for a, f in zip(want, running, strict=True):
            same_result(a, f.result())
        until(lambda: attached(client) == 1)
        assert "no answer to a batch within 500ms" in (s.folder / "log").read_text()
        first.send_signal(signal.SIGCONT)  # it finds out, and comes back
        until(lambda: attached(client) == 2)


def test_b35_evaluator_answers_badly(server):
    """A bad row fails its row; a whole bad answer fails that batch; three in a row cut the evaluator off."""
    spoil = {"how": None}

    def sick(obs, mask):
        logits, value = network(obs, mask)
        value = value.copy()
        how = spoil["how"]
        if how == "nan":
            spoil["how"] = None  # in one batch
        match how:
            case "nan":
                value[0] = np.nan
            case "rows":
                return logits[:-1], value[:-1]
            case "actions":
                return np.c_[logits, logits[:, :1]], value
            case "raise":
                raise RuntimeError("out of memory")
            case "float64":
                return logits.astype(np.float64), value.astype(np.float64)
        return logits, value

    moves = [[i] for i in range(4)]
    options = {"moves": moves, "evaluator": "m", "num_simulations": 20, "seed": 1}
    with azserve.serve_evaluator(server.target, "m", sick, name="sick", wait=False) as e:
        want = server.search("ConnectFour-v0", **options)
        for how in ("nan", "rows", "actions", "raise"):
            spoil["how"] = how
            with pytest.raises(azserve.EvaluatorError, match="sick") as raised:
                server.search("ConnectFour-v0", **options)
            if how == "nan":
                bad = raised.value.errors
                assert set(bad) == {0}
                for row in (1, 2, 3):
                    same(raised.value.result.visits[row], want.visits[row])
            spoil["how"] = "float64" if how == "rows" else None
            same_result(want, server.search("ConnectFour-v0", **options))
        spoil["how"] = "raise"
        for _ in range(3):
            with pytest.raises((azserve.EvaluatorError, azserve.UnavailableError)):
                server.search("ConnectFour-v0", **options)
        with pytest.raises(azserve.EvaluatorError, match="3 bad answers in a row"):
            e.wait(5)
    with pytest.raises(azserve.UnavailableError):
        server.search("ConnectFour-v0", **options)


def test_weights_change_under_searches(server):
    """Each search is of one version only, and says of which."""

    def weights(version):
        return lambda obs, mask: (network(obs, mask)[0], np.full(len(mask), version / 64, np.float32))

    with azserve.serve_evaluator(server.target, "m", weights(1), version=1, wait=False, keep=3) as e:
        seen = set()
        running = []
        for version in range(2, 30):
            running += searches(server, 4, {"num_simulations": 40})
            time.sleep(0.05)
            e.update(weights(version), version)
        for f in running:
            r = f.result()
            assert not isinstance(r, Exception), r
            assert (r.raw_value == np.float32(r.version / 64)).all()
            seen.add(r.version)
        assert len(seen) > 3


def test_client_killed(serve):
    """Its pools and their states are freed when the lease has run out; a client that lives keeps his."""
    s = serve("--lease", "400ms")
    script = (
        "import sys, os, azserve, numpy as np\n"
        "pool = azserve.connect(sys.argv[1]).make('ConnectFour-v0', num_envs=100)\n"
        "pool.reset(); pool.snapshot(); print('ready', flush=True); sys.stdin.read()\n"
    )
    with azserve.connect(s.target) as client:
        pool = client.make("ConnectFour-v0", num_envs=3)
        pool.reset()
        ids = pool.snapshot()
        p = subprocess.Popen(
            [sys.executable, "-c", script, s.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert p.stdout.readline() == b"ready\n"
        assert client.stats()["pools"] == 2
        time.sleep(1)
        assert client.stats()["states"] >= 103  # it renews
        p.kill()
        p.wait()
        until(lambda: client.stats()["pools"] == 1)
        stats = client.stats()
        assert (stats["states"], stats["expired"]) == (3, 1)
        pool.release_batch(ids)
        pool.close()


def test_server_killed(serve):
    """Calls fail at once with a clear error; evaluators and clients find the next server by themselves."""
    s = serve()
    with (
        azserve.connect(s.target) as client,
        azserve.serve_evaluator(s.target, "m", network, wait=False),
    ):
        pool = client.make("ConnectFour-v0")
        pool.reset()
        running = searches(client, 8, {"num_simulations": 50_000})
        time.sleep(0.2)
        s.stop(signal.SIGKILL)
        with pytest.raises(azserve.UnavailableError) as e:
            pool.step([0])
        assert e.value.retryable
        s.start()
        until(lambda: attached(client) == 1, 20)
        assert client.search("ConnectFour-v0", moves=[[]], evaluator="m").visits.sum() == 32
        with pytest.raises(azserve.PoolClosedError, match="no such pool"):
            pool.step([0])
        for f in running:
            f.cancel()
    s.stop(signal.SIGKILL)


def test_drain(serve, evaluator):
    """After SIGTERM what is in progress ends well, new calls are refused, and the program ends with 0."""
    s = serve()
    with azserve.connect(s.target) as client:
        evaluator(client)
        want = [f.result() for f in searches(client, 16, {"num_simulations": 100})]
        running = searches(client, 16, {"num_simulations": 100})
        time.sleep(0.1)
        assert not any(f.done() for f in running)
        began = time.monotonic()
        s.process.terminate()
        for a, f in zip(want, running, strict=True):
            same_result(a, f.result())
        assert s.process.wait(20) == 0
        assert time.monotonic() - began < 20
        with pytest.raises(azserve.UnavailableError):
            client.list_envs()


def test_tokens(serve, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("learner client secret-of-the-learner 1000\ngpu evaluator secret-of-the-gpu-box\n")
    s = serve("--tokens", tokens)
    for token in (None, "secret-of-the-learneR", "x"):
        with pytest.raises(azserve.AuthenticationError):
            azserve.connect(s.target, token=token)
    with azserve.connect(s.target, token="secret-of-the-learner") as client:
        with pytest.raises(azserve.ForbiddenError):
            client.drain()
        with pytest.raises(azserve.ForbiddenError):
            azserve.serve_evaluator(s.target, "m", network, token="secret-of-the-learner")
        with azserve.serve_evaluator(s.target, "m", network, token="secret-of-the-gpu-box", wait=False):
            assert client.search("ConnectFour-v0", moves=[[]], evaluator="m").visits.sum() == 32
        with pytest.raises(azserve.OverloadedError) as e:
            for _ in range(3000):
                client.list_envs()
        assert e.value.retry_after > 0
        tokens.write_text("boss admin the-secret-of-the-boss\n")  # read again without a restart
        time.sleep(1.2)
        with pytest.raises(azserve.AuthenticationError):
            client.list_envs()
    with azserve.connect(s.target, token="the-secret-of-the-boss") as boss:
        boss.drain()
    assert s.process.wait(20) == 0
    assert "secret" not in (s.folder / "log").read_text()


def test_forked(server):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    pid = os.fork()
    if pid == 0:
        try:
            server.list_envs()
        except azserve.ForkError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert server.list_envs()


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_example_evaluators(server, kind):
    """A network of a framework, in a process of its own, stopped by Ctrl-C."""
    pytest.importorskip(kind)
    script = ROOT / "examples" / "serving" / f"evaluator_{kind}.py"
    start = "import signal, runpy, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start += "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    args = [sys.executable, "-c", start, script, "--target", server.target]
    p = subprocess.Popen([str(a) for a in args], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: attached(server) == 1, 60)
        r = server.search(
            "ConnectFour-v0", moves=[[i % 7] for i in range(20)], evaluator=kind, num_simulations=16
        )
        assert (r.visits.sum(1) == 16).all()
        assert np.abs(r.raw_value).max() > 0
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=30)
        assert "serving" in out and "stopped" in out
    finally:
        p.kill()


def test_many_clients(serve):
    """The learner's example: searches of several processes are those in process, to the last bit."""
    s = serve("--env", "ConnectFour-v0")
    script = ROOT / "examples" / "serving" / "many_clients.py"
    args = [sys.executable, script, "--target", s.target, "--searches", "400", "--clients", "3", "--check"]
    out = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert "0 of 400 differ" in out.stdout


def test_grpc_evaluator(server, make):
    """A search in this process by a model of a server."""
    pool = make("ConnectFour-v0", num_envs=5)
    pool.reset()
    ids = pool.snapshot()
    with azserve.serve_evaluator(server.target, "m", network, wait=False):
        got = azserve.search(pool, ids, f"grpc://{server.target}/m", num_simulations=20, seed=1)
    same_result(azserve.search(pool, ids, network, num_simulations=20, seed=1), got)
    with pytest.raises(azserve.InvalidArgumentError, match="grpc://"):
        azserve.search(pool, ids, "grpc://m")
    with pytest.raises(azserve.UnknownModelError):
        azserve.search(pool, ids, f"grpc://{server.target}/nobody")


def test_tls(serve, tmp_path):
    """An encrypted connection, whose certificate is checked."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    make += [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        key,
        "-out",
        cert,
    ]
    try:
        subprocess.run([str(a) for a in make], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    s = serve("--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
    address = (s.folder / "ready").read_text().split()[1].replace("127.0.0.1", "localhost")
    with azserve.connect(address, tls=azserve.TLSFiles(ca=cert)) as client:
        assert client.list_envs()
    for tls in (True, None):
        with pytest.raises(azserve.UnavailableError):
            azserve.connect(address, tls=tls, timeout=1)
