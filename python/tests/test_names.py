"""The names of this package in NAMES.md exist, and the package shows no others."""

import importlib
import re
from pathlib import Path

import cuda_safe

PAGE = Path(__file__).parents[1] / "NAMES.md"


def rows():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield cells


def missing(name):
    item = cuda_safe
    for part in name.split("."):
        if not hasattr(item, part):
            try:
                item = importlib.import_module(f"{item.__name__}.{part}")
                continue
            except (AttributeError, ImportError):
                return True
        item = getattr(item, part)
    return False


def test_every_name_of_this_package_exists():
    names = [name for cells in rows() for name in re.findall(r"`([^`]+)`", cells[1])]
    assert len(names) > 50
    assert [name for name in names if missing(name)] == []


def test_a_name_that_does_not_exist_is_found():
    assert missing("Device.nothing")
    assert missing("nothing")


def test_every_row_has_a_name_or_a_dash():
    assert [cells for cells in rows() if len(cells) != 3 or not cells[1].startswith(("`", "–"))] == []


def test_the_package_shows_its_public_names_only(run_python):
    run_python(
        """
import cuda_safe
shown = {name for name in dir(cuda_safe) if not name.startswith("_")}
assert shown == set(cuda_safe.__all__) - {"__version__"}, shown ^ set(cuda_safe.__all__)
print("done")
"""
    )
