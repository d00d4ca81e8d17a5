import gc
import signal
import subprocess
import sys
import time

import pytest

import azserve


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
