"""Numba allocates through the memory manager of this package.

``NUMBA_CUDA_MEMORY_MANAGER=cuda_safe.numba`` has it do so, or before its first use of the device::

    from numba import cuda
    from cuda_safe.numba import MemoryManager

    cuda.set_memory_manager(MemoryManager)

Which manager that is says :func:`cuda_safe.set_memory_manager`; without that it is the caching pool.
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


# Exit functions run in reverse order; that of all finalizers, which the first of them registers, is to come
# behind this one.
weakref.finalize(_note_exit, int).detach()
atexit.register(_note_exit)


def _finalizer(table: dict[int, Any], memory: _Memory | _HostMemory) -> Callable[[], None]:
    """What ends memory that Numba has: with its number, which nothing else has or will have. At the end of the
    interpreter Numba's pointers run it while they are in use: then the memory stays."""

    def finalize() -> None:
        if _at_exit:
            memory.leak()
            return
        table.pop(memory.id, None)
        memory.close()

    return finalize


class _IpcHandle(_driver.IpcHandle):  # type: ignore[misc]
    """Numba's, where that cannot be pickled: with a `CUipcMemHandle` that does not show its bytes."""

    def __reduce__(self) -> tuple[Any, ...]:
        data = ctypes.string_at(self.handle.getPtr(), _IPC_BYTES)
        return _ipc_handle, (None, data, self.size, self.source_info, self.offset)


_IPC_BYTES = 64


def _ipc_handle(base: Any, data: bytes, size: int, identity: Any, offset: int) -> Any:
    """A handle of Numba's, of those bytes."""
    handle = _driver.binding.CUipcMemHandle()
    if hasattr(handle, "reserved"):
        handle.reserved = data
        kind = _driver.IpcHandle
    else:
        ctypes.memmove(handle.getPtr(), data, _IPC_BYTES)
        kind = _IpcHandle
    return kind(base, handle, size, identity, offset=offset)


class MemoryManager(_cuda.BaseCUDAMemoryManager):  # type: ignore[misc]
    """Numba's memory is that of the manager of the device's primary context: device memory, pinned, mapped
    and managed memory.

    Numba does not say on which stream memory is used: it may be any, so what was freed is used again behind
    all work of the device at that time. How many such frees may be pending is the manager's matter, which
    was chosen before and serves others, too: NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and _RATIO are not read.
    `reset` takes the device memory back that Numba's arrays have, which must not be used any more, as after
    a reset of Numba's own (and as there, what has a view goes with that). But memory of the host stays with
    the arrays over it, as NumPy would write to what is somebody else's.

    `numba.cuda.close()` resets the primary context as well, which ends all that anybody has in it: the next
    one of these begins with a new memory manager, and gives nothing back to the old one. Drivers before
    CUDA 12.0 do not tell: there `reset` warns if memory is still in use.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _choose_memory_manager()
        self._manager: _Manager | None = None
        # What Numba's pointers of counted references refer to, by number. A finalizer keeps these tables,
        # and not this object.
        self._device_memory: dict[int, Any] = {}
        self._host_memory: dict[int, Any] = {}

    def _get(self) -> _Manager:
        """That of the context's device. Not before it is needed: Numba makes one of these to look at."""
        if self._manager is None:
            self._manager = _Manager._of(int(self.context.device.id))
        return self._manager

    def initialize(self) -> None:
        """Numba calls this often."""

    def memalloc(self, size: int) -> Any:
        """Device memory."""
        return self._own(self._get()._allocate(size), _driver.AutoFreePointer, self._device_memory)

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        """Managed memory."""
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
        """Page-locked memory of the host."""
        memory = self._get()._allocate_host(size, bool(mapped), bool(portable), bool(wc))
        return self._host(memory, mapped, None)

    def mempin(self, owner: Any, pointer: int, size: int, mapped: bool = False) -> Any:
        """Pins memory of the owner, who is kept until Numba lets go of it."""
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
        """For another process, where it is opened as Numba's own are. Memory of a pool is a part of what
        that has of the driver, which the other process sees all of."""
        address = int(memory.device_pointer)
        data, offset = self._get()._ipc_handle(address, memory.size)
        identity = self.context.device.get_device_identity()
        return _ipc_handle(memory, data, memory.size, identity, offset)

    def get_memory_info(self) -> Any:
        """Free memory, with what the manager keeps, and all."""
        info = self._get().memory_info()
        return _cuda.MemoryInfo(free=info.free, total=info.total)

    def reset(self) -> None:
        """Takes the device memory back that Numba has, and gives it to the driver with what is kept. It may
        come first of all."""
        # One by one: what goes runs its finalizer, which takes itself out.
        while self._device_memory:
            self._device_memory.popitem()
        if self._manager is None:
            return
        self._manager._reset()
        if driver_version() < (12, 0) and self._manager.statistics().used:
            warnings.warn(
                "memory of the manager's is still in use (Numba's arrays of which there are views, or those of "
                "other libraries), and drivers before CUDA 12.0 do not tell of a reset of the context: if this "
                "was numba.cuda.close(), nothing can be allocated any more that is sure to be alive",
                RuntimeWarning,
                stacklevel=2,
            )

    def defer_cleanup(self) -> AbstractContextManager[Any]:
        """In its block clean-up that waits for work is held back. Frees are as fast as ever with a caching
        pool, and their memory is used again; with the others memory that was freed stays taken."""
        return self._get().defer_cleanup()

    @property
    def interface_version(self) -> int:
        return 1


# By this name Numba looks for it.
_numba_memory_manager = MemoryManager
