"""Tests that need several devices, with the software driver, which has any number of devices."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SIMULATED


@pytest.mark.skipif(not SIMULATED, reason="of a GPU's driver the tests are run as they are")
def test_on_two_devices(monkeypatch):
    monkeypatch.setenv("CUDA_SIM", "h200*2")
    here = Path(__file__).parent
    files = [
        "test_objects.py",
        "test_interface.py",
        "test_pointers.py",
        "test_compile.py::test_the_context_chooses_the_device",
        "test_plugins.py::test_each_device_has_its_own_instance",
        "test_plugins.py::test_a_choice_applies_to_devices_used_later",
    ]
    arguments = ["-q", "--config-file", str(here.parent / "pyproject.toml"), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *(str(here / file) for file in files)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "needs two devices" not in done.stdout
