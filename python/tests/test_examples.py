"""The first example of the README, and the examples that need no library except NumPy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_safe

FOLDER = Path(__file__).parents[1]


def outcome(program, **environment):
    """Runs a program, and returns its exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_example_for_numpy_runs(device):
    status, shown = outcome(FOLDER / "examples/arrays.py")
    assert status == 0, shown
    first, last = shown.splitlines()
    assert first == f"cuda_safe {cuda_safe.__version__} on {device.name}"
    assert re.fullmatch(r"65536 elements after 5 launches of a graph of \d+ nodes: as expected", last)


def test_the_example_reports_a_missing_driver():
    status, shown = outcome(FOLDER / "examples/arrays.py", CUDA_SYS_LIBRARY="/nonexistent/libcuda.so.1")
    assert status == 77
    assert shown.startswith("missing: ") and "/nonexistent/libcuda.so.1" in shown


def test_the_first_example_of_the_readme_runs(device, tmp_path):
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    example = tmp_path / "example.py"
    example.write_text(re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1])
    assert outcome(example) == (0, "[[1. 0. 0. 0.]\n [0. 1. 0. 0.]\n [5. 0. 5. 0.]]\n")


def test_the_example_without_a_gpu_passes_and_detects_a_leak(tmp_path):
    pytest.importorskip("cuda_sim", reason="missing: the wheel of cuda-sim")
    own = {"CUDA_SYS_LIBRARY", "LD_LIBRARY_PATH"}
    kept = {k: v for k, v in os.environ.items() if k not in own and not k.startswith("CUDA_SIM")}
    program = tmp_path / "test_without_gpu.py"

    def outcome(text):
        program.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", program],
            env={**kept, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    example = (FOLDER / "examples/test_without_gpu.py").read_text(encoding="utf-8")
    status, shown = outcome(example)
    assert status == 0 and shown.splitlines()[-1].startswith("3 passed"), shown
    status, shown = outcome(example.replace("assert average.count == 1", "globals()['kept'] = average.rows"))
    assert status == 1 and "AssertionError: leak: 1 streams" in shown, shown
