"""Compares the cost of importing and exporting an array with CuPy, alternating in one run on a GPU.

usage: exchange.py [ROUNDS]

Prints the median times and whether the targets are met: importing a PyTorch tensor takes at most half the
time of cupy.asarray, and exporting an array takes at most CuPy's time, if no streams have to be ordered.
The exit code is 0 if the targets are met, otherwise 1.
"""

from __future__ import annotations

import statistics
import sys
import time

import cupy
import torch

import cuda_safe

CALLS = 2000


def once(call):
    """Returns the nanoseconds per call, averaged over many calls."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 41
    tensor = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    theirs = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    ours = cuda_safe.DeviceArray.zeros((3, 4), "f4")
    torch.cuda.synchronize()

    # All imports have the same elements.
    expected = tensor.cpu().numpy()
    assert (cupy.asarray(tensor).get() == expected).all()
    assert (cuda_safe.from_dlpack(tensor).copy_to_host() == expected).all()
    assert (cuda_safe.as_cuda_array(tensor).copy_to_host() == expected).all()

    calls = {
        "import of a tensor": {
            "cupy.asarray": lambda: cupy.asarray(tensor),
            "cupy.from_dlpack": lambda: cupy.from_dlpack(tensor),
            "cuda_safe.from_dlpack": lambda: cuda_safe.from_dlpack(tensor),
            "cuda_safe.as_cuda_array": lambda: cuda_safe.as_cuda_array(tensor),
            "(PyTorch's part: __cuda_array_interface__)": lambda: tensor.__cuda_array_interface__,
        },
        "export, __cuda_array_interface__": {
            "cupy": lambda: theirs.__cuda_array_interface__,
            "cuda_safe": lambda: ours.__cuda_array_interface__,
            "cuda_safe, first export of an array": lambda: ours[:].__cuda_array_interface__,
        },
        "export, __dlpack__": {
            "cupy": lambda: theirs.__dlpack__(stream=-1),
            "cuda_safe": lambda: ours.__dlpack__(stream=-1),
            # The array has its own stream, so the default stream must wait for it.
            "cuda_safe, for another stream": lambda: ours.__dlpack__(),
        },
    }
    times = {(group, name): [] for group, its in calls.items() for name in its}
    for _ in range(rounds):
        for group, its in calls.items():
            for name, call in its.items():
                times[group, name].append(once(call))

    median = {key: statistics.median(its) for key, its in times.items()}
    for group, its in calls.items():
        print(group)
        for name in its:
            its_times = sorted(times[group, name])
            low, high = its_times[len(its_times) // 10], its_times[-1 - len(its_times) // 10]
            print(f"  {name:44} {median[group, name]:8.0f} ns   ({low:.0f} to {high:.0f})")

    def aim(what, ratio, most):
        holds = ratio <= most
        print(f"{what}: {ratio:.2f} of CuPy's time; the target is at most {most}: {'met' if holds else 'MISSED'}")
        return holds

    group = "import of a tensor"
    best = min(median[group, "cuda_safe.from_dlpack"], median[group, "cuda_safe.as_cuda_array"])
    good = aim("import", best / median[group, "cupy.asarray"], 0.5)
    for group in list(calls)[1:]:
        good &= aim(group, median[group, "cuda_safe"] / median[group, "cupy"], 1.0)
    sys.exit(0 if good else 1)


main()
