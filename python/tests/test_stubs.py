"""The declared types agree with the module."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_safe

ALLOWED = """\
# These are Python's own, or come from the way in which the extension is built.
cuda_safe\\._native\\.__all__
cuda_safe\\._native\\.__doc__
# The libraries for these are not installed here.
cuda_safe\\.(cupy|numba|torch)
"""


def mypy(*arguments, **options):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_match_the_module(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    mypy(
        "mypy.stubtest",
        "cuda_safe",
        "--allowlist",
        str(allowed),
        "--ignore-unused-allowlist",
        cwd=tmp_path,
    )


def test_the_package_is_typed(tmp_path):
    package = Path(cuda_safe.__file__).parent
    assert (package / "py.typed").exists()
    # Not in its installed folder, because mypy would also check the files beside it.
    shutil.copytree(package, tmp_path / "cuda_safe", ignore=shutil.ignore_patterns("*.so"))
    mypy("mypy", "--strict", "-p", "cuda_safe", cwd=tmp_path)


def test_everything_has_a_docstring():
    without = []
    for name in cuda_safe.__all__:
        thing = getattr(cuda_safe, name)
        if not getattr(thing, "__doc__", None):
            without.append(name)
        if isinstance(thing, type) and thing.__module__ == "cuda_safe":
            members = {k: v for k, v in vars(thing).items() if not k.startswith("_")}
            without += [f"{name}.{k}" for k, v in members.items() if not getattr(v, "__doc__", None)]
    assert without == []
