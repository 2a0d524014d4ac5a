"""Numba allocates with the memory manager of this package, through its plugin."""

import pytest
from allocating import of, run
from conftest import SIMULATED

NUMBA = """
from numba import cuda
context = cuda.current_context()
"""


@of("numba")
def test_numba_gets_device_memory_from_the_pool(device, library):
    run(
        [library],
        NUMBA
        + """
one = context.memalloc(1000)
assert used() == 1000
assert int(one.device_pointer) % 256 == 0 and one.size == 1000
part = one.view(100, 200)
assert int(part.device_pointer) == int(one.device_pointer) + 100
del one
assert used() == 1000
del part
assert used() == 0
# Deleting a view does not free its memory.
one = context.memalloc(1000)
one.view(0, 10)
assert used() == 1000
managed = context.memory_manager.memallocmanaged(1000, True)
assert used() == 1000
del managed, one
assert used() == 0
""",
    )


@of("numba")
def test_a_finalizer_after_reset_does_nothing(device, library):
    run(
        [library],
        "cuda_safe.set_memory_manager(limit=33 * MIB)"
        + NUMBA
        + """
keep = cuda_safe.MemoryManager._of()._allocate(5000)
early = context.memalloc(1000)
address = int(early.device_pointer)
context.reset()
assert used() == 5000
# Another allocation gets the address; a table by address would free it.
late = context.memalloc(1000)
assert int(late.device_pointer) == address
del early
assert used() == 6000
context.reset()
context.reset()
assert used() == 5000
del late
assert used() == 5000
assert context.memory_manager._device_memory == {}
""",
    )


@of("numba")
def test_memory_of_a_closed_context_is_not_reused(device, library):
    run(
        [library],
        """
if cuda_safe.driver_version() < (12, 0):
    print("done")
    raise SystemExit
"""
        + NUMBA
        + """
import ctypes
first = cuda_safe.memory_manager()
one = context.memalloc(1000)
part = one.view(10, 100)
kept = first._allocate_host(1000, False, False, False)
slabs_added = first.statistics().slabs_added
cuda.close()

context = cuda.current_context()
two = context.memalloc(1000)
# The memory is usable.
driver = standins.driver()
cuda.current_context()
assert driver.cuMemsetD8_v2(ctypes.c_uint64(int(two.device_pointer)), 1, ctypes.c_size_t(1000)) == 0
manager = cuda_safe.memory_manager()
assert manager != first and manager.statistics().slabs_added == 1
assert used() == 1000

# Memory of the old context is not returned, and none of it is reused.
freed = manager.statistics().freed
del one, part, kept
assert used() == 1000 and manager.statistics().freed == freed
for use in (
    lambda: first._allocate(1000),
    lambda: first._allocate_managed(1000, True),
    lambda: first._allocate_host(1000, False, False, False),
    lambda: first.statistics(),
    lambda: first.trim(),
):
    try:
        use()
    except cuda_safe.InvalidArgumentError as why:
        assert "was reset" in str(why)
    else:
        raise AssertionError
first._reset()
assert cuda_safe.DeviceArray.zeros(3).to_bytes() == bytes(24)

# No memory was in use.
del two
for _ in range(3):
    cuda.close()
    one = cuda.current_context().memalloc(1000)
    assert used() == 1000
    del one
    assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


@of("numba")
def test_arrays_and_streams_of_a_closed_context_are_refused(device, library):
    run(
        [library],
        """
if cuda_safe.driver_version() < (12, 0):
    print("done")
    raise SystemExit
"""
        + NUMBA
        + """
import ctypes
from types import SimpleNamespace
handle = ctypes.c_void_p()
assert standins.driver().cuStreamCreate(ctypes.byref(handle), 1) == 0
memory = context.memalloc(1000)
interface = {
    "shape": (10,), "typestr": "<f4", "data": (int(memory.device_pointer), False), "version": 3,
    "stream": handle.value,
}
theirs = SimpleNamespace(__cuda_array_interface__=interface, memory=memory)
array, stream = cuda_safe.as_cuda_array(theirs), cuda_safe.Stream.from_handle(handle.value)
array.fill(0)
stream.synchronize()
cuda.close()

def refused(use):
    try:
        use()
    except cuda_safe.InvalidArgumentError as why:
        assert "was reset" in str(why)
    else:
        raise AssertionError

for use in array.copy_to_host, array.synchronize, lambda: array.fill(1), lambda: array.stream:
    refused(use)
for use in stream.synchronize, stream.record_event, lambda: stream.is_complete:
    refused(use)
refused(lambda: cuda_safe.DeviceArray.zeros(3, stream=stream))
# The next context is not affected.
memory = cuda.current_context().memalloc(1000)
del array, stream, theirs, memory
assert used() == 0 and cuda_safe.leaked() == 0
""",
    )


@pytest.mark.skipif(not SIMULATED, reason="needs a driver before CUDA 12.0")
def test_reset_warns_if_the_driver_does_not_report_it(device):
    done = run(
        ["numba-standin"],
        NUMBA
        + """
assert cuda_safe.Context.primary().id is None
one = context.memalloc(1000)
context.reset()
one = context.memalloc(1000)
part = one.view(10, 100)
print("now", file=sys.stderr)
context.reset()
""",
        CUDA_SIM="h200@11.8",
    )
    before, after = done.stderr.split("now\n")
    assert "RuntimeWarning" not in before
    assert "RuntimeWarning" in after and "still in use" in after, after


@of("numba")
def test_numbas_manager_takes_calls_in_any_order(device, library):
    run(
        [library],
        NUMBA
        + """
from cuda_safe.numba import MemoryManager
one = context.memalloc(1000)
other = MemoryManager(context=context)
other.reset()
for _ in range(3):
    other.initialize()
two = other.memalloc(1000)
other.initialize()
assert used() == 2000
other.reset()
# Memory of another manager is not affected.
assert used() == 1000
assert MemoryManager(context=None).interface_version == 1
del two, other
assert used() == 1000
try:
    MemoryManager()
except RuntimeError:
    pass
else:
    raise AssertionError
""",
    )


@of("numba")
def test_numbas_host_memory_is_freed_with_its_last_user(device, library):
    run(
        [library],
        NUMBA
        + """
import ctypes, weakref
manager = context.memory_manager
one = context.memhostalloc(1000, mapped=True)
other = context.memhostalloc(1000, portable=True, wc=True)
for some in one, other:
    ctypes.memset(int(some.host_pointer), 7, 1000)
assert int(one.device_pointer)
part = one.view(10, 20)
# Code that writes to host memory must not write to memory of another owner.
context.reset()
assert manager._host_memory
ctypes.memset(int(one.host_pointer), 8, 1000)
del one
assert manager._host_memory
del part
gc.collect()
assert manager._host_memory == {}
del other

class Owner:
    def __init__(self):
        self.memory = ctypes.create_string_buffer(1 << 16)

for mapped in False, True:
    owner = Owner()
    gone = weakref.ref(owner)
    pinned = manager.mempin(owner, ctypes.addressof(owner.memory), 1 << 16, mapped)
    del owner
    gc.collect()
    assert gone() is not None
    del pinned
    manager.reset()
    gc.collect()
    assert gone() is None
assert cuda_safe.leaked() == 0
""",
    )


@of("numba")
def test_numba_gets_the_memory_info(device, library):
    run(
        [library],
        "cuda_safe.set_memory_manager('caching', limit=256 * MIB)"
        + NUMBA
        + """
info = context.get_memory_info()
assert type(info) is cuda.MemoryInfo
assert info.total == 256 * MIB and info.free == 256 * MIB
one = context.memalloc(100 * MIB)
assert context.get_memory_info().free == 156 * MIB
# Freed memory counts as free, although the pool caches it.
del one
gc.collect()
assert context.get_memory_info().free == 256 * MIB
try:
    context.memalloc(300 * MIB)
except MemoryError as why:
    assert "limit" in str(why)
else:
    raise AssertionError
one = context.memalloc(1000)
del one
gc.collect()
manager = context.memory_manager
with manager.defer_cleanup():
    with manager.defer_cleanup():
        assert cuda_safe.memory_manager().trim() == 0
assert cuda_safe.memory_manager().trim() > 0
""",
    )


@of("numba")
def test_numbas_ipc_handles_have_the_offset(device, library):
    run(
        [library],
        NUMBA
        + """
import pickle
one, two = context.memalloc(1000), context.memalloc(2000)
handle = context.get_ipc_handle(two.view(100, 300))
assert handle.size == 200
base = context.get_ipc_handle(one)
distance = int(two.device_pointer) + 100 - int(one.device_pointer)
assert handle.offset - base.offset == distance
assert handle.source_info == context.device.get_device_identity()
# The handle keeps the memory alive.
del two
assert used() == 3000
del handle
assert used() == 1000
"""
        + (
            ""
            if library.endswith("standin")
            else """
sent = pickle.loads(pickle.dumps(base))
assert (sent.base, sent.size, sent.offset) == (None, base.size, base.offset)
assert sent.source_info == base.source_info
"""
        ),
    )


@of("numba")
def test_numbas_memory_stays_until_exit(device, library):
    run(
        [library],
        """
import atexit, ctypes
# The first registered function runs last, after all finalizers.
atexit.register(lambda: late())
"""
        + NUMBA
        + """
keep = [context.memalloc(1000), context.memhostalloc(1000, mapped=True), context.memhostalloc(1000)]
context.reset()
keep.append(context.memalloc(1000))
circle = [context.memalloc(1000)]
circle.append(circle)
freed = cuda_safe.memory_manager().statistics().freed

def late():
    # NumPy does this with an array over the memory.
    for host in keep[1:3]:
        ctypes.memset(int(host.host_pointer), 7, 1000)
    assert cuda_safe.memory_manager().statistics().freed == freed
""",
    )


@pytest.mark.skipif(SIMULATED, reason="other processes have another software driver")
def test_another_process_opens_memory_of_numbas(device, tmp_path):
    given = tmp_path / "handle"
    run(
        ["numba"],
        NUMBA
        + f"""
import numpy, pickle, subprocess, sys
array = cuda.to_device(numpy.arange(100))
part = array[10:20]
with open({str(given)!r}, "wb") as file:
    file.write(pickle.dumps(part.get_ipc_handle()))
program = '''
import numpy, pickle, sys
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda
cuda.current_context()
with pickle.load(open(sys.argv[1], "rb")) as array:
    assert array.copy_to_host().tolist() == list(range(10, 20))
    array[:] = 7
    cuda.synchronize()
'''
subprocess.run([sys.executable, "-c", program, {str(given)!r}], check=True)
assert array.copy_to_host().tolist() == [*range(10), *[7] * 10, *range(20, 100)]
""",
    )


def test_losses_of_the_numba_suite():
    pytest.importorskip("numpy")
    program = """
import json, numba_suite as suite
one = "passed"
own = {"a": one, "b": one, "c": one, "d": one, "e": one, "f": "failed"}
assert suite.losses(own, {"a": one, "b": "failed", "c": "skipped", "d": "external"}) == ["b", "c", "e"]
suite.importlib.util.find_spec = lambda name: True
for own, ours, code in [
    ({"a": one}, {"a": one}, 0),
    ({"a": one, "b": one}, {"a": one, "b": "external"}, 0),
    ({"a": one, "b": one}, {"a": one, "b": "skipped"}, 1),
    ({}, {"a": one}, 1),
    ({"a": one}, {}, 1),
]:
    both = {"default": own, "cuda_safe.numba": ours}
    # It runs together with a module without losses.
    suite.run = lambda module, manager: ({"z": one} if module == "well" else both[manager], "", 0)
    assert suite.main(["well", "module"]) == code, (own, ours)
"""
    run([], program)


def test_numba_refuses_another_version(device):
    run(
        ["numba"],
        """
from numba import cuda
from cuda_safe.numba import MemoryManager

class Other(MemoryManager):
    @property
    def interface_version(self):
        return 2

try:
    cuda.set_memory_manager(Other)
except RuntimeError as why:
    assert "version 1 required" in str(why)
else:
    raise AssertionError
""",
    )
