"""The metadata of the wheel is correct."""

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


def test_the_licenses_are_included(distribution):
    assert distribution.metadata["License-Expression"] == "MIT OR Apache-2.0"
    names = distribution.metadata.get_all("License-File")
    assert sorted(names) == ["LICENSE-APACHE", "LICENSE-MIT"]
    for name, word in [("LICENSE-APACHE", "Apache License"), ("LICENSE-MIT", "Permission is hereby granted")]:
        assert word in distribution.read_text(f"licenses/{name}")


def test_the_version_is_that_of_the_package(distribution):
    assert cuda_safe.__version__ == distribution.version


def test_threads_that_end_in_it_are_unwound_by_the_systems_unwinder():
    """The C library must use the system's unwinder, because it does not know other unwinders."""
    if sys.platform != "linux":
        pytest.skip("another system")
    native = Path(cuda_safe.__file__).parent / "_native.abi3.so"
    assert b"\0libgcc_s.so.1\0" in native.read_bytes()


def test_it_runs_on_the_systems_of_its_tag(distribution):
    """The required C library is not newer than that of the tag."""
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


def test_the_description_has_no_relative_links(distribution):
    """A package index does not have these files."""
    said = distribution.metadata.get_payload() or distribution.metadata["Description"]
    targets = re.findall(r"\]\(([^)\s]+)\)", said)
    assert "cuda_safe" in said and all(target.startswith(("https://", "#")) for target in targets), targets
