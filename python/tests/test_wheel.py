"""What the wheel says of itself is true."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

import cuda_safe


@pytest.fixture
def distribution():
    try:
        return metadata.distribution("cuda-safe")
    except metadata.PackageNotFoundError:
        pytest.skip("the package was not installed from a wheel")


def test_the_licences_are_in_it(distribution):
    assert distribution.metadata["License-Expression"] == "MIT OR Apache-2.0"
    names = distribution.metadata.get_all("License-File")
    assert sorted(names) == ["LICENSE-APACHE", "LICENSE-MIT"]
    for name, word in [("LICENSE-APACHE", "Apache License"), ("LICENSE-MIT", "Permission is hereby granted")]:
        assert word in distribution.read_text(f"licenses/{name}")


def test_threads_that_end_in_it_are_unwound_by_the_systems_unwinder():
    """As the C library does it, whose unwinder knows no other's."""
    if sys.platform != "linux":
        pytest.skip("another system")
    native = Path(cuda_safe.__file__).parent / "_native.abi3.so"
    assert b"\0libgcc_s.so.1\0" in native.read_bytes()


def test_it_runs_on_the_systems_that_it_names(distribution):
    """The C library that it needs is no newer than that of the tag."""
    wheel = distribution.read_text("WHEEL")
    tags = re.findall(r"^Tag: cp310-abi3-(.*)$", wheel, re.MULTILINE)
    assert tags, wheel
    named = [re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag) for tag in tags]
    oldest = min((int(tag[1]), int(tag[2])) for tag in named if tag) if any(named) else None
    if oldest is None:
        pytest.skip(f"{tags} names no C library")
    native = Path(cuda_safe.__file__).parent / "_native.abi3.so"
    needed = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", native.read_bytes())
    assert needed and max((int(major), int(minor)) for major, minor in needed) <= oldest


def test_what_it_says_of_itself_names_no_file_beside_it(distribution):
    """Whoever reads it at an index of packages has none."""
    said = distribution.metadata.get_payload() or distribution.metadata["Description"]
    targets = re.findall(r"\]\(([^)\s]+)\)", said)
    assert "cuda_safe" in said and all(target.startswith(("https://", "#")) for target in targets), targets
