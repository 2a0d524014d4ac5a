"""Memory managers: the choice, statistics, and lifetimes.

A choice holds for a process, so each test runs in its own process.
"""

import sys

import pytest

import cuda_safe

START = """
import gc
import cuda_safe
from cuda_safe import CudaError, DeviceArray, Device, InvalidArgumentError, OutOfMemoryError, Stream

def refuses(call, *words, kind=InvalidArgumentError):
    try:
        call()
    except kind as why:
        assert all(word in str(why) for word in words), why
    else:
        raise AssertionError("the call was not refused")

MIB = 1 << 20
"""


@pytest.fixture
def run(device, run_python):
    """Runs a program that chooses a memory manager."""
    return lambda program, **options: run_python(START + program + "\nprint('done')\n", **options)


def test_without_a_choice_the_driver_allocates(run):
    run(
        """
assert cuda_safe.memory_manager() is None
array = DeviceArray.zeros(100)
assert cuda_safe.memory_manager() is None
refuses(lambda: cuda_safe.MemoryManager._of(0), "device 0", "without a memory manager")
"""
    )


@pytest.mark.parametrize("kind", ["caching", "ordered", "driver"])
def test_arrays_use_the_chosen_manager(run, kind):
    run(
        f"""
cuda_safe.set_memory_manager({kind!r}, limit=64 * MIB)
manager = cuda_safe.memory_manager()
assert manager == cuda_safe.memory_manager(0) == cuda_safe.memory_manager(Device(0))
assert (manager.kind, manager.limit, manager.device) == ({kind!r}, 64 * MIB, Device(0))
array = DeviceArray.full(MIB, 7, "u1")
before = manager.statistics()
assert (before.used, before.allocated, before.freed, before.failed) == (MIB, 1, 0, 0)
info = manager.memory_info()
assert info.total == 64 * MIB and info.free <= 63 * MIB
# The limit applies to bytes in use, or to the pool's reserved bytes.
refuses(lambda: DeviceArray.empty(65 * MIB, "u1"), "limit", kind=OutOfMemoryError)
assert manager.statistics().failed == 1
assert array[:3].copy_to_host().tolist() == [7] * 3
del array
gc.collect()
after = manager.statistics()
assert (after.used, after.used_peak, after.freed) == (0, MIB, 1)
manager.trim()
assert manager.statistics().cached == 0
assert cuda_safe.leaked() == 0
"""
    )


def test_a_pool_reuses_memory(run):
    run(
        """
cuda_safe.set_memory_manager()
manager = cuda_safe.memory_manager()
stream = Stream()
first = DeviceArray.empty(MIB, "u1", stream=stream)
address = first.address
del first
for _ in range(10):
    assert DeviceArray.empty(MIB, "u1", stream=stream).address == address
stats = manager.statistics()
assert (stats.slabs_added, stats.allocated, stats.used) == (1, 11, 0)
assert stats.hits == 10
assert manager.trim(stats.reserved) == 0
assert manager.trim() == stats.reserved == stats.cached
assert manager.statistics().reserved == 0
"""
    )


def test_cleanup_is_deferred_in_nested_blocks(run):
    run(
        """
cuda_safe.set_memory_manager("driver")
manager = cuda_safe.memory_manager()
def work():
    for _ in range(20):
        manager._allocate(1000).close()
with manager.defer_cleanup():
    with manager.defer_cleanup():
        work()
    assert manager.statistics().cached == 20000
    assert manager.trim() == 0
# The end of the block itself does nothing.
assert manager.statistics().cached == 20000
manager._allocate(1000).close()
assert manager.statistics().cached == 0
"""
    )


def test_a_choice_holds(run):
    run(
        """
refuses(lambda: cuda_safe.set_memory_manager("pool"), "pool", "caching", "ordered", "driver")
refuses(lambda: cuda_safe.set_memory_manager(limit=0), "limit")
cuda_safe.set_memory_manager("driver")
cuda_safe.set_memory_manager("ordered", limit=100 * MIB)
Device(0).context
cuda_safe.set_memory_manager("ordered", limit=100 * MIB)
# A later choice applies to devices that are used later.
cuda_safe.set_memory_manager()
assert cuda_safe.memory_manager().kind == "ordered"
assert cuda_safe.memory_manager().limit == 100 * MIB
"""
    )


def test_memory_of_libraries_is_freed_once(run):
    run(
        """
manager = cuda_safe.MemoryManager._of()
assert manager.kind == "caching"
memory = manager._allocate(1000)
assert memory.size == 1000 and memory.address % 256 == 0
memory.close()
memory.close()
other = manager._allocate(1000, Stream())
assert other.id != memory.id
managed = manager._allocate_managed(1000, True)
host = manager._allocate_host(1000, True, True, True)
plain = manager._allocate_host(1000, False, False, False)
for some in managed, host, plain:
    assert some.size == 1000 and some.id not in (memory.id, other.id)
    some.close()
    some.close()
stats = manager.statistics()
assert (stats.allocated, stats.freed, stats.used) == (2, 1, 1000)
refuses(lambda: manager._allocate(0), kind=CudaError)
del other
assert manager.statistics().used == 0
assert cuda_safe.leaked() == 0
"""
    )


def test_pinned_memory_keeps_its_owner(run):
    run(
        """
import ctypes, weakref

class Owner:
    def __init__(self):
        self.memory = ctypes.create_string_buffer(1 << 16)

manager = cuda_safe.MemoryManager._of()
for mapped in False, True:
    owner = Owner()
    gone = weakref.ref(owner)
    address = ctypes.addressof(owner.memory)
    pinned = manager._pin(owner, address, 1 << 16, mapped)
    assert pinned.address == address
    del owner
    gc.collect()
    assert gone() is not None
    pinned.close()
    manager._reset()
    gc.collect()
    assert gone() is None
refuses(lambda: manager._pin(None, 0, 100, False), "cannot pin memory")
refuses(lambda: manager._pin(None, 1 << 12, 0, False), "cannot pin memory")
"""
    )


def test_an_ipc_handle_has_the_offset(run):
    run(
        """
manager = cuda_safe.MemoryManager._of()
one, two = manager._allocate(1000), manager._allocate(1000)
handles = [manager._ipc_handle(its.address, its.size) for its in (one, two)]
# Both are in one driver allocation.
assert handles[0][0] == handles[1][0] and len(handles[0][0]) == 64
assert handles[1][1] - handles[0][1] == two.address - one.address
inside = manager._ipc_handle(two.address + 100, 10)
assert inside == (handles[1][0], handles[1][1] + 100)
refuses(lambda: manager._ipc_handle(12345, 10), kind=CudaError)
"""
    )


def test_a_stream_of_another_library_keeps_its_order(run):
    run(
        """
import weakref

class Theirs:
    def __init__(self):
        self.stream = Stream()
    def __cuda_stream__(self):
        return 0, self.stream.handle

manager = cuda_safe.MemoryManager._of()
theirs = Theirs()
gone = weakref.ref(theirs)
stream = Stream.from_object(theirs)
memory = manager._allocate(1000, stream)
address = memory.address
memory.close()
memory = manager._allocate(1000, stream)
assert memory.address == address
del theirs, stream
gc.collect()
# The memory is still ordered on this stream.
assert gone() is not None
del memory
gc.collect()
assert gone() is None
# There is one legacy default stream, but one per-thread default stream for each thread.
for default in Stream.legacy(), Stream.per_thread():
    manager._allocate(1000, default).close()
closed = Stream()
closed.close()
refuses(lambda: manager._allocate(1000, closed), "closed", kind=cuda_safe.ClosedError)
"""
    )


def test_threads_allocate_and_free_concurrently(run):
    run(
        """
import random, threading

cuda_safe.set_memory_manager("caching", limit=512 * MIB)
manager = cuda_safe.memory_manager()
shared, errors = [], []
streams = [None, Stream(), Stream(), Stream.legacy()]

def work(seed):
    its = random.Random(seed)
    try:
        for _ in range(400):
            shared.append(manager._allocate(its.randrange(1, MIB), its.choice(streams)))
            if its.random() < 0.5:
                try:
                    shared.pop(its.randrange(len(shared))).close()
                except (IndexError, ValueError):
                    pass
            if its.random() < 0.01:
                manager.trim()
            if its.random() < 0.01:
                with manager.defer_cleanup():
                    manager.statistics()
            if len(shared) > 50:
                shared.clear()
    except Exception as why:
        errors.append(why)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert errors == [], errors
shared.clear()
assert manager.statistics().used == 0
assert manager.trim() > 0
assert cuda_safe.leaked() == 0
"""
    )


def test_memory_may_be_in_use_at_exit(run):
    run(
        """
import threading, time

manager = cuda_safe.MemoryManager._of()
keep = [manager._allocate(1000), manager._allocate_host(1000, True, False, False)]
class Late:
    def __init__(self, memory):
        self.memory = memory
    def __del__(self):
        self.memory.close()
late = Late(manager._allocate(1000))
def work():
    while True:
        manager._allocate(1000).close()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""
    )


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork")
def test_a_forked_child_gets_exceptions_and_frees_nothing(run):
    run(
        """
import os, warnings

warnings.simplefilter("ignore", DeprecationWarning)
manager = cuda_safe.MemoryManager._of()
memory = manager._allocate(1000)
child = os.fork()
if child == 0:
    try:
        refuses(lambda: manager._allocate(1000), kind=cuda_safe.ForkedError)
        refuses(manager.statistics, kind=cuda_safe.ForkedError)
        memory.close()
        gc.collect()
        os._exit(0)
    except BaseException as why:
        os.write(2, repr(why).encode())
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
memory.close()
assert manager.statistics().used == 0
"""
    )


def test_importing_the_package_imports_no_other(run_python):
    run_python(
        """
import sys
import cuda_safe
assert not {"numba", "cupy", "torch", "numpy"} & set(sys.modules)
print("done")
"""
    )


@pytest.mark.parametrize("library", ["numba", "cupy", "torch"])
def test_only_the_module_of_a_missing_library_fails(run_python, library):
    run_python(
        f"""
import sys
sys.modules[{library!r}] = None
import cuda_safe
try:
    __import__("cuda_safe.{library}")
except ImportError as why:
    assert {library!r} in str(why)
print("done")
"""
    )


def test_the_exceptions_are_those_of_python():
    assert issubclass(cuda_safe.OutOfMemoryError, MemoryError)
    assert sys.version_info >= (3, 10)
