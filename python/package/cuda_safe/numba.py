"""Makes Numba allocate with the memory manager of this package.

Set ``NUMBA_CUDA_MEMORY_MANAGER=cuda_safe.numba``, or before Numba's first use of the device::

    from numba import cuda
    from cuda_safe.numba import MemoryManager

    cuda.set_memory_manager(MemoryManager)

The memory manager is the one chosen by :func:`cuda_safe.set_memory_manager`, by default the caching pool.
Importing this module imports ``numba.cuda``; importing ``cuda_safe`` does not.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ._native import MemoryManager as _Manager
from ._native import _choose_memory_manager, _HostMemory, _Memory, driver_version

__all__ = ["MemoryManager"]

_cuda: Any = importlib.import_module("numba.cuda")
_driver: Any = importlib.import_module("numba.cuda.cudadrv.driver")


_at_exit = False


def _note_exit() -> None:
    global _at_exit
    _at_exit = True


# Exit functions run in reverse order. The first finalizer registers the exit function for all
# finalizers, which must run after this one.
weakref.finalize(_note_exit, int).detach()
atexit.register(_note_exit)


def _finalizer(table: dict[int, Any], memory: _Memory | _HostMemory) -> Callable[[], None]:
    """Returns the function that frees memory of Numba, identified by its unique number. Numba's pointers
    also call it at interpreter exit while they are in use; the memory is then leaked."""

    def finalize() -> None:
        if _at_exit:
            memory.leak()
            return
        table.pop(memory.id, None)
        memory.close()

    return finalize


class _IpcHandle(_driver.IpcHandle):  # type: ignore[misc]
    """Numba's class for bindings in which it cannot be pickled: their `CUipcMemHandle` hides its bytes."""

    def __reduce__(self) -> tuple[Any, ...]:
        data = ctypes.string_at(self.handle.getPtr(), _IPC_BYTES)
        return _ipc_handle, (None, data, self.size, self.source_info, self.offset)


_IPC_BYTES = 64


def _ipc_handle(base: Any, data: bytes, size: int, identity: Any, offset: int) -> Any:
    """Creates an IPC handle of Numba from its bytes."""
    handle = _driver.binding.CUipcMemHandle()
    if hasattr(handle, "reserved"):
        handle.reserved = data
        kind = _driver.IpcHandle
    else:
        ctypes.memmove(handle.getPtr(), data, _IPC_BYTES)
        kind = _IpcHandle
    return kind(base, handle, size, identity, offset=offset)


class MemoryManager(_cuda.BaseCUDAMemoryManager):  # type: ignore[misc]
    """A Numba memory manager that allocates device, pinned, mapped and managed memory with the memory
    manager of the device's primary context.

    Numba does not report on which stream memory is used, so freed memory is reused after all work of the
    device at that time. The maximum number of pending frees is a property of that memory manager, which
    other libraries also use: NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and _RATIO are not read.
    `reset` takes back the device memory of Numba's arrays, which must not be used any more, as after a
    reset of Numba's own manager. As there, memory that has a view is freed when the view is deleted. Host
    memory stays allocated as long as arrays refer to it, because NumPy could otherwise write to memory of
    another owner.

    `numba.cuda.close()` also resets the primary context, which frees all memory in it: the next instance
    of this class uses a new memory manager, and returns nothing to the old one. Drivers before CUDA 12.0 do
    not report the reset: with these, `reset` warns if memory is still in use.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _choose_memory_manager()
        self._manager: _Manager | None = None
        # The objects to which Numba's reference-counting pointers refer, by number. A finalizer
        # keeps these tables alive, but not this object.
        self._device_memory: dict[int, Any] = {}
        self._host_memory: dict[int, Any] = {}

    def _get(self) -> _Manager:
        """Returns the memory manager of the context's device. Called lazily, because Numba creates one
        instance only to inspect it."""
        if self._manager is None:
            self._manager = _Manager._of(int(self.context.device.id))
        return self._manager

    def initialize(self) -> None:
        """Does nothing. Numba calls this often."""

    def memalloc(self, size: int) -> Any:
        """Allocates device memory."""
        return self._own(self._get()._allocate(size), _driver.AutoFreePointer, self._device_memory)

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        """Allocates managed memory."""
        memory = self._get()._allocate_managed(size, attach_global)
        return self._own(memory, _driver.ManagedMemory, self._host_memory)

    def _own(self, memory: _Memory, kind: Any, table: dict[int, Any]) -> Any:
        address = _driver.binding.CUdeviceptr(memory.address)
        pointer = kind(
            weakref.proxy(self.context),
            address,
            memory.size,
            finalizer=_finalizer(table, memory),
        )
        table[memory.id] = pointer
        return pointer.own()

    def memhostalloc(
        self, size: int, mapped: bool = False, portable: bool = False, wc: bool = False
    ) -> Any:
        """Allocates page-locked host memory."""
        memory = self._get()._allocate_host(size, bool(mapped), bool(portable), bool(wc))
        return self._host(memory, mapped, None)

    def mempin(self, owner: Any, pointer: int, size: int, mapped: bool = False) -> Any:
        """Page-locks memory of the owner, which is kept alive until Numba releases the memory."""
        memory = self._get()._pin(owner, int(pointer), size, bool(mapped))
        return self._host(memory, mapped, owner)

    def _host(self, memory: _HostMemory, mapped: bool, owner: Any) -> Any:
        table = self._host_memory
        kind = _driver.MappedMemory if mapped else _driver.PinnedMemory
        pointer = kind(
            weakref.proxy(self.context),
            memory.address,
            memory.size,
            owner=owner,
            finalizer=_finalizer(table, memory),
        )
        if mapped:
            # `own` keeps no reference.
            table[memory.id] = pointer
        return pointer.own()

    def get_ipc_handle(self, memory: Any) -> Any:
        """Returns an IPC handle, which another process opens like Numba's own handles. Memory of a pool
        is a part of the pool's driver allocation, and the other process can access the whole
        allocation."""
        address = int(memory.device_pointer)
        data, offset = self._get()._ipc_handle(address, memory.size)
        identity = self.context.device.get_device_identity()
        return _ipc_handle(memory, data, memory.size, identity, offset)

    def get_memory_info(self) -> Any:
        """Returns free memory, including cached memory, and the total."""
        info = self._get().memory_info()
        return _cuda.MemoryInfo(free=info.free, total=info.total)

    def reset(self) -> None:
        """Takes back the device memory of Numba's arrays and returns it to the driver, together with cached
        memory. It may be called before any other method."""
        # One by one, because deleting an entry runs its finalizer, which removes the entry.
        while self._device_memory:
            self._device_memory.popitem()
        if self._manager is None:
            return
        self._manager._reset()
        if driver_version() < (12, 0) and self._manager.statistics().used:
            warnings.warn(
                "memory of this memory manager is still in use (by Numba's arrays that have views, or by other "
                "libraries), and drivers before CUDA 12.0 do not report a reset of the context: if this was "
                "numba.cuda.close(), memory that is allocated from now on may be invalid",
                RuntimeWarning,
                stacklevel=2,
            )

    def defer_cleanup(self) -> AbstractContextManager[Any]:
        """Returns a context manager. Within its block, clean-up that waits for work is deferred. With the
        caching pool, frees are as fast as usual and their memory is reused; with the other managers, freed
        memory stays allocated during the block."""
        return self._get().defer_cleanup()

    @property
    def interface_version(self) -> int:
        return 1


# Numba looks the class up by this name.
_numba_memory_manager = MemoryManager
