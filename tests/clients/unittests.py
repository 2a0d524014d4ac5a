"""Collects the classes of unittest from the modules of the package CLIENTS_PACKAGE. pytest cannot import these
modules by path if the package installs import hooks, as numba-cuda does for `numba.cuda`."""

import importlib
import os
import pkgutil
import unittest

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """The fixture of numba-cuda's conftest.py, which its wheel lacks."""
    request.cls._dump_failed_filechecks = False


package = importlib.import_module(os.environ["CLIENTS_PACKAGE"])
for found in pkgutil.iter_modules(package.__path__):
    try:
        module = importlib.import_module(f"{package.__name__}.{found.name}")
    except pytest.skip.Exception:
        # The module needs a package that is not installed.
        continue
    for name, case in vars(module).items():
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == module.__name__:
            globals()[f"{found.name}.{name}"] = case
# pytest would collect the last one a second time.
del case
