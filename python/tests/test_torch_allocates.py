"""PyTorch allocates with the memory manager of this package, through functions that the wheel exports."""

import catcher
import pytest
from allocating import CAPTURE, FAILS, of, python, run

TORCH = """
import torch, cuda_safe.torch
cuda_safe.torch.use()
allocate, delete = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
"""


@of("torch")
def test_pytorch_gets_memory_from_the_pool(device, library):
    run(
        [library],
        TORCH
        + """
before = used()
one, two = allocate(1000), allocate(3000)
assert used() - before == 4000 and two != one
delete(one)
assert used() - before == 3000
assert allocate(1000) == one
delete(one)
delete(two)
assert used() == before
# On one of PyTorch's own streams.
stream = torch.cuda.Stream()
handle = stream.cuda_stream
one = allocate(1000, 0, handle if """
        + repr(library.endswith("standin"))
        + """ else stream)
assert used() - before == 1000
delete(one)
assert used() == before
""",
    )


def test_frees_of_unknown_memory_are_reported(device):
    done = run(
        ["torch-standin"],
        TORCH
        + """
one = allocate(1000)
known = torch.cuda.memory.CUDAPluggableAllocator
import ctypes
library = ctypes.PyDLL(cuda_safe._native.__file__)
free = library.cuda_safe_torch_free
free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
free(None, 0, 0, None)
free(one + 512, 1000, 0, None)
delete(one)
free(one, 1000, 0, None)
record = library.cuda_safe_torch_record_stream
record.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
record(None, None)
record(one, None)
assert used() == 0
""",
    )
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and all("PyTorch freed 0x" in line for line in lines), lines


def test_memory_used_on_another_stream_is_reused_after_all_work(device):
    run(
        ["torch-standin"],
        TORCH
        + """
ours = torch.cuda.Stream().cuda_stream
one = allocate(1000, 0, ours)
# On the same stream, no wait is necessary.
torch.cuda.record_stream(one, ours)
delete(one)
assert allocate(1000, 0, ours) == one
torch.cuda.record_stream(one, 0)
delete(one)
assert allocate(1000, 0, ours) != one
# And a stream that is not registered.
foreign = cuda_safe.Stream()
two = allocate(1000, 0, foreign.handle)
del foreign
gc.collect()
delete(two)
cuda_safe.memory_manager().trim()
assert used() == 1000
assert cuda_safe.leaked() == 0
""",
    )


def test_frees_that_would_wait_are_deferred(device):
    run(
        ["torch-standin"],
        "cuda_safe.set_memory_manager('driver')"
        + TORCH
        + """
many = [allocate(1000) for _ in range(20)]
for one in many:
    delete(one)
# PyTorch frees tensors with the GIL held.
assert used() == 20000
one = allocate(1000)
assert used() == 1000
delete(one)
cuda_safe.memory_manager().trim()
assert used() == 0
""",
    )


@pytest.fixture(scope="session")
def catching(tmp_path_factory):
    """The environment with which PyTorch's stand-in allocates through C++."""
    library = catcher.build(tmp_path_factory.mktemp("catcher"))
    if library is None:
        pytest.skip("there is no compiler of C++ that links libstdc++.so.6")
    return {"CATCHER": str(library)}


def test_errors_are_thrown_through_the_wheel(device, catching):
    run(
        ["torch-standin"],
        "cuda_safe.set_memory_manager(limit=64 * MIB)"
        + TORCH
        + FAILS
        + """
for _ in range(3):
    fails(lambda: allocate(100 * MIB), "CUDA out of memory: tried to allocate 104857600 bytes", "limit")
    fails(lambda: allocate(100, 7), "cuda_safe: ", "no device 7")
    assert allocate(0) is None
    delete(allocate(100))
assert used() == 0
""",
        **catching,
    )


def without_thrower(program):
    """Runs a program in a process that has not loaded the C++ library."""
    loaded = """
with open("/proc/self/maps") as maps:
    assert "libstdc++" not in maps.read()
"""
    if "AssertionError" in python(["torch-standin"], TORCH + loaded).stderr:
        pytest.skip("something loads C++'s library into every Python here")
    return run(["torch-standin"], program)


def test_without_a_cpp_library_pytorch_gets_null_and_a_message(device):
    done = without_thrower(
        "cuda_safe.set_memory_manager(limit=64 * MIB)"
        + TORCH
        + """
assert allocate(0) is None
assert allocate(100 * MIB) is None
assert allocate(100, 7) is None
assert allocate(100) is not None
""",
    )
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and "CUDA out of memory" in lines[0] and "limit" in lines[0], lines
    assert "no device 7" in lines[1], lines


def test_pytorch_gets_no_memory_in_a_capture(device, catching):
    run(
        ["torch-standin"],
        TORCH
        + FAILS
        + CAPTURE
        + """
stream = torch.cuda.Stream().cuda_stream
one = allocate(1000, 0, stream)

def while_it_is():
    fails(lambda: allocate(1000, 0, stream), "the stream is capturing")
    delete(one)
    # Other streams are not affected, even if the driver is asked for memory.
    delete(allocate(100 * MIB))

capture(stream, while_it_is)
delete(allocate(1000, 0, stream))
cuda_safe.memory_manager().trim()
assert used() == 0
assert cuda_safe.leaked() == 0
""",
        **catching,
    )


def test_errors_are_pytorch_exceptions(device):
    run(
        ["torch"],
        "cuda_safe.set_memory_manager(limit=1024 * MIB)"
        + TORCH
        + FAILS
        + """
fails(lambda: torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda"), "CUDA out of memory", "limit")
tensor = torch.arange(1000, device="cuda")
assert int(tensor.sum()) == 499500
with torch.cuda.stream(torch.cuda.Stream()):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        fails(lambda: torch.empty(100, device="cuda"), "capturing")
    finally:
        try:
            graph.capture_end()
        except RuntimeError:
            pass
assert int((tensor * 2).sum()) == 999000
""",
    )
