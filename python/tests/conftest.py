"""Fixtures of the tests.

The tests use the driver that `cuda_safe` finds: that of a GPU, or the software driver if CUDA_SYS_LIBRARY
names it (`cargo xtask python` does this). With CUDA_TESTS=require, a test that would be skipped fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import cuda_safe

REQUIRED = os.environ.get("CUDA_TESTS") == "require"
SIMULATED = "CUDA_SYS_LIBRARY" in os.environ


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-seconds", type=float, default=60, help="how long random programs run")
    parser.addoption("--random-seed", type=int, default=1, help="the seed of the first program")


def missing(what: str) -> None:
    """Skips the test, or fails it if nothing may be missing."""
    if REQUIRED:
        pytest.fail(f"missing: {what}")
    pytest.skip(f"missing: {what}")


def since(major: int, minor: int) -> None:
    """Skips the test if the driver is older."""
    if cuda_safe.driver_version() < (major, minor):
        pytest.skip(f"the driver is older than CUDA {major}.{minor}")


@pytest.fixture(scope="session")
def _driver() -> str | None:
    """Returns why there is no device, or None."""
    try:
        cuda_safe.Device.count()
        cuda_safe.Device(0)
    except cuda_safe.CudaError as why:
        return str(why)
    return None


@pytest.fixture
def device(_driver: str | None) -> cuda_safe.Device:
    """The first device."""
    if _driver is not None:
        missing(_driver)
    return cuda_safe.Device(0)


@pytest.fixture
def devices(device: cuda_safe.Device) -> list[cuda_safe.Device]:
    """The first two devices. With the software driver, `test_on_two_devices` runs the tests that need
    them."""
    if cuda_safe.Device.count() < 2:
        # CUDA_TESTS=require cannot require a second GPU.
        pytest.skip("needs two devices")
    return [device, cuda_safe.Device(1)]


class Producer:
    """An object with an interface and no other attributes."""

    def __init__(self, interface: Any, keep: Any = None) -> None:
        self.__cuda_array_interface__ = interface
        self.keep = keep


@pytest.fixture
def produce() -> Callable[..., Producer]:
    """Creates objects with the interface of an array, with changes."""

    def make(array: cuda_safe.DeviceArray, **changes: Any) -> Producer:
        interface = {**array.__cuda_array_interface__, **changes}
        return Producer({k: v for k, v in interface.items() if v is not ...}, array)

    return make


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in its own process, which must succeed and print only "done"."""

    def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        assert done.stdout.strip().endswith("done"), done.stdout
        assert done.stderr == ""
        return done

    return run
