"""Measures a chain of 100 kernels that runs repeatedly with CuPy: as a captured graph, and launch by launch.

usage: replay.py [CUDA_BENCH [ROUNDS]]

CUDA_BENCH is the binary of the benchmark in bench/. Its table with C, cuda-safe and cudarc
(`cuda-bench --replay`) is printed first, and the rows of CuPy follow. Without it, only these rows are printed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import cupy

NODES = 100
BATCH = 20

# Does nothing, like the kernel of the benchmark.
SOURCE = 'extern "C" __global__ void three(const float *a, float *b, unsigned c) {}'


def replay(launch, wait):
    """Returns the microseconds of the launch calls, and those from before them to after the wait."""
    calls = whole = 0
    for _ in range(BATCH):
        start = time.perf_counter_ns()
        launch()
        calls += time.perf_counter_ns() - start
        wait()
        whole += time.perf_counter_ns() - start
    return calls / BATCH / 1000, whole / BATCH / 1000


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 101
    if len(sys.argv) > 1:
        subprocess.run([sys.argv[1], "--replay", "--rounds", str(rounds)], check=True)
    else:
        print(f"| a chain of {NODES} kernels, µs | launch calls | times that of C | launch and wait | times that of C |")
        print("|---|--:|--:|--:|--:|")

    kernel = cupy.RawKernel(SOURCE, "three")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        source, target = cupy.zeros(1024, cupy.float32), cupy.zeros(1024, cupy.float32)
        arguments = (source, target, cupy.uint32(8))

        def chain():
            for _ in range(NODES):
                kernel((1,), (32,), arguments)

        chain()
        stream.begin_capture()
        chain()
        graph = stream.end_capture()
        graph.launch()
        stream.synchronize()

        ways = {"a graph, CuPy": graph.launch, "a stream, CuPy": chain}
        times = {name: [] for name in ways}
        for _ in range(rounds):
            for name, launch in ways.items():
                times[name].append(replay(launch, stream.synchronize))
    for name, its in times.items():
        calls, whole = (statistics.median(column) for column in zip(*its))
        print(f"| {name} | {calls:.2f} | - | {whole:.2f} | - |")


if __name__ == "__main__":
    main()
