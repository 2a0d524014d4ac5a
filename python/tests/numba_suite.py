"""Numba's own memory tests, once with Numba's memory manager and once with the one of this package.

usage: numba_suite.py [--more] [MODULE ...]

Each module runs in its own process for each of the two managers. The exit code is 1 if a test passes with
Numba's manager but not with this one, unless Numba skips it with every other manager, or if no test runs
with Numba's manager. It is 77 if Numba is not installed. Numba's tests of the plugin interface use their
own manager: they run unchanged, and again with the class of this package instead. With --more, modules
follow that destroy contexts or need more device memory.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import weakref

import numpy

# This also applies to the processes that the tests start, which run this file again.
if not hasattr(numpy, "row_stack"):
    # Versions of Numba from before NumPy 2.5 use this alias, which NumPy 2.5 has removed.
    numpy.row_stack = numpy.vstack  # type: ignore[attr-defined]
if importlib.util.find_spec("filecheck") is None:
    # All of Numba's tests import this module, but these tests do not use it.
    for _name in ("filecheck", "filecheck.finput", "filecheck.matcher", "filecheck.options", "filecheck.parser"):
        _module = types.ModuleType(_name)
        _module.__spec__ = importlib.machinery.ModuleSpec(_name, None)
        _module.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
        sys.modules[_name] = _module

TESTS = "numba.cuda.tests."
EMM = "cudadrv.test_emm_plugins"
MODULES = [EMM, "cudadrv.test_cuda_memory", "cudadrv.test_host_alloc", "cudadrv.test_pinned", "cudapy.test_ipc"]
MORE = [
    "cudadrv.test_deallocations",
    "cudadrv.test_cuda_ndarray",
    "cudadrv.test_managed_alloc",
    "cudapy.test_cuda_array_interface",
    "cudadrv.test_context_stack",
    "cudadrv.test_reset_device",
]
TIMEOUT = 120
SEAM = "the class in the place of theirs"
# The beginning of Numba's reason for skipping a test with a manager other than its own.
EXTERNAL = "with an external manager: "
OUTCOMES = ["passed", "external", "skipped", "failed"]


class Result(unittest.TextTestResult):
    """Records the outcome of each test by its name."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.outcomes = {}

    def note(self, test, what):
        name = test.id().removeprefix(TESTS)
        # The worst outcome of the subtests counts.
        before = self.outcomes.get(name, "passed")
        self.outcomes[name] = max(before, what, key=OUTCOMES.index)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "external" if reason.startswith(EXTERNAL) else "skipped")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed")

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failed")

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, "failed")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.note(test, "passed")


def in_the_place_of_theirs():
    """Returns the tests of `test_emm_plugins`, whose setUp creates a `DeviceOnlyEMMPlugin`, with our
    manager instead. It records the same calls. Two tests contain numbers of the original plugin, and are
    replaced here."""
    from numba import cuda

    from cuda_safe.numba import MemoryManager

    theirs = importlib.import_module(TESTS + EMM)

    class Noted(MemoryManager):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.count, self.allocations = 0, {}
            self.initialized = self.reset_called = self.memalloc_called = False

        def initialize(self):
            super().initialize()
            self.initialized = True

        def memalloc(self, size):
            assert self.initialized
            self.memalloc_called = True
            pointer = super().memalloc(size)
            self.count += 1
            self.allocations[self.count] = size
            weakref.finalize(pointer, self.allocations.pop, self.count)
            return pointer

        def reset(self):
            super().reset()
            self.reset_called = True

    class BadVersion(Noted):
        @property
        def interface_version(self):
            return 2

    theirs.DeviceOnlyEMMPlugin, theirs.BadVersionEMMPlugin = Noted, BadVersion

    class OurPlugin(theirs.TestDeviceOnlyEMMPlugin):
        def test_get_memory_info(self):
            free, total = cuda.current_context().get_memory_info()
            self.assertEqual(total, cuda.current_context().memory_manager._get().memory_info().total)
            self.assertTrue(0 < free <= total)

        def test_get_ipc_handle(self):
            array = cuda.device_array_like(numpy.arange(2))
            other = cuda.device_array_like(numpy.arange(200))
            handles = [its.get_ipc_handle()._ipc_handle for its in (array, other)]
            distance = other.__cuda_array_interface__["data"][0] - array.__cuda_array_interface__["data"][0]
            self.assertEqual(handles[1].offset - handles[0].offset, distance)
            self.assertEqual(handles[0].size, 16)

    class OurBadVersion(theirs.TestBadEMMPluginVersion):
        pass

    load = unittest.defaultTestLoader.loadTestsFromTestCase
    return unittest.TestSuite([load(OurPlugin), load(OurBadVersion)])


def child(module, path):
    """Runs the tests of a module, and writes their outcomes to a file."""
    testing = importlib.import_module("numba.cuda.testing")
    skip_if_external = testing.skip_if_external_memmgr
    # The test modules import it by this name.
    testing.skip_if_external_memmgr = lambda reason: skip_if_external(EXTERNAL + reason)
    if module == SEAM:
        suite = in_the_place_of_theirs()
    else:
        suite = unittest.defaultTestLoader.loadTestsFromName(TESTS + module)
    result = unittest.TextTestRunner(resultclass=Result, verbosity=0).run(suite)
    with open(path, "w") as file:
        json.dump(result.outcomes, file)


def run(module, manager):
    environment = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": manager}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "outcomes")
        try:
            done = subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--child", module, path],
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
            )
            said, code = done.stderr, done.returncode
        except subprocess.TimeoutExpired as why:
            said, code = str(why), "none"
        try:
            with open(path) as file:
                return json.load(file), said, code
        except OSError:
            return {}, said, code


def count(outcomes, *what):
    return sum(its in what for its in outcomes.values())


def losses(own, ours):
    """Returns the tests that pass only with Numba's own manager, unless Numba requires this."""
    return [name for name, its in own.items() if its == "passed" and ours.get(name) not in ("passed", "external")]


def main(arguments):
    if importlib.util.find_spec("numba") is None:
        print("missing: numba")
        return 77
    modules = [its for its in arguments if not its.startswith("-")]
    modules = modules or MODULES + (MORE if "--more" in arguments else [])
    rows, lost, bad = [], [], []
    for module in modules:
        print(f"{module} ...", flush=True)
        own, own_said, own_code = run(module, "default")
        ours, said, code = run(module, "cuda_safe.numba")
        rows.append((module, own, ours))
        if not own:
            lost.append(f"{module}: nothing ran with Numba's own")
        lost += losses(own, ours)
        if any(its == "failed" for its in ours.values()) or not ours:
            bad.append((module, f"cuda_safe.numba, exit code {code}", said))
        if any(its == "failed" for its in own.values()) or not own:
            bad.append((module, f"Numba's own, exit code {own_code}", own_said))
        if module == EMM:
            seam, said, code = run(SEAM, "cuda_safe.numba")
            rows.append((SEAM, own, seam))
            if count(seam, "passed") < count(own, "passed"):
                lost.append(SEAM)
                bad.append((SEAM, f"cuda_safe.numba, exit code {code}", said))

    for module, which, said in bad:
        print(f"== {module}, {which}\n{said[-6000:]}")
    print("| module of numba.cuda.tests | Numba's own: passed, failed, skipped | cuda_safe.numba |")
    print("|---|---|---|")
    for module, *both in rows:
        columns = (("passed",), ("failed",), ("skipped", "external"))
        cells = [", ".join(str(count(its, *what)) for what in columns) for its in both]
        print(f"| {module} | {cells[0]} | {cells[1]} |")
    own, ours = (sum(count(row[1 + side], "passed") for row in rows) for side in (0, 1))
    print(f"\npassed: {own} with Numba's own, {ours} with cuda_safe.numba")
    for what, said in ("external", "skipped by Numba with any manager but its own"), ("skipped", "skipped with both"):
        names = [name for *_, its in rows for name in its if its[name] == what and name not in lost]
        if names:
            print(f"{said}:", *names)
    if not own:
        print("nothing passed")
    if lost:
        print("LOST:", *lost)
    return 1 if lost or not own else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
