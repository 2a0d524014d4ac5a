"""The software CUDA driver, for tests in Python without a GPU.

:func:`install` makes it the driver of this process, before anything has used CUDA::

    import cuda_sim

    cuda_sim.install("h200*2")  # two devices

    def test_an_allocation_that_fails():
        with cuda_sim.checked(), cuda_sim.faults("cuMemAllocAsync:2=CUDA_ERROR_OUT_OF_MEMORY"):
            ...

:func:`checked` fails for misuses of the driver and for objects that stay alive, and :func:`faults` makes calls fail.
The command ``cuda-sim run`` runs programs that do not import this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["checked", "command", "faults", "install", "library", "live_objects", "misuses"]

# The name of the driver, under which programs open it.
_NAME = "libcuda.so.1"

# The variable that names the driver for programs that use the Rust crates.
_VARIABLE = "CUDA_SYS_LIBRARY"

_driver: ctypes.CDLL | None = None


def command() -> Path:
    """Returns the path of the command ``cuda-sim``.

    Raises a :class:`FileNotFoundError` if it is not installed.
    """
    folders = [
        Path(__file__).parents[1] / "bin",  # pip install --target
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))),
    ]
    search = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    found = shutil.which("cuda-sim", path=search)
    if found is None:
        raise FileNotFoundError("the command cuda-sim is not installed")
    return Path(found)


def library() -> Path:
    """Returns the path of the software driver, ``libcuda.so.1``.

    The file is in the user's cache, as ``cuda-sim library`` has written it.
    """
    done = subprocess.run([command(), "library"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.removesuffix("\n")) / _NAME


def install(
    profile: str | None = None,
    *,
    races: bool = False,
    checks: Iterable[str] = (),
    lenient: bool = False,
) -> None:
    """Makes the software driver the driver of this process, and of processes that it starts later.

    ``profile`` is the GPU, with the number of devices, the version of the driver and the seed if they matter:
    ``"a100*2@12.4#7"``. ``cuda-sim profiles`` lists the GPUs and the versions. ``races`` detects races between streams,
    ``checks`` names checks of kernels (``"initcheck"``, ``"racecheck"``, ``"synccheck"``), and ``lenient`` lets the
    driver continue after an illegal access. The environment has the other settings, and those that are not named here
    (``CUDA_SIM``, ``CUDA_SIM_KERNELS``, …). For a setting that is not valid, the driver prints the reason to stderr and
    reports no devices.

    If ``CUDA_SYS_LIBRARY`` names a library, as within ``cuda-sim run``, it is loaded in place of the one of this package.

    Raises a :class:`RuntimeError` if this process has loaded a driver: a process has one driver, and it reads its settings
    when it is loaded.
    """
    global _driver
    if _is_loaded():
        raise RuntimeError("this process has loaded a CUDA driver; call cuda_sim.install() before its first use")
    before = dict(os.environ)
    path = os.environ.get(_VARIABLE) or str(library())
    settings = {
        "CUDA_SIM": profile,
        "CUDA_SIM_RACES": "1" if races else None,
        "CUDA_SIM_CHECKS": ",".join(checks) or None,
        "CUDA_SIM_LENIENT": "1" if lenient else None,
    }
    os.environ.update({name: value for name, value in settings.items() if value is not None})
    os.environ[_VARIABLE] = path
    # Only for other processes: the dynamic linker of this one has read the variable. Here, a later `dlopen` of the name
    # finds the library that is loaded now.
    others = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([os.path.dirname(path), *others])

    driver = ctypes.CDLL(path)
    if not hasattr(driver, "cuSimInject"):
        os.environ.clear()
        os.environ.update(before)
        raise RuntimeError(f"{path} is not the software driver of this version")
    driver.cuSimInject.argtypes = [ctypes.c_char_p]
    driver.cuSimClearFaults.restype = ctypes.c_ulonglong
    driver.cuSimMisuseCount.restype = ctypes.c_size_t
    driver.cuSimMisuseText.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    driver.cuSimMisuseText.restype = ctypes.c_size_t
    driver.cuSimDescribeLiveObjects.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    driver.cuSimDescribeLiveObjects.restype = ctypes.c_size_t
    _driver = driver


def live_objects() -> dict[str, int]:
    """Runs all work, and returns the number of live objects of each kind of which there are any.

    The kinds are, among others, ``"retains"`` of primary contexts, ``"streams"``, ``"events"``,
    ``"device allocations"``, ``"pinned allocations"`` and ``"bytes of device memory"``.
    """
    driver = _installed()
    text = ctypes.create_string_buffer(driver.cuSimDescribeLiveObjects(None, 0) + 1)
    # A later count of another thread may be longer.
    while (length := driver.cuSimDescribeLiveObjects(text, len(text))) >= len(text):
        text = ctypes.create_string_buffer(length + 1)
    pairs = (item.split(" ", 1) for item in text.value.decode().split(", "))
    return {kind: int(count) for count, kind in pairs if count != "0"}


def misuses() -> list[str]:
    """Returns the misuses so far, in their order: incorrect calls that a real driver accepts or crashes on.

    The races and the errors of kernels that :func:`install` looks for are among them. Each one is also printed to stderr
    when it is detected.
    """
    return _misuses_from(0)


@contextlib.contextmanager
def checked(*, leaks: bool = True, ignore: Iterable[str] = ()) -> Iterator[None]:
    """Returns a context manager that raises an :class:`AssertionError` for misuses in its block, and for leaks.

    A leak is an object that is created in the block and alive at its end, after a garbage collection. Other threads must
    not create objects during the block. ``leaks=False`` does not look for leaks.

    What a library creates at its first use and keeps, such as the context of a device, is a leak too. Use the device
    before the block, as a fixture of the whole session does. ``ignore`` names the kinds of objects (see
    :func:`live_objects`) that a library keeps for reuse: ``cuda_safe`` keeps ``"events"``.
    """
    ignored = set(ignore)
    first = _installed().cuSimMisuseCount()
    before = _after_collection() if leaks else {}
    yield
    problems = [f"misuse: {misuse}" for misuse in _misuses_from(first)]
    after = _after_collection() if leaks else {}
    grown = {kind: count - before.get(kind, 0) for kind, count in after.items()}
    problems += [
        f"leak: {count} {kind}" for kind, count in grown.items() if count > 0 and kind not in ignored
    ]
    if problems:
        raise AssertionError("\n".join(problems))


@contextlib.contextmanager
def faults(*texts: str) -> Iterator[None]:
    """Returns a context manager that makes calls of the driver fail in its block, on all threads.

    Each fault is the name of a function, or ``*`` for any function, and optionally ``:`` and the number of the call that
    fails, counted from 1 at the start of the block (with ``+``, the later calls fail too), and ``=`` and an error code by
    its name or number: ``"cuMemAllocAsync:2+=CUDA_ERROR_OUT_OF_MEMORY"``. A call that fails has no effect.

    The end of the block removes all faults, also those of an outer block. It raises an :class:`AssertionError` if they have made no call fail, because
    the block has then tested nothing. A text that is no fault raises a :class:`ValueError`.
    """
    driver = _installed()
    for text in texts:
        if driver.cuSimInject(text.encode()) != 0:
            driver.cuSimClearFaults()
            raise ValueError(f"no fault: {text!r}; the driver has printed the reason to stderr")
    try:
        yield
    finally:
        hits = driver.cuSimClearFaults()
    if hits == 0:
        raise AssertionError(f"no call failed by {', '.join(texts)}")


def _is_loaded() -> bool:
    """Returns whether this process has loaded a driver."""
    try:
        ctypes.CDLL(_NAME, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _installed() -> ctypes.CDLL:
    if _driver is None:
        raise RuntimeError("the software driver is not installed; call cuda_sim.install()")
    return _driver


def _misuses_from(first: int) -> list[str]:
    driver = _installed()
    found = []
    for index in range(first, driver.cuSimMisuseCount()):
        text = ctypes.create_string_buffer(driver.cuSimMisuseText(index, None, 0) + 1)
        driver.cuSimMisuseText(index, text, len(text))
        found.append(text.value.decode())
    return found


def _after_collection() -> dict[str, int]:
    gc.collect()
    return live_objects()
