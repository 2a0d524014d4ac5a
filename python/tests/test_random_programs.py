"""Random programs of several threads, each in its own process (random_programs.py).

`--random-seconds` is how long programs are run, and `--random-seed` the seed of the first one.
"""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import random_programs
from conftest import missing

# Several programs run at the same time, because some of them wait.
RUNNERS = 3

# What Python itself prints at exit, if another thread creates or runs a finalizer meanwhile.
OF_PYTHON = (
    "atexit callback: <bound method finalize._exitfunc",
    "dictionary changed size during iteration",
)


def run(seed, foreign):
    """Returns what the program of a seed finds, or None."""
    program = [sys.executable, "-X", "dev", random_programs.__file__, str(seed), str(foreign)]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired as why:
        return f"did not end: {why.stderr}"
    is_of_python = all(text in done.stderr for text in OF_PYTHON)
    if done.returncode == 0 and (is_of_python or not done.stderr.strip()):
        return None
    return f"ended with {done.returncode}: {done.stderr[:4000]}"


def test_random_programs_find_nothing(device, request, tmp_path):
    if not shutil.which("cc"):
        missing("a C compiler")
    seconds = request.config.getoption("--random-seconds")
    seeds = itertools.count(request.config.getoption("--random-seed"))
    foreign = random_programs.build(tmp_path)
    end = time.monotonic() + seconds
    ran, found = [], []

    def work():
        while time.monotonic() < end and not found:
            seed = next(seeds)
            ran.append(seed)
            if what := run(seed, foreign):
                found.append(f"the program of seed {seed} {what}")

    runners = [threading.Thread(target=work) for _ in range(RUNNERS)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    print(f"{len(ran)} random programs in {seconds} s")
    script = Path(random_programs.__file__).relative_to(Path(__file__).parents[2])
    assert not found, "\n".join([*found, f"to repeat it: python3 -X dev {script} SEED"])
    assert ran
    assert os.environ.get("CUDA_TESTS") == "require" or len(ran) > seconds / 10
