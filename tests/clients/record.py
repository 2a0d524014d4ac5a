"""A plugin of pytest that writes each test and its outcome to the file CLIENTS_RECORD as soon as they are
known, so that a test that ends the process does not lose the results before it. A later run skips the tests
that are in the file."""

import os

import pytest

PATH = os.environ["CLIENTS_RECORD"]
# After such an error of a kernel every call of the process fails. The other tests run in a new process.
STICKY = [
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    # Two of the texts of cuGetErrorString.
    "an illegal memory access was encountered",
    "misaligned address",
]
# The process that runs the tests. Their child processes inherit the environment.
outcomes = {}


def name(nodeid):
    """Returns the name of a test in the list of failures."""
    # For a file outside of the root folder, the name starts with its path or with nothing.
    return nodeid.rsplit("unittests.py::", 1)[-1].removeprefix("::")


def write(word, nodeid, text=""):
    test, text = name(nodeid), " ".join(text.split())
    with open(PATH, "a", encoding="utf-8") as file:
        file.write(f"{word}\t{test}\t{text[:300]}\n")


def pytest_collection_modifyitems(config, items):
    try:
        with open(PATH, encoding="utf-8") as file:
            known = {line.split("\t")[1] for line in file if line.count("\t") >= 2}
    except FileNotFoundError:
        return
    done = [item for item in items if name(item.nodeid) in known]
    config.hook.pytest_deselected(items=done)
    items[:] = [item for item in items if name(item.nodeid) not in known]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid, location):
    write("started", nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.excinfo is not None:
        report.why = call.excinfo.exconly()
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    # A test has up to three reports. The worst counts.
    order = ["passed", "skipped", "failed"]
    last = outcomes.get(report.nodeid, ("passed", ""))
    if order.index(report.outcome) > order.index(last[0]):
        outcomes[report.nodeid] = (report.outcome, getattr(report, "why", ""))


def pytest_runtest_logfinish(nodeid, location):
    word, why = outcomes.get(nodeid, ("passed", ""))
    write(word, nodeid, why)
    if any(error in why for error in STICKY):
        os._exit(3)


def pytest_collectreport(report):
    if report.failed:
        write("failed", report.nodeid, str(report.longrepr).splitlines()[-1])
