"""Allocations that the package's extension asks Python for fail, one at a time: the call raises MemoryError, or its result is
right. A crash would end the test, so each call has a process of its own. The test fails where nothing has failed."""
import subprocess
import sys

import pytest

from paths import PACKAGE, clean_environment

pytest.importorskip("_testcapi")
pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import numpy as np
import _testcapi
sys.path.insert(0, {package!r})
import trajd
from trajd import _core

{setup}

def same(left, right):
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    return np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right

expected = call()
assert same(call(), expected)
injected = 0
for number in range(1, 5000):
    got, failed = None, False
    _testcapi.set_nomemory(number, number + 1)
    try:
        got = call()
    except MemoryError:
        failed = True
    finally:
        _testcapi.remove_mem_hooks()
    injected += failed
    assert failed or same(got, expected), (number, got)
    # the next allocation fails, too: so Python has made fewer than `number` in the call
    if not failed and number > 40 * (1 + injected):
        break
assert injected >= {least}, injected
assert same(call(), expected)
print("done", injected)
"""

CALLS = {
    "resample": (5, """
values, times = np.arange(60.0).reshape(1, 20, 3), np.arange(20)[None] * 10
def call():
    return trajd.resample(values, times, np.array([[5, 17, 500]]))
"""),
    "resample_many": (5, """
times = np.arange(20)[None] * 10
streams = {"a": {"values": np.arange(60.0).reshape(1, 20, 3)}, "b": {"values": np.arange(20.0).reshape(1, 20, 1)}}
def call():
    results, masks = trajd.resample_many(streams, np.array([[5, 17]]), times=times)
    return [results["a"], results["b"], masks["a"], masks["b"]]
"""),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_allocation_of_a_call_fails(name):
    least, setup = CALLS[name]
    program = PROGRAM.format(package=str(PACKAGE), setup=setup, least=least)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=clean_environment())
    assert done.returncode == 0 and done.stdout.startswith("done"), done
