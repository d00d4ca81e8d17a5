import gc
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types

import pytest

import azserve

PROGRAM = pathlib.Path(__file__).parents[2] / "bin" / "azserve"


@pytest.fixture
def interrupt():
    """Return a function that runs a script, presses Ctrl-C when it prints "ready", and says what came."""

    def run(script, after=0.0):
        # A process started in the background may have SIGINT ignored, and its children with it.
        start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        p = subprocess.Popen([sys.executable, "-c", start + script], stdout=subprocess.PIPE, text=True)
        try:
            assert p.stdout.readline() == "ready\n"
            time.sleep(after)
            began = time.time()
            p.send_signal(signal.SIGINT)
            out, _ = p.communicate(timeout=20)
            return out, time.time() - began
        finally:
            p.kill()

    return run


@pytest.fixture
def make():
    pools = []

    def build(*args, **kwargs):
        pools.append(azserve.make(*args, **kwargs))
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()
    gc.collect()


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """Build a module outside of the repository with an environment of its own; return its two files.

    The program and the library are of one main package. Versions of dependencies are azserve's.
    """
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    root = pathlib.Path(__file__).parents[2]
    module = tmp_path_factory.mktemp("own")
    for file in (root / "python/tests/testdata/own").glob("*.go"):
        shutil.copy(file, module)
    mod = (root / "go.mod").read_text().replace("module github.com/azserve/azserve", "module example.org/own")
    name = "github.com/azserve/azserve"
    mod += f"\nrequire {name} v0.0.0\n\nreplace {name} => {root}\n"
    (module / "go.mod").write_text(mod)
    shutil.copy(root / "go.sum", module)
    program, library = module / "own", module / "libown.so"
    for args in (["-o", program], ["-buildmode=c-shared", "-o", library]):
        subprocess.run(["go", "build", "-mod=mod", *args, "."], cwd=module, check=True, timeout=600)
    return types.SimpleNamespace(folder=module, program=program, library=library)


@pytest.fixture
def in_own(own):
    """Return a function that runs a script in a process with that library."""

    def run(script, **variables):
        start = f"import azserve; azserve.load_library({str(own.library)!r})\n"
        path = [str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(path)}
        p = subprocess.run(
            [sys.executable, "-c", start + textwrap.dedent(script)],
            capture_output=True,
            text=True,
            timeout=120,
            env=env,
        )
        assert p.returncode == 0, p.stderr
        return p.stdout

    return run


class Served:
    """A server in a process of its own, on a Unix socket."""

    def __init__(self, folder, *flags):
        self.folder, self.flags = folder, flags
        self.target = f"unix:{folder}/s"
        self.start()

    def start(self):
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        log = open(self.folder / "log", "a")
        args = [PROGRAM, "serve", "--listen", self.target, "--ready-file", ready, *self.flags]
        self.process = subprocess.Popen([str(a) for a in args], stderr=log)
        log.close()
        until(ready.exists)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(20)


def until(condition, seconds=10.0):
    """Wait for something, and fail if it doesn't come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it didn't come"
        time.sleep(0.005)


@pytest.fixture
def serve(tmp_path):
    if not PROGRAM.exists():
        pytest.skip("needs bin/azserve: make build")
    made = []

    def start(*flags):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Served(folder, *flags))
        return made[-1]

    yield start
    for s in made:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()
