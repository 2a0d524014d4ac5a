"""Numba, CuPy and PyTorch allocate with one memory manager."""

import pytest
from allocating import run

ALL = """
import numpy
from numba import cuda
import cupy, torch
import cuda_safe.cupy, cuda_safe.torch
cuda_safe.cupy.use()
cuda_safe.torch.use()
"""


@pytest.mark.parametrize(
    "libraries",
    [["numba-standin", "cupy-standin", "torch-standin"], ["numba", "cupy", "torch"]],
    ids=["standins", "libraries"],
)
def test_one_pool_serves_all_three(device, libraries):
    run(
        libraries,
        """
cuda_safe.set_memory_manager("caching", limit=1024 * MIB)
"""
        + (ALL if "numba" in libraries else ALL.replace("import numpy\n", ""))
        + """
manager = cuda_safe.memory_manager()
context = cuda.current_context()

def allocate(size):
    return [
        lambda: context.memalloc(size),
        lambda: cupy.cuda.alloc(size),
        lambda: torch.cuda.caching_allocator_alloc(size),
        lambda: cuda_safe.DeviceArray.empty(size, "u1"),
    ]

# This ensures that the pool has enough contiguous memory.
keep = manager._allocate(512 * MIB)
before = manager.statistics()
keep.close()
manager._allocate(1).close()
cuda_safe.Device(0).synchronize()
at = used()
memory = []
for call in allocate(16 * MIB):
    memory.append(call())
    at += 16 * MIB
    assert used() == at
addresses = sorted([
    int(memory[0].device_pointer), memory[1].ptr, memory[2], memory[3].address,
])
assert all(b - a >= 16 * MIB for a, b in zip(addresses, addresses[1:]))
torch.cuda.caching_allocator_delete(memory[2])
del memory
at -= 4 * 16 * MIB
assert used() == at
stats = manager.statistics()
assert stats.reserved <= 1024 * MIB
# Memory freed by one library is reused by another.
manager.trim()
one = context.memalloc(900 * MIB)
del one
gc.collect()
two = cupy.cuda.alloc(900 * MIB)
del two
three = torch.cuda.caching_allocator_alloc(900 * MIB)
torch.cuda.caching_allocator_delete(three)
assert used() == at
assert cuda_safe.leaked() == 0
""",
    )
