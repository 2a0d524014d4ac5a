"""The first example of the README, and the example that needs no library except NumPy."""

import os
import re
import subprocess
import sys
from pathlib import Path

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
