"""CuPy allocates with the memory manager of this package."""

import pytest
from allocating import CAPTURE, of, run

CUPY = """
import cupy, cuda_safe.cupy
cuda_safe.cupy.use()
"""


@of("cupy")
def test_cupy_gets_stream_ordered_memory(device, library):
    run(
        [library],
        CUPY
        + """
one = cupy.cuda.alloc(1000)
assert used() == 1000 and one.mem.size == 1000
address = one.ptr
del one
assert used() == 0
# Reused immediately on the same stream, ...
assert cupy.cuda.alloc(1000).ptr == address
with cupy.cuda.Stream() as stream:
    two = cupy.cuda.alloc(1000)
    address = two.ptr
    del two
    assert cupy.cuda.alloc(1000).ptr == address
assert cuda_safe.memory_manager().statistics().slabs_added == 1
empty = cupy.cuda.alloc(0)
assert empty.ptr == 0 and empty.mem.size == 0
assert used() == 0
""",
    )


@of("cupy")
def test_external_streams_of_cupy_are_not_kept(device, library):
    run(
        [library],
        CUPY
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
ours = cuda_safe.Stream()
with cupy.cuda.ExternalStream(ours.handle):
    one = cupy.cuda.alloc(1000)
del ours
gc.collect()
del one
assert used() == 0
with cupy.cuda.Stream.ptds:
    one = cupy.cuda.alloc(1000)
del one
assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


def test_memory_keeps_its_cupy_stream_alive(device):
    run(
        ["cupy-standin"],
        CUPY
        + """
with cupy.cuda.Stream() as stream:
    one = cupy.cuda.alloc(1000)
handle = stream.ptr
del stream
def others():
    for _ in range(100):
        with cupy.cuda.Stream() as stream:
            cupy.cuda.alloc(1000)
    gc.collect()
others()
# Some of these streams have been removed, but not this one.
assert cupy.gone and handle not in cupy.gone
assert len(cuda_safe.cupy._streams) == 64
del one
others()
assert handle in cupy.gone
assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


def test_cupys_threads_allocate_at_once(device):
    run(
        ["cupy-standin"],
        CUPY
        + """
import threading
errors = []
def work():
    try:
        for _ in range(50):
            stream = cupy.cuda.Stream()
            for _ in range(5):
                cupy.cuda.alloc(1000)
    except Exception as why:
        errors.append(why)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert errors == [], errors
assert used() == 0
""",
    )


@of("cupy")
@pytest.mark.parametrize(
    "stream",
    ["cupy.cuda.Stream()", "cupy.cuda.ExternalStream(ours.handle)", "cupy.cuda.Stream.ptds"],
    ids=["stream", "external", "of-the-thread"],
)
def test_cupy_gets_no_memory_in_a_capture(device, library, stream):
    run(
        [library],
        CUPY
        + CAPTURE
        + f"""
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
ours = cuda_safe.Stream()
with {stream} as stream:
    one = cupy.cuda.alloc(1000)

    def while_it_is():
        global one
        for size in 1000, 1000, 20 * MIB:
            try:
                cupy.cuda.alloc(size)
            except cuda_safe.InvalidArgumentError as why:
                assert "graph" in str(why), why
            else:
                raise AssertionError
        del one
        assert used() == 0
        with cupy.cuda.Stream.null:
            cupy.cuda.alloc(100 * MIB)

    capture(stream.ptr, while_it_is)
    cupy.cuda.alloc(1000)
cuda_safe.memory_manager().trim()
assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )
