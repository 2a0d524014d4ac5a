"""Helpers for the tests of allocators. Each test is a process, because the choice of an allocator holds
for one.

The tests run with the libraries if these are installed and have what they need. They always also run with
stand-ins that follow the libraries' rules (standins.py).
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SIMULATED, missing

START = """
import gc, sys
sys.path.insert(0, {tests!r})
import standins
for library in {libraries!r}:
    standins.install(library)
import cuda_safe
MIB = 1 << 20

def used():
    gc.collect()
    return cuda_safe.memory_manager().statistics().used
"""


def environment():
    """Returns the environment, in which libraries also find the software driver by the driver's file
    name."""
    variables = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": "cuda_safe.numba"}
    if SIMULATED:
        folder = str(Path(os.environ["CUDA_SYS_LIBRARY"]).parent)
        paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return variables


def python(libraries, program, **variables):
    start = START.format(tests=str(Path(__file__).parent), libraries=libraries)
    return subprocess.run(
        [sys.executable, "-c", start + program],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


@functools.cache
def why_not(library):
    """Returns why a library cannot be used, or None."""
    if library.endswith("standin"):
        return None
    if SIMULATED and library != "numba":
        return f"{library} needs a GPU"
    use = {
        "numba": "from numba import cuda; cuda.current_context()",
        "cupy": "import cupy; cupy.cuda.runtime.getDeviceCount()",
        "torch": "import torch; assert torch.cuda.is_available(), 'no GPU'",
    }
    done = python([library], use[library])
    return done.returncode and f"{library}: {done.stderr.strip().splitlines()[-1]}" or None


def run(libraries, program, **variables):
    for library in libraries:
        if why := why_not(library):
            missing(why)
    done = python(libraries, program + "\nprint('done')\n", **variables)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.strip().endswith("done"), done.stdout
    # This includes output of finalizers.
    assert "Traceback" not in done.stderr and "panicked" not in done.stderr, done.stderr
    return done


def of(name):
    return pytest.mark.parametrize("library", [f"{name}-standin", name])


# Programs to put before a test's own program.
FAILS = """
def fails(call, *words):
    try:
        call()
    except RuntimeError as why:
        assert all(word in str(why) for word in words), why
    else:
        raise AssertionError("the call did not fail")
"""

CAPTURE = """
import ctypes

def capture(stream, while_it_is):
    driver, graph = standins.driver(), ctypes.c_void_p()
    # In the capture mode in which allocations are forbidden.
    assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 0) == 0
    while_it_is()
    assert driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) == 0
    assert driver.cuGraphDestroy(graph) == 0
"""
