"""Numba, CuPy and PyTorch allocate from one pool, and reuse memory that another library has freed.

usage: pool.py

Each library allocates the same amount in turn. The pool's bytes in use grow by this amount, and the free
device memory shrinks only by what the pool reserves, so nothing is allocated outside of the pool. The exit
code is 77 if something that this example needs is missing.
"""

import gc
import os
import sys

MIB = 1 << 20
SIZE = 256 * MIB
MISSING = 77

# This must be set before Numba's first use of the device.
os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "cuda_safe.numba"


def missing(what):
    print(f"missing: {what}")
    sys.exit(MISSING)


try:
    import numpy

    # Versions of Numba from before NumPy 2.5 use this alias, which NumPy 2.5 has removed.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    import cupy
    import torch
    from numba import cuda

    if not torch.cuda.is_available():
        missing("a GPU that PyTorch can use")
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


def stats():
    """Returns the pool's bytes in use, its reserved bytes, and the free device memory in bytes."""
    gc.collect()
    its = pool.statistics()
    return its.used, its.reserved, device.memory_info().free


# This initializes the libraries, and the pool afterwards has enough memory.
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
        before = stats()
        arrays.append(allocate())
        after = stats()
        moved = [(its - was) // MIB for its, was in zip(after, before)]
        is_expected = moved[0] == SIZE // MIB and moved[2] == -moved[1]
        # The second round reuses the memory that the first one has freed.
        is_expected &= turn == 0 or moved[1] == 0
        good &= is_expected
        print(
            f"{name:10} in use {moved[0]:+5} MiB, reserved {moved[1]:+5} MiB, free on the device {moved[2]:+5} MiB"
            f"{'' if is_expected else '  WRONG'}"
        )
    del arrays
    gc.collect()
    device.synchronize()
    # Numba names no stream, so its memory can be reused after a wait for the device.
    pool.trim(keep=4096 * MIB)

print(pool.statistics())
print("as expected" if good else "WRONG")
sys.exit(0 if good else 1)
