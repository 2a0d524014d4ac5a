"""Memory managers that are written in Python.

A choice holds for a process, so each test runs in its own process.
"""

import os
import sys

import pytest

import cuda_safe

START = """
import ctypes, gc, os, sys, threading, weakref
import cuda_safe
from cuda_safe import CudaError, DeviceArray, Device, InvalidArgumentError, Stream
from cuda_safe.plugin import BaseMemoryManager, MappedMemory, MemoryPointer, PinnedMemory

def raises(kind, call, *words):
    try:
        call()
    except kind as why:
        assert all(word in str(why) for word in words), why
        return why
    raise AssertionError("no exception was raised")

library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))

def check(code):
    if code != 0:
        raise MemoryError(f"the driver answered {code}")

def current():
    context = ctypes.c_void_p()
    check(library.cuCtxGetCurrent(ctypes.byref(context)))
    return context.value

calls = []
owners = []
finalized = []
made = []

class Manager(BaseMemoryManager):
    '''Memory of the driver, by a library that allocates in the current context.'''

    interface_version = 1

    def __init__(self, *, context):
        super().__init__(context=context)
        self.serial = 0
        if context is not None:
            made.append(self)

    def note(self, *call):
        assert current() == self.context.handle, "the context is not current"
        calls.append(call)

    def initialize(self):
        self.note("initialize")

    def reset(self):
        self.note("reset")

    def device(self, size, allocate, *flags):
        address = ctypes.c_uint64()
        check(allocate(ctypes.byref(address), ctypes.c_size_t(size), *flags))
        serial = self.serial = self.serial + 1
        def finalize():
            assert current() == self.context.handle, "the context is not current"
            finalized.append(serial)
            check(library.cuMemFree_v2(address))
        return MemoryPointer(self.context, address.value, size, finalizer=finalize)

    def memalloc(self, size):
        self.note("memalloc", size)
        return self.device(size, library.cuMemAlloc_v2)

    def memallocmanaged(self, size, attach_global):
        self.note("memallocmanaged", size, attach_global)
        return self.device(size, library.cuMemAllocManaged, 1 if attach_global else 2)

    def memhostalloc(self, size, mapped, portable, wc):
        self.note("memhostalloc", size, mapped, portable, wc)
        start = ctypes.c_void_p()
        flags = (1 if portable else 0) | (2 if mapped else 0) | (4 if wc else 0)
        check(library.cuMemHostAlloc(ctypes.byref(start), ctypes.c_size_t(size), flags))
        kind = MappedMemory if mapped else PinnedMemory
        def finalize():
            finalized.append("host")
            check(library.cuMemFreeHost(start))
        return kind(self.context, start.value, size, finalizer=finalize)

    def mempin(self, owner, pointer, size, mapped):
        self.note("mempin", size, mapped)
        owners.append(weakref.ref(owner))
        start = ctypes.c_void_p(pointer)
        check(library.cuMemHostRegister_v2(start, ctypes.c_size_t(size), 2 if mapped else 0))
        kind = MappedMemory if mapped else PinnedMemory
        def finalize():
            finalized.append("pin")
            check(library.cuMemHostUnregister(start))
        return kind(self.context, pointer, size, owner=owner, finalizer=finalize)

    def get_memory_info(self):
        self.note("get_memory_info")
        return 7, 70

    def get_ipc_handle(self, memory):
        self.note("get_ipc_handle", memory.size)
        class Handle:
            handle = (ctypes.c_byte * 64)(*range(64))
            offset = 512
        return Handle

    def defer_cleanup(self):
        self.note("defer_cleanup")
        class Block:
            def __enter__(self):
                calls.append("enter")
            def __exit__(self, *exception):
                assert exception == (None, None, None)
                calls.append("exit")
        return Block()

def named(name):
    return [call for call in calls if call[0] == name]

MIB = 1 << 20
"""


# The modules in this folder can be imported.
PATH = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])


@pytest.fixture
def run(device, run_python):
    """Runs a program that has a memory manager."""
    return lambda program, **options: run_python(START + program + "\nprint('done')\n", **options)


def test_arrays_use_a_manager_written_in_python(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
assert calls == []
array = DeviceArray.full(MIB, 7, "u1")
manager = cuda_safe.memory_manager()
assert (manager.kind, manager.limit) == ("plugin", None)
assert [manager.plugin] == made and isinstance(manager.plugin, Manager)
assert manager.plugin.context == Device(0).context
# Called before the first allocation, and with the number of bytes.
assert calls == [("initialize",), ("memalloc", MIB)], calls
assert array.copy_to_host()[:3].tolist() == [7] * 3
stats = manager.statistics()
assert (stats.used, stats.allocated, stats.freed, stats.reserved) == (MIB, 1, 0, None)
assert manager.memory_info() == (7, 70)
# A view keeps the memory alive.
view = array[10:]
del array
gc.collect()
assert finalized == []
view.fill(1)
del view
manager.trim()
assert finalized == [1]
assert manager.statistics().used == 0
# An empty array needs no allocation.
DeviceArray.zeros(0)
assert len(named("memalloc")) == 1
assert cuda_safe.leaked() == 0
"""
    )


def test_each_device_has_its_own_instance(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
for device in Device.all():
    with device:
        DeviceArray.zeros(3)
    assert cuda_safe.memory_manager(device).plugin.context == device.context
assert len({id(manager) for manager in made}) == len(made) == Device.count()
"""
    )


def test_memory_is_finalized_after_the_work_that_uses_it(run):
    """With the software driver, work runs as late as possible, and freed memory that is still used is
    reported."""
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.memory_manager()
streams = [Stream(), Stream(), None]
expected = DeviceArray.zeros(1000, "i4")
for number in range(30):
    stream = streams[number % 3]
    array = DeviceArray.full(1000, number, "i4", stream=stream)
    array.fill(-number)
    copy = array.copy()
    expected.copy_from(copy)
    del array, copy
    assert manager.statistics().cached <= 11 * 4000
    assert (expected.copy_to_host() == -number).all()
manager.trim()
# Each finalizer runs once.
assert sorted(finalized) == list(range(2, 62)), finalized
assert manager.statistics().cached == 0 and cuda_safe.leaked() == 0
"""
    )


def test_a_pool_reuses_memory_only_after_the_work_that_used_it(run):
    """The finalizer does not wait, so the package must. With the software driver, work runs as late as
    possible: memory that is freed too early would be overwritten."""
    run(
        """
class Pool(Manager):
    def __init__(self, *, context):
        super().__init__(context=context)
        self.free, self.keep = [], []

    def memalloc(self, size):
        assert size == 4000
        if not self.free:
            self.keep.append(self.device(size, library.cuMemAlloc_v2))
            self.free.append(self.keep[-1].device_pointer)
        address = self.free.pop()
        return MemoryPointer(self.context, address, size, finalizer=lambda: self.free.append(address))

cuda_safe.set_memory_manager(Pool)
manager = cuda_safe.memory_manager()
old, new = Stream(), Stream()
for number in range(1, 30):
    used = DeviceArray.full(1000, -number, "i4", stream=old)
    used.fill(-number)
    del used
    array = DeviceArray.full(1000, number, "i4", stream=new)
    new.synchronize()
    old.synchronize()
    assert (array.copy_to_host() == number).all()
    del array
manager.trim()
assert len(manager.plugin.free) == len(manager.plugin.keep) <= 12
# Without a stream, the free waits for the work of all streams.
for number in range(1, 30):
    memory = [manager._allocate(4000) for _ in range(12)]
    for its in memory:
        array = cuda_safe.from_cuda_array_interface(
            dict(shape=(1000,), typestr="<i4", data=(its.address, False), version=3, stream=old.handle)
        )
        array.fill(-number)
    for its in memory:
        its.close()
    array = DeviceArray.full(1000, number, "i4", stream=new)
    new.synchronize()
    old.synchronize()
    assert (array.copy_to_host() == number).all()
    del array
"""
    )


def test_memory_without_a_stream_is_finalized_in_batches(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.MemoryManager._of()
for number in range(10):
    manager._allocate(1000).close()
    assert finalized == [] and manager.statistics().cached == 1000 * (number + 1)
# The package waits if more than ten frees are pending.
manager._allocate(1000).close()
assert sorted(finalized) == list(range(1, 12)) and manager.statistics().cached == 0
memory = manager._allocate(1000)
memory.close()
memory.close()
assert manager.trim(1000) == 0 and len(finalized) == 11
assert manager.trim() == 1000 and len(finalized) == 12
del memory
# It also waits if more than a fifth of the device's memory is pending; none of it is used here.
fifth = Device(0).total_memory // 5
Manager.memalloc = lambda self, size: vars(memory := self.device(4096, library.cuMemAlloc_v2)).update(
    size=size
) or memory
manager._allocate(fifth - 1000).close()
assert len(finalized) == 12
manager._allocate(2000).close()
assert len(finalized) == 14
"""
    )


def test_memory_of_an_idle_stream_is_finalized_immediately(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
array = DeviceArray.zeros(1000)
array.synchronize()
del array
gc.collect()
assert finalized == [1]
"""
    )


def test_a_guard_defers_frees_that_would_wait(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.MemoryManager._of()
with manager.defer_cleanup():
    assert calls[-1] == "enter"
    with manager.defer_cleanup():
        for _ in range(20):
            manager._allocate(1000).close()
    assert manager.trim() == 0 and finalized == []
    assert manager.statistics().cached == 20000
assert calls.count("enter") == calls.count("exit") == 2
assert finalized == []
manager._allocate(1000).close()
assert len(finalized) == 21
# The exception of a method is raised by the call.
Manager.defer_cleanup = lambda self: [].pop()
raises(IndexError, manager.defer_cleanup)
manager._allocate(1000).close()
assert manager.trim() == 1000
"""
    )


def test_exceptions_are_passed_on_unchanged(run):
    run(
        """
class Mine(Exception):
    pass

class Fails(Manager):
    fails = None
    def memalloc(self, size):
        if self.fails:
            raise self.fails
        return super().memalloc(size)
    def get_memory_info(self):
        raise NotImplementedError("nobody counts")
    def memhostalloc(self, size, mapped, portable, wc):
        raise Mine(size)

cuda_safe.set_memory_manager(Fails)
array = DeviceArray.zeros(3)
manager = cuda_safe.memory_manager()
for error in (Mine("why"), KeyError(3), KeyboardInterrupt(), cuda_safe.ClosedError("it")):
    Fails.fails = error
    why = raises(type(error), lambda: DeviceArray.zeros(3))
    # The traceback shows where it was raised.
    assert why is error and why.__traceback__.tb_next is not None
    assert "memalloc" in [its.name for its in __import__("traceback").extract_tb(why.__traceback__)]
Fails.fails = None
raises(NotImplementedError, manager.memory_info, "nobody counts")
raises(Mine, lambda: manager._allocate_host(1000, False, False, False), "1000")
assert manager.statistics().failed == 4
DeviceArray.zeros(3)
"""
    )


def test_a_failed_creation_is_tried_again(run):
    run(
        """
class New(Manager):
    fails = "made"
    def __init__(self, *, context):
        if context is not None and self.fails == "made":
            raise LookupError("cannot be made")
        super().__init__(context=context)
    def initialize(self):
        if self.fails == "initialized":
            raise LookupError("cannot be initialized")
        super().initialize()

cuda_safe.set_memory_manager(New)
raises(LookupError, lambda: DeviceArray.zeros(3), "cannot be made")
New.fails = "initialized"
raises(LookupError, lambda: DeviceArray.zeros(3), "cannot be initialized")
New.fails = None
DeviceArray.zeros(3)
assert len(made) == 2 and cuda_safe.memory_manager().plugin is made[1]
"""
    )


def test_insufficient_memory_finishes_pending_frees_and_tries_again(run):
    run(
        """
class Little(Manager):
    code = None
    def memalloc(self, size):
        if len(named("memalloc")) - len(finalized) > 5:
            calls.append(("refused",))
            if self.code is not None:
                error = RuntimeError("an exception of Numba's")
                error.code = self.code
                raise error
            raise MemoryError("out of memory")
        return super().memalloc(size)

cuda_safe.set_memory_manager(Little)
manager = cuda_safe.MemoryManager._of()
for code in (None, 2):
    Little.code = code
    for _ in range(20):
        manager._allocate(1000).close()
assert len(named("refused")) >= 4
keep = [manager._allocate(1000) for _ in range(6)]
raises(RuntimeError, lambda: manager._allocate(1000), "Numba")
Little.code = None
raises(MemoryError, lambda: manager._allocate(1000), "out of memory")
assert type(raises(MemoryError, lambda: DeviceArray.zeros(3))) is MemoryError
# Other errors do not mean insufficient memory.
Little.code = 1
keep.pop().close()
before = len(named("refused"))
Little.memalloc = lambda self, size: (calls.append(("refused",)), [].pop())
raises(IndexError, lambda: manager._allocate(1000))
assert len(named("refused")) == before + 1 and manager.statistics().cached == 1000
"""
    )


def test_host_and_managed_memory_use_the_manager(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.MemoryManager._of()
managed = [manager._allocate_managed(1000, is_global) for is_global in (True, False)]
assert named("memallocmanaged") == [("memallocmanaged", 1000, True), ("memallocmanaged", 1000, False)]
assert cuda_safe.pointer_attributes(managed[0].address).managed
hosts = []
for flags in [(False, False, False), (True, False, False), (False, True, False), (True, True, True)]:
    host = manager._allocate_host(1000, *flags)
    assert calls[-1] == ("memhostalloc", 1000, *flags)
    assert cuda_safe.pointer_attributes(host.address).memory_type == "host"
    ctypes.memset(host.address, 1, 1000)
    hosts.append(host)
for memory in managed + hosts:
    memory.close()
    memory.close()
manager.trim()
assert finalized.count("host") == 4 and sorted(its for its in finalized if its != "host") == [1, 2]

class Owner:
    def __init__(self):
        self.memory = ctypes.create_string_buffer(1 << 16)

for mapped in False, True:
    owner = Owner()
    gone = weakref.ref(owner)
    address = ctypes.addressof(owner.memory)
    pinned = manager._pin(owner, address, 1 << 16, mapped)
    assert pinned.address == address and calls[-1] == ("mempin", 1 << 16, mapped)
    assert owners.pop()() is owner
    del owner
    pinned.close()
    assert gone() is not None or "pin" in finalized
    manager.trim()
    gc.collect()
    assert gone() is None
assert finalized.count("pin") == 2 and cuda_safe.leaked() == 0
"""
    )


def test_the_driver_replaces_missing_methods(run):
    run(
        """
class Device_(BaseMemoryManager):
    interface_version = 1
    memalloc = Manager.memalloc
    device = Manager.device
    note = Manager.note
    serial = 0

cuda_safe.set_memory_manager(Device_, limit=MIB)
manager = cuda_safe.MemoryManager._of()
assert manager.limit == MIB
array = DeviceArray.zeros(1000)
raises(cuda_safe.OutOfMemoryError, lambda: DeviceArray.zeros(MIB), "limit")
host = manager._allocate_host(1000, True, True, True)
managed = manager._allocate_managed(1000, True)
memory = ctypes.create_string_buffer(1 << 16)
pinned = manager._pin(memory, ctypes.addressof(memory), 1 << 16, True)
raises(NotImplementedError, manager.memory_info, "get_memory_info")
with manager.defer_cleanup():
    host.close()
handle, offset = manager._ipc_handle(array.address, 1000)
assert len(handle) == 64
for its in (managed, pinned):
    its.close()
manager._reset()
assert named("memalloc") == calls and cuda_safe.leaked() == 0
"""
    )


def test_methods_of_the_base_class_do_what_the_package_does(run):
    run(
        """
class Device_(BaseMemoryManager):
    interface_version = 1
    memalloc = Manager.memalloc
    device = Manager.device
    note = Manager.note
    serial = 0

class Calling(Device_):
    def initialize(self):
        self.note("initialize")
        super().initialize()
    def reset(self):
        self.note("reset")
        super().reset()
    def defer_cleanup(self):
        self.note("defer_cleanup")
        return super().defer_cleanup()
    def memhostalloc(self, size, mapped, portable, wc):
        self.note("memhostalloc", size, mapped, portable, wc)
        memory = super().memhostalloc(size, mapped, portable, wc)
        assert isinstance(memory, MappedMemory if mapped else PinnedMemory) and memory.size == size
        return self.seen(memory)
    def mempin(self, owner, pointer, size, mapped):
        self.note("mempin", size, mapped)
        memory = super().mempin(owner, pointer, size, mapped)
        assert isinstance(memory, MappedMemory if mapped else PinnedMemory)
        assert (memory.host_pointer, memory.size, memory.owner) == (pointer, size, owner)
        return self.seen(memory)
    def seen(self, memory):
        made.append(weakref.ref(memory))
        return memory

def kind_of(address):
    known = cuda_safe.pointer_attributes(address)
    return known and known.memory_type

cuda_safe.set_memory_manager(Calling)
manager = cuda_safe.memory_manager()
made.clear()
addresses, gones = [], []
flags = [(False, False, False), (True, False, False), (True, True, True)]
for mapped, portable, wc in flags:
    host = manager._allocate_host(1000, mapped, portable, wc)
    assert calls[-1] == ("memhostalloc", 1000, mapped, portable, wc)
    assert made[-1]() is not None and kind_of(host.address) == "host"
    ctypes.memset(host.address, 1, 1000)
    addresses.append(host.address)
    host.close()
    manager.trim()
    assert made[-1]() is None
for mapped in False, True:
    owner = ctypes.create_string_buffer(1 << 16)
    address, gone = ctypes.addressof(owner), weakref.ref(owner)
    pinned = manager._pin(owner, address, 1 << 16, mapped)
    assert calls[-1] == ("mempin", 1 << 16, mapped) and kind_of(address) == "host"
    del owner
    gc.collect()
    assert gone() is not None
    pinned.close()
    manager.trim()
    assert made[-1]() is None
    gones.append(gone)
    addresses.append(address)
with manager.defer_cleanup():
    assert calls[-1] == ("defer_cleanup",)
array = DeviceArray.full(3, 5, "i4")
assert array.copy_to_host().tolist() == [5] * 3
del array
manager._reset()
assert [gone() for gone in gones] == [None] * 2
assert [kind_of(address) for address in addresses] == [None] * 5
assert len(made) == 5 and named("initialize") and named("reset") and cuda_safe.leaked() == 0
raises(ValueError, lambda: Device_(context=None).memhostalloc(1, False, False, False), "context")
"""
    )


def test_the_package_does_not_call_inherited_methods_for_host_memory(run):
    run(
        """
class Device_(BaseMemoryManager):
    interface_version = 1
    memalloc = Manager.memalloc
    device = Manager.device
    note = Manager.note
    serial = 0

cuda_safe.set_memory_manager(Device_)
manager = cuda_safe.memory_manager()

def called(frame, event, argument):
    if event == "call":
        names.add(frame.f_code.co_name)

names = set()
memory = ctypes.create_string_buffer(1 << 16)
sys.setprofile(called)
host = manager._allocate_host(1000, True, True, True)
pinned = manager._pin(memory, ctypes.addressof(memory), 1 << 16, True)
DeviceArray.zeros(3)
sys.setprofile(None)
assert "memalloc" in names and names.isdisjoint({"memhostalloc", "mempin"}), names
host.close()
pinned.close()
manager._reset()
assert cuda_safe.leaked() == 0
"""
    )


def test_reset_is_called_when_no_memory_is_in_use(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.memory_manager()
array = DeviceArray.full(3, 5, "i4")
manager._reset()
assert named("reset") == []
assert array.copy_to_host().tolist() == [5] * 3
array.synchronize()
memory = manager._allocate(1000)
del array
manager._reset()
assert named("reset") == []
memory.close()
manager._reset()
assert named("reset") == [("reset",)] and len(finalized) == 2
# There is no call that could raise the exception.
import io
Manager.reset = lambda self: [].pop()
sys.stderr, said = io.StringIO(), sys.stderr
manager._reset()
sys.stderr, said = said, sys.stderr
assert "IndexError" in said.getvalue()
"""
    )


def test_an_ipc_handle_comes_from_the_manager(run):
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.memory_manager()
array = DeviceArray.zeros(1000, "u1")
expected = bytes(range(64))
assert manager._ipc_handle(array.address, 1000) == (expected, 512)
assert manager._ipc_handle(array[10:].address, 10) == (expected, 522)
assert named("get_ipc_handle") == [("get_ipc_handle", 1000)] * 2

class Reserved:
    reserved = bytes(64)
Manager.get_ipc_handle = lambda self, memory: type("Handle", (), {"handle": Reserved()})
assert manager._ipc_handle(array.address, 1000) == (bytes(64), 0)
Manager.get_ipc_handle = lambda self, memory: type("Handle", (), {"handle": b"short"})
raises(InvalidArgumentError, lambda: manager._ipc_handle(array.address, 1000), "5 bytes")
del Manager.get_ipc_handle
"""
    )


def test_all_types_of_addresses_are_read(run):
    run(
        """
class CUdeviceptr:
    def __init__(self, address):
        self.address = address
    def __int__(self):
        return self.address

class Some(Manager):
    write = int
    def memalloc(self, size):
        memory = super().memalloc(size)
        memory.device_pointer = Some.write(memory.device_pointer)
        return memory

cuda_safe.set_memory_manager(Some)
for write in (int, ctypes.c_void_p, ctypes.c_size_t, CUdeviceptr):
    Some.write = write
    assert DeviceArray.full(3, 5, "i4").copy_to_host().tolist() == [5] * 3
for write, words in [
    (lambda address: None, "at 0x0"),
    (lambda address: ctypes.c_void_p(), "at 0x0"),
    (lambda address: address + 8, "multiple of 256"),
]:
    Some.write = write
    raises(InvalidArgumentError, lambda: DeviceArray.zeros(3), "memalloc", words)
import decimal, fractions
for write in (float, str, ctypes.c_double, decimal.Decimal, fractions.Fraction, lambda address: [address]):
    Some.write = write
    raises(TypeError, lambda: DeviceArray.zeros(3), "device_pointer", "not an integer")
Some.write = int
Some.memalloc = lambda self, size: Manager.memalloc(self, size // 2)
raises(InvalidArgumentError, lambda: DeviceArray.zeros(1000, "u1"), "500 bytes, but 1000")
Some.memalloc = lambda self, size: 4096
raises(TypeError, lambda: DeviceArray.zeros(3), "memalloc", "a int", "device_pointer")
assert cuda_safe.leaked() == 0
# Refused memory was freed.
assert len(finalized) == len(named("memalloc"))
"""
    )


def test_allocations_of_a_manager_come_from_the_driver(run):
    run(
        """
class Lock:
    def __init__(self):
        self.lock = threading.Lock()
    def __enter__(self):
        assert self.lock.acquire(timeout=10), "called from within one of its methods"
    def __exit__(self, *exception):
        self.lock.release()

class Slabs(Manager):
    '''Parts of an array of this package, and a lock that is held in each method.'''

    def __init__(self, *, context):
        super().__init__(context=context)
        self.lock = Lock()
        self.slab = None
        self.free = []

    def memalloc(self, size):
        self.note("memalloc", size)
        with self.lock:
            # Objects are dropped here whose memory belongs to this manager.
            garbage.clear()
            gc.collect()
            if self.slab is None:
                self.slab = DeviceArray.empty(64 * 4096, "u1")
                self.slab.synchronize()
                self.free = [self.slab.address + 4096 * index for index in range(64)]
            assert size <= 4096
            address = self.free.pop(0)
        def finalize():
            with self.lock:
                finalized.append(address)
                self.free.append(address)
        return MemoryPointer(self.context, address, size, finalizer=finalize)

garbage = []
cuda_safe.set_memory_manager(Slabs)
first = DeviceArray.full(1000, 5, "i4")
manager = cuda_safe.memory_manager()
assert first.address == manager.plugin.slab.address
for number in range(100):
    array = DeviceArray.full(1000, number, "i4")
    assert (array.copy_to_host() == number).all()
    cycle = [array]
    cycle.append(cycle)
    garbage.append(cycle)
    del array, cycle
assert (first.copy_to_host() == 5).all()
garbage.clear()
gc.collect()
manager.trim()
assert len(finalized) == 100 and len(manager.plugin.free) == 63
del first
manager.trim()
assert len(manager.plugin.free) == 64
# The slab does not belong to the manager, although it begins at the address of a former block.
manager.plugin.slab = None
manager.plugin.free = []
assert DeviceArray.full(1000, 5, "i4").copy_to_host().tolist() == [5] * 1000
assert cuda_safe.leaked() == 0
"""
    )


def test_threads_allocate_and_free_concurrently(run):
    run(
        """
import random

cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.MemoryManager._of()
shared, errors = [], []
streams = [None, Stream(), Stream(), Stream.legacy(), Stream.per_thread()]

def work(seed):
    its = random.Random(seed)
    try:
        for _ in range(100):
            shared.append(manager._allocate(its.randrange(1, MIB), its.choice(streams)))
            array = DeviceArray.full(1000, seed, "i4")
            assert (array.copy_to_host() == seed).all()
            shared.append(array)
            if its.random() < 0.5:
                try:
                    shared.pop(its.randrange(len(shared))).close()
                except (IndexError, ValueError):
                    pass
            if its.random() < 0.05:
                manager.trim()
            if its.random() < 0.05:
                with manager.defer_cleanup():
                    manager.statistics()
            if len(shared) > 50:
                shared.clear()
    except BaseException as why:
        errors.append(why)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert errors == [], errors
shared.clear()
manager.trim()
manager.trim()
assert manager.statistics().used == manager.statistics().cached == 0
assert len(finalized) == len(set(finalized)) == len(named("memalloc")), len(finalized)
assert cuda_safe.leaked() == 0
"""
    )


def test_other_threads_run_while_a_free_waits(run):
    """The GIL is released while the package waits for the driver."""
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.MemoryManager._of()
stream = Stream()
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ran = []

@FUNCTION
def needs_the_gil(_data):
    ran.append(threading.get_ident())

# The stream runs a Python function before the work that uses the freed memory.
for use in (lambda: manager.trim(), lambda: [manager._allocate(1000).close() for _ in range(12)]):
    array = DeviceArray.zeros(1000, stream=stream)
    check(library.cuLaunchHostFunc(ctypes.c_void_p(stream.handle), needs_the_gil, None))
    array.fill(1)
    array.close()
    del array
    memory = manager._allocate(1000)
    memory.close()
    use()
stream.synchronize()
assert len(ran) == 2
manager.trim()
assert len(finalized) == len(named("memalloc"))
"""
    )


def test_memory_freed_in_a_host_function_is_finalized_later(run):
    """There the driver refuses calls, so it is unknown which work is complete."""
    run(
        """
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.memory_manager()
stream, other = Stream(), Stream()
garbage, seen = [], []

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def let_go(_data):
    garbage.clear()
    gc.collect()
    seen.append(len(finalized))

for number in range(3):
    garbage += [DeviceArray.full(1000, number, "i4", stream=other) for _ in range(15)]
    garbage += [manager._allocate(1000)]
    garbage[0].synchronize()
    before = len(finalized)
    check(library.cuLaunchHostFunc(ctypes.c_void_p(stream.handle), let_go, None))
    stream.synchronize()
    assert seen.pop() == before, "finalized in a host function"
    assert garbage == []
manager.trim()
assert sorted(finalized) == list(range(1, 49)) and cuda_safe.leaked() == 0
"""
    )


def test_memory_may_be_in_use_at_exit(run):
    run(
        """
import atexit, time

cuda_safe.set_memory_manager(Manager)
keep = [DeviceArray.full(1000, 5, "i4"), cuda_safe.memory_manager()._allocate(1000)]

@atexit.register
def still_there():
    assert keep[0].copy_to_host().tolist() == [5] * 1000

class Late:
    def __init__(self, memory):
        self.memory = memory
    def __del__(self):
        self.memory.close()

late = Late(DeviceArray.zeros(1000))
def work():
    while True:
        DeviceArray.zeros(1000)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_gets_exceptions_and_finalizes_nothing(run):
    run(
        """
import os, warnings

warnings.simplefilter("ignore", DeprecationWarning)
cuda_safe.set_memory_manager(Manager)
manager = cuda_safe.MemoryManager._of()
array, memory = DeviceArray.zeros(1000), manager._allocate(1000)
manager._allocate(1000).close()
child = os.fork()
if child == 0:
    try:
        raises(cuda_safe.ForkedError, lambda: DeviceArray.zeros(3))
        raises(cuda_safe.ForkedError, lambda: manager._allocate(1000))
        raises(cuda_safe.ForkedError, manager.memory_info)
        memory.close()
        del array
        gc.collect()
        assert finalized == [] and len(named("memalloc")) == 3
        os._exit(0)
    except BaseException as why:
        os.write(2, repr(why).encode())
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
memory.close()
del array
manager.trim()
assert sorted(finalized) == [1, 2, 3]
"""
    )


def test_invalid_managers_are_refused_immediately(run):
    run(
        """
class Old(Manager):
    interface_version = 2

class Text(Manager):
    interface_version = "1"

class Silent:
    def __init__(self, *, context):
        pass
    def memalloc(self, size):
        pass

class Fails(Manager):
    def __init__(self, *, context):
        raise LookupError("not without a context")

raises(InvalidArgumentError, lambda: cuda_safe.set_memory_manager(Old), "Old", "version 2", "version 1")
raises(InvalidArgumentError, lambda: cuda_safe.set_memory_manager(Text), "version '1'")
raises(InvalidArgumentError, lambda: cuda_safe.set_memory_manager(Silent), "interface_version")
raises(LookupError, lambda: cuda_safe.set_memory_manager(Fails), "not without a context")
for wrong in (object(), object, 3):
    raises(InvalidArgumentError, lambda: cuda_safe.set_memory_manager(wrong), "memalloc")
raises(TypeError, lambda: cuda_safe.set_memory_manager(BaseMemoryManager), "abstract")
assert cuda_safe.memory_manager() is None
"""
    )


def test_numbas_own_types_are_supported(run):
    """A class like RMM's, derived from Numba's base class, which returns Numba's types for its library's
    memory."""
    run(
        """
import standins
standins.install("numba-standin")
from numba import cuda
from numba.cuda.cudadrv import driver

class Buffer:
    '''As `rmm.DeviceBuffer`.'''
    def __init__(self, size):
        self.address = ctypes.c_uint64()
        check(library.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(size)))
    def __del__(self):
        finalized.append(self.address.value)
        check(library.cuMemFree_v2(self.address))

class RMMNumbaManager(cuda.BaseCUDAMemoryManager):
    interface_version = 1

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.allocations = {}

    def initialize(self):
        pass

    def memalloc(self, size):
        buffer = Buffer(size)
        allocations, key = self.allocations, buffer.address.value
        allocations[key] = buffer
        def finalizer():
            if allocations:
                del allocations[key]
        address = driver.binding.CUdeviceptr(key)
        return driver.MemoryPointer(weakref.proxy(self.context), address, size, finalizer=finalizer)

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        raise AssertionError
    mempin = memhostalloc

    def get_ipc_handle(self, memory):
        handle = (ctypes.c_byte * 64)()
        check(library.cuIpcGetMemHandle(handle, ctypes.c_uint64(memory.device_pointer)))
        identity = self.context.device.get_device_identity()
        assert identity.keys() == {"pci_domain_id", "pci_bus_id", "pci_device_id"}
        return driver.IpcHandle(memory, handle, memory.size, identity, offset=0)

    def get_memory_info(self):
        raise NotImplementedError("a pool does not know")

    def reset(self):
        self.allocations.clear()

    def defer_cleanup(self):
        import contextlib
        return contextlib.nullcontext()

cuda_safe.set_memory_manager(RMMNumbaManager)
manager = cuda_safe.memory_manager()
for number in range(20):
    array = DeviceArray.full(1000, number, "i4")
    assert (array.copy_to_host() == number).all()
address, buffers = array.address, manager.plugin.allocations
manager.trim()
assert list(buffers) == [address] and len(finalized) == 19
handle, offset = manager._ipc_handle(address, 4000)
assert (len(handle), offset) == (64, 0) and any(handle)
raises(NotImplementedError, manager.memory_info, "a pool does not know")
with manager.defer_cleanup():
    pass
manager._reset()
assert list(buffers) == [address]
array.synchronize()
del array
gc.collect()
assert buffers == {} and len(finalized) == 20
manager._reset()
""",
        PYTHONPATH=PATH,
    )


def test_the_other_libraries_allocate_with_it_too(run):
    run(
        """
import standins
standins.install("torch-standin")
import torch, cuda_safe.torch

cuda_safe.set_memory_manager(Manager)
cuda_safe.torch.use()
address = torch.cuda.caching_allocator_alloc(1000)
assert named("memalloc") == [("memalloc", 1000)]
torch.cuda.caching_allocator_delete(address)
cuda_safe.memory_manager().trim()
assert finalized == [1]
""",
        PYTHONPATH=PATH,
    )


@pytest.fixture
def run_with_module(run, tmp_path):
    """Runs a program with modules in a folder, one of which is named in the environment variable."""

    def run_it(program, name, **modules):
        for its, text in modules.items():
            (tmp_path / f"{its}.py").write_text(text)
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        return run(program, CUDA_SAFE_MEMORY_MANAGER=name, PYTHONPATH=path)

    return run_it


def test_the_environment_chooses_a_class(run_with_module):
    run_with_module(
        """
assert "theirs" not in sys.modules
array = DeviceArray.full(3, 5, "i4")
manager = cuda_safe.memory_manager()
import theirs
assert isinstance(manager.plugin, theirs.Theirs) and manager.kind == "plugin"
assert theirs.sizes == [12] and manager.limit is None
""",
        "theirs",
        theirs=START
        + """
sizes = []
class Theirs(Manager):
    def memalloc(self, size):
        sizes.append(size)
        return super().memalloc(size)
_numba_memory_manager = Theirs
""",
    )


@pytest.mark.parametrize("name", ["caching", "ordered", "driver"])
def test_the_environment_chooses_by_name(run_with_module, name):
    run_with_module(
        f"""
assert cuda_safe.memory_manager().kind == {name!r}
DeviceArray.zeros(3)
assert cuda_safe.memory_manager().statistics().allocated == 1
""",
        name,
    )


def test_a_call_has_precedence_over_the_environment(run_with_module):
    run_with_module(
        """
cuda_safe.set_memory_manager("driver")
DeviceArray.zeros(3)
assert cuda_safe.memory_manager().kind == "driver"
""",
        "not_there",
    )


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (None, "ModuleNotFoundError", "No module named 'theirs'"),
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("", "AttributeError", "_numba_memory_manager"),
        ("_numba_memory_manager = 3", "InvalidArgumentError", "memalloc"),
        ("import cuda_safe; cuda_safe.DeviceArray.zeros(3)", "InvalidArgumentError", "theirs"),
    ],
)
def test_a_module_that_cannot_be_used_is_an_error_with_its_cause(run_with_module, text, kind, words):
    run_with_module(
        f"""
for use in (lambda: DeviceArray.zeros(3), cuda_safe.memory_manager, Stream, cuda_safe.MemoryManager._of):
    why = raises(InvalidArgumentError, use, "CUDA_SAFE_MEMORY_MANAGER=theirs")
    assert type(why.__cause__).__name__ == {kind!r} and {words!r} in str(why.__cause__), why.__cause__
# A call overrides it.
cuda_safe.set_memory_manager("driver")
DeviceArray.zeros(3)
""",
        "theirs",
        **({} if text is None else {"theirs": text}),
    )


def test_a_choice_applies_to_devices_used_later(run):
    run(
        """
first, last = Device(0), Device(Device.count() - 1)
cuda_safe.set_memory_manager("driver", limit=MIB)
array = DeviceArray.zeros(3)
cuda_safe.set_memory_manager(Manager)
cuda_safe.set_memory_manager("ordered")
cuda_safe.set_memory_manager(Manager)
# A device keeps its memory manager.
manager = cuda_safe.memory_manager()
assert (manager.kind, manager.limit) == ("driver", MIB) and manager.plugin is None
raises(cuda_safe.OutOfMemoryError, lambda: DeviceArray.zeros(MIB), "limit")
assert made == []
if last != first:
    assert cuda_safe.memory_manager(last).plugin in made
"""
    )
    run(
        """
# A device that was used without a manager has none.
array = DeviceArray.zeros(3)
cuda_safe.set_memory_manager(Manager)
assert cuda_safe.memory_manager() is None
DeviceArray.zeros(3)
assert calls == []
raises(InvalidArgumentError, cuda_safe.MemoryManager._of, "device 0", "without a memory manager")
"""
    )


def test_after_a_reset_the_current_choice_is_used(run):
    if cuda_safe.driver_version() < (12, 0):
        pytest.skip("the driver does not tell of a reset")
    run(
        """
cuda_safe.set_memory_manager("caching")
old = cuda_safe.MemoryManager._of()
array = DeviceArray.zeros(3)
cuda_safe.set_memory_manager(Manager)
# `numba.cuda.close()` does this.
check(library.cuDevicePrimaryCtxReset_v2(0))
new = cuda_safe.MemoryManager._of()
assert (old.kind, new.kind) == ("caching", "plugin") and new.plugin in made
memory = new._allocate(1000)
assert DeviceArray.full(3, 5, "i4").copy_to_host().tolist() == [5] * 3
# Memory of the old context was freed with it.
check(library.cuDevicePrimaryCtxReset_v2(0))
cuda_safe.MemoryManager._of()
before = len(finalized)
memory.close()
assert len(finalized) == before
"""
    )


@pytest.mark.parametrize("caller", ["CFUNCTYPE", "PYFUNCTYPE"])
def test_other_code_allocates_within_calls_without_the_gil(run, caller):
    """A caller with CFUNCTYPE releases the GIL, and one with PYFUNCTYPE keeps it."""
    run(
        """
sys.path.insert(0, os.environ["TESTS"])
from test_dlpack import FOREIGN
exec(FOREIGN)
cuda_safe.set_memory_manager(Manager)
caller = getattr(ctypes, os.environ["CALLER"])
word, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
allocate, free, _ = cuda_safe._native._torch_functions()
allocate = caller(word, size, number, word)(allocate)
free = caller(None, word, size, number, word)(free)

def allocate_and_free():
    before = len(named("memalloc"))
    address = allocate(1000, 0, None)
    assert named("memalloc")[before:] == [("memalloc", 1000)]
    free(address, 1000, 0, None)
    done.append(address)

done = []
for use in uses(allocate_and_free):
    use()
assert len(done) == 8 and all(done), done
del use
gc.collect()
cuda_safe.memory_manager().trim()
assert len(finalized) == len(named("memalloc"))
""",
        TESTS=os.path.dirname(__file__),
        CALLER=caller,
    )


@pytest.mark.parametrize("caller", ["CFUNCTYPE", "PYFUNCTYPE"])
def test_an_import_is_copied_with_a_manager_while_other_code_allocates(run, caller):
    run(
        """
sys.path.insert(0, os.environ["TESTS"])
cuda_safe.set_memory_manager(Manager)
caller = getattr(ctypes, os.environ["CALLER"])
word, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
allocate, free, _ = cuda_safe._native._torch_functions()
allocate = caller(word, size, number, word)(allocate)
free = caller(None, word, size, number, word)(free)

class Producer:
    def __init__(self, array):
        self.array = array
    def act(self):
        free(allocate(1000, 0, None), 1000, 0, None)
    def __dlpack_device__(self):
        self.act()
        return self.array.__dlpack_device__()
    def __dlpack__(self, **arguments):
        self.act()
        return self.array.__dlpack__(**arguments)

array = DeviceArray.full(500, 7, "i4")
before = len(named("memalloc"))
copy = cuda_safe.from_dlpack(Producer(array), copy=True)
# Two allocations of other code, and the copy.
sizes = [size for _, size in named("memalloc")[before:]]
assert sizes == [1000, 1000, 2000], sizes
copy.fill(8)
assert copy.copy_to_host().tolist() == [8] * 500
assert array.copy_to_host().tolist() == [7] * 500
del array, copy
gc.collect()
cuda_safe.memory_manager().trim()
assert len(finalized) == len(named("memalloc")) and cuda_safe.leaked() == 0
""",
        TESTS=os.path.dirname(__file__),
        CALLER=caller,
    )


def test_an_exception_of_a_manager_is_dropped_without_the_gil(run):
    """The exception of the first attempt of an allocation, and that of a failed one."""
    run(
        """
sys.path.insert(0, os.environ["TESTS"])
from test_dlpack import FOREIGN
from test_exchange_table import SET_ERROR, TABLE
from tensors import DLTensor
exec(FOREIGN)

class Failing(Manager):
    def memalloc(self, size):
        if size == 4000:
            raise errors.pop() if errors else MemoryError("no memory")
        return super().memalloc(size)

errors = []
cuda_safe.set_memory_manager(Failing)

def allocate():
    class Error(MemoryError):
        pass
    errors.append(Error("no"))
    gone = weakref.ref(errors[0])
    shape = (ctypes.c_int64 * 1)(1000)
    prototype = DLTensor(device_type=2, device_id=0, ndim=1, code=1, bits=32, lanes=1, shape=shape)
    out, said = ctypes.c_void_p(), []
    failed = SET_ERROR(lambda _, kind, text: said.append((kind, text)))
    assert TABLE.allocate(ctypes.addressof(prototype), ctypes.addressof(out), None, failed) == -1
    assert said and said[0][0] == b"MemoryError", said
    gc.collect()
    assert gone() is None
    done.append(gone)

done = []
for use in uses(allocate):
    use()
assert len(done) == 8
""",
        TESTS=os.path.dirname(__file__),
    )
