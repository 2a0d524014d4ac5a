"""The parts of Numba, CuPy and PyTorch that the allocators of this package use, for machines without
these libraries. Each is as small as possible and has the same ownership rules."""

from __future__ import annotations

import abc
import collections
import ctypes
import functools
import importlib
import os
import sys
import threading
import types
import weakref

import catcher

here = threading.local()


def driver():
    """Returns the driver's library, with the primary context current, as the CUDA runtime does it."""
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    if not hasattr(here, "context"):
        here.context = ctypes.c_void_p()
        assert library.cuInit(0) == 0
        assert library.cuDevicePrimaryCtxRetain(ctypes.byref(here.context), 0) == 0
        assert library.cuCtxSetCurrent(here.context) == 0
    return library


def module(name, **members):
    made = types.ModuleType(name)
    made.__path__ = []
    vars(made).update(members)
    sys.modules[name] = made
    return made


def numba():
    """Returns `numba.cuda`: a context, and the reference-counting pointers."""

    class CUdeviceptr(int):
        pass

    class CUipcMemHandle:
        reserved = b""

    class BaseCUDAMemoryManager(metaclass=abc.ABCMeta):
        def __init__(self, *args, **kwargs):
            if "context" not in kwargs:
                raise RuntimeError("Memory manager requires a context")
            self.context = kwargs.pop("context")

    for name in (
        "memalloc memhostalloc mempin initialize get_ipc_handle get_memory_info reset defer_cleanup "
        "interface_version"
    ).split():
        setattr(BaseCUDAMemoryManager, name, abc.abstractmethod(lambda self: None))
    abc.update_abstractmethods(BaseCUDAMemoryManager)

    class MemoryPointer:
        def __init__(self, context, pointer, size, owner=None, finalizer=None):
            self.context, self.device_pointer, self.size = context, pointer, size
            self._owner, self.refct = owner, 1
            self._finalizer = finalizer and weakref.finalize(self, finalizer)

        @property
        def owner(self):
            return self if self._owner is None else self._owner

        def own(self):
            return OwnedPointer(weakref.proxy(self))

        def free(self):
            if not self._finalizer.alive:
                raise RuntimeError("Freeing dead memory")
            self._finalizer()

        def view(self, start, stop):
            part = MemoryPointer(
                self.context, CUdeviceptr(self.device_pointer + start), stop - start, self.owner
            )
            return OwnedPointer(weakref.proxy(self.owner), part)

    class AutoFreePointer(MemoryPointer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.refct -= 1

    class ManagedMemory(AutoFreePointer):
        pass

    class MappedMemory(AutoFreePointer):
        def __init__(self, context, pointer, size, owner=None, finalizer=None):
            self.owned, self.host_pointer = owner, pointer
            address = ctypes.c_uint64()
            code = driver().cuMemHostGetDevicePointer_v2(
                ctypes.byref(address), ctypes.c_void_p(pointer), 0
            )
            assert code == 0, code
            super().__init__(context, CUdeviceptr(address.value), size, finalizer=finalizer)

    class PinnedMemory:
        def __init__(self, context, pointer, size, owner=None, finalizer=None):
            self.context, self.host_pointer, self.size, self.owned = context, pointer, size, owner
            weakref.finalize(self, finalizer)

        def own(self):
            return self

    class OwnedPointer:
        def __init__(self, memory, view=None):
            self._mem, self._view = memory, view or memory
            memory.refct += 1

            def deref():
                try:
                    memory.refct -= 1
                    if memory.refct == 0:
                        memory.free()
                except ReferenceError:
                    pass

            weakref.finalize(self, deref)

        def __getattr__(self, name):
            return getattr(self._view, name)

    class IpcHandle:
        def __init__(self, base, handle, size, source_info=None, offset=0):
            self.base, self.handle, self.size = base, handle, size
            self.source_info, self.offset = source_info, offset

    binding = types.SimpleNamespace(CUdeviceptr=CUdeviceptr, CUipcMemHandle=CUipcMemHandle)
    driver_module = module(
        "numba.cuda.cudadrv.driver",
        binding=binding,
        MemoryPointer=MemoryPointer,
        AutoFreePointer=AutoFreePointer,
        ManagedMemory=ManagedMemory,
        MappedMemory=MappedMemory,
        PinnedMemory=PinnedMemory,
        IpcHandle=IpcHandle,
    )
    module("numba.cuda.cudadrv", driver=driver_module)

    class Context:
        def __init__(self, manager):
            self.device = types.SimpleNamespace(
                id=0, get_device_identity=lambda: {"pci_bus_id": 1}
            )
            self.memory_manager = manager(context=self)
            self.memory_manager.initialize()

        def __getattr__(self, name):
            return getattr(self.memory_manager, name)

    context = None

    def current_context():
        nonlocal context
        if context is None:
            chosen = importlib.import_module(os.environ["NUMBA_CUDA_MEMORY_MANAGER"])
            kind = chosen._numba_memory_manager
            assert kind(context=None).interface_version == 1
            context = Context(kind)
            context.device.keep = context
            driver()
        return context

    def close():
        nonlocal context
        context.reset()
        context = None
        # The CUDA runtime and Numba do this too.
        library = driver()
        assert library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert library.cuDevicePrimaryCtxReset_v2(0) == 0
        del here.context

    cuda = module(
        "numba.cuda",
        BaseCUDAMemoryManager=BaseCUDAMemoryManager,
        MemoryInfo=collections.namedtuple("MemoryInfo", "free,total"),
        current_context=current_context,
        close=close,
    )
    module("numba", cuda=cuda)


def cupy():
    """Returns `cupy.cuda`: streams that own their handles, and unowned memory."""

    class Stream:
        null = None

        def __init__(self, ptr=None):
            self.ptr = ptr
            if ptr is None:
                handle = ctypes.c_void_p()
                assert driver().cuStreamCreate(ctypes.byref(handle), 1) == 0
                self.ptr = handle.value

        def __cuda_stream__(self):
            return 0, self.ptr

        def __enter__(self):
            stack.append(self)
            return self

        def __exit__(self, *_exception):
            stack.pop()

        def __del__(self):
            if self.ptr > 2:
                gone.append(self.ptr)
                assert driver().cuStreamDestroy_v2(ctypes.c_void_p(self.ptr)) == 0

        def synchronize(self):
            assert driver().cuStreamSynchronize(ctypes.c_void_p(self.ptr)) == 0

    class ExternalStream(Stream):
        def __del__(self):
            pass

    gone = []
    Stream.null = Stream(0)
    Stream.ptds = Stream(2)
    stack = [Stream.null]

    class UnownedMemory:
        def __init__(self, ptr, size, owner, device_id=-1):
            assert ptr or device_id >= 0
            self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id

    class MemoryPointer:
        def __init__(self, mem, offset):
            self.mem, self.ptr = mem, mem.ptr + offset

    chosen = None

    def set_allocator(allocator):
        nonlocal chosen
        chosen = allocator

    cuda = module(
        "cupy.cuda",
        Stream=Stream,
        ExternalStream=ExternalStream,
        UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        get_current_stream=lambda device_id=-1: stack[-1],
        device=types.SimpleNamespace(get_device_id=lambda: 0),
        set_allocator=set_allocator,
        alloc=lambda size: chosen(size),
    )
    module("cupy", cuda=cuda, gone=gone)


def torch():
    """Returns `torch.cuda`: the pluggable allocator, called as by PyTorch. It allocates without the GIL,
    through C++ if it is available (CATCHER), and frees with the GIL."""

    class Allocator:
        def __init__(self, path, allocate, free):
            self.allocate = getattr(ctypes.CDLL(path), allocate)
            self.free = getattr(ctypes.PyDLL(path), free)
            self.allocate.restype = ctypes.c_void_p
            self.allocate.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
            if "CATCHER" in os.environ:
                address = ctypes.cast(self.allocate, ctypes.c_void_p).value
                self.allocate = functools.partial(catcher.load(os.environ["CATCHER"]), address)
            self.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
            self.record = None
            self.known = {}

        def allocator(self):
            return self

        def set_record_stream_fn(self, address):
            kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
            self.record = kind(address)

    current = None

    def change_current_allocator(allocator):
        nonlocal current
        current = allocator

    def caching_allocator_alloc(size, device=0, stream=0):
        address = current.allocate(size, device, stream)
        current.known[address] = size, device, stream
        return address

    def caching_allocator_delete(address):
        current.free(address, *current.known.pop(address))

    def record_stream(address, stream):
        current.record(address, stream)

    pools = collections.defaultdict(list)
    turns = collections.Counter()

    class Stream:
        def __init__(self, device=0, priority=0):
            pool = pools[device, priority]
            turn = turns[device, priority]
            turns[device, priority] += 1
            if len(pool) < 4:
                handle = ctypes.c_void_p()
                assert driver().cuStreamCreateWithPriority(ctypes.byref(handle), 1, priority) == 0
                pool.append(handle.value)
            self.cuda_stream = pool[turn % 4]

        @staticmethod
        def priority_range():
            return 0, -1

    cuda = module(
        "torch.cuda",
        memory=types.SimpleNamespace(
            CUDAPluggableAllocator=Allocator, change_current_allocator=change_current_allocator
        ),
        Stream=Stream,
        current_device=lambda: 0,
        caching_allocator_alloc=caching_allocator_alloc,
        caching_allocator_delete=caching_allocator_delete,
        record_stream=record_stream,
    )
    module("torch", cuda=cuda)


STANDINS = {"numba-standin": numba, "cupy-standin": cupy, "torch-standin": torch}


def install(name):
    """Installs the stand-in with this name, or prepares the real library."""
    if name in STANDINS:
        STANDINS[name]()
    elif name == "numba":
        import numpy

        # Versions of Numba from before NumPy 2.5 use this alias, which NumPy 2.5 has removed.
        if not hasattr(numpy, "row_stack"):
            numpy.row_stack = numpy.vstack
