"""Numba, CuPy and PyTorch allocate out of one pool, and what one has given back another gets.

usage: pool.py

Each allocates the same in its turn. The pool's figures move by that, and what the driver says is free does
not: nothing was allocated besides. The exit code is 77 where something is missing that this needs.
"""

import gc
import os
import sys

MIB = 1 << 20
SIZE = 256 * MIB
MISSING = 77

# Before Numba's first use of the device.
os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "cuda_safe.numba"


def missing(what):
    print(f"missing: {what}")
    sys.exit(MISSING)


try:
    import numpy

    # Versions of Numba that are older than NumPy 2.5 look for this alias, which that has not any more.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    import cupy
    import torch
    from numba import cuda

    if not torch.cuda.is_available():
        missing("a GPU that PyTorch sees")
except ImportError as why:
    missing(why)

import cuda_safe
import cuda_safe.cupy
import cuda_safe.torch

cuda_safe.set_memory_manager("caching", limit=4096 * MIB)
cuda_safe.cupy.use()
cuda_safe.torch.use()

pool = cuda_safe.memory_manager()
device = cuda_safe.Device(0)
ways = {
    "Numba": lambda: cuda.device_array(SIZE, dtype=numpy.uint8),
    "CuPy": lambda: cupy.empty(SIZE, dtype=cupy.uint8),
    "PyTorch": lambda: torch.empty(SIZE, dtype=torch.uint8, device="cuda"),
    "cuda_safe": lambda: cuda_safe.DeviceArray.empty(SIZE, "u1"),
}


def figures():
    """Bytes in use, bytes of the driver's in the pool, bytes that the driver says are free."""
    gc.collect()
    its = pool.statistics()
    return its.used, its.reserved, device.memory_info().free


# What the libraries need for themselves is there afterwards, and the pool has enough.
arrays = [allocate() for allocate in ways.values()]
arrays[1].fill(1)
arrays[2].fill_(1)
arrays[3].fill(1)
print(f"{pool!r}, {len(ways)} arrays of {SIZE // MIB} MiB")
device.synchronize()
del arrays
device.synchronize()

good = True
for turn in range(2):
    arrays = []
    for name, allocate in ways.items():
        before = figures()
        arrays.append(allocate())
        after = figures()
        moved = [(its - was) // MIB for its, was in zip(after, before)]
        as_it_should_be = moved[0] == SIZE // MIB and moved[2] == -moved[1]
        # The second time all are made of what the first time gave back.
        as_it_should_be &= turn == 0 or moved[1] == 0
        good &= as_it_should_be
        print(
            f"{name:10} in use {moved[0]:+5} MiB, the pool's {moved[1]:+5} MiB, free on the device {moved[2]:+5} MiB"
            f"{'' if as_it_should_be else '  WRONG'}"
        )
    del arrays
    gc.collect()
    device.synchronize()
    # Numba names no stream: its memory is for all again when a wait for the device is over.
    pool.trim(keep=4096 * MIB)

print(pool.statistics())
print("as it should be" if good else "WRONG")
sys.exit(0 if good else 1)
