import gc

import pytest

import azserve


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
