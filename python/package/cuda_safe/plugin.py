"""Memory managers that are written in Python.

:func:`cuda_safe.set_memory_manager` accepts a class with the methods of Numba's External Memory Management
(EMM) plugins, so a class that was written for Numba can be used here too. This module has the types that a
class needs if it does not use Numba::

    import cuda_safe
    from cuda_safe.plugin import BaseMemoryManager, MemoryPointer

    class Manager(BaseMemoryManager):
        interface_version = 1

        def memalloc(self, size):
            address = library.allocate(size)
            return MemoryPointer(
                self.context, address, size, finalizer=lambda: library.free(address)
            )

    cuda_safe.set_memory_manager(Manager)

One instance is created for each device, as ``Manager(context=context)``. These methods are called:

==================================================  ==========================================================
``memalloc(size)``                                  device memory, aligned to 256 bytes
``memhostalloc(size, mapped, portable, wc)``        page-locked host memory
``mempin(owner, pointer, size, mapped)``            page-locks host memory of the owner, which the package
                                                    keeps alive until the memory is finalized
``memallocmanaged(size, attach_global)``            managed memory
``initialize()``                                    before the first allocation
``reset()``                                         when the memory of the context is given up, and none is in
                                                    use
``get_ipc_handle(memory)``                          an object with ``handle`` (64 bytes) and ``offset``
``get_memory_info()``                               ``(free, total)`` in bytes
``defer_cleanup()``                                 a context manager; while it is open, expensive clean-up is
                                                    deferred
``interface_version``                               the integer 1
==================================================  ==========================================================

``memalloc`` and ``interface_version`` are required. If another method is missing, the package uses the
driver; a missing ``get_memory_info`` raises a ``NotImplementedError``. :class:`BaseMemoryManager` has the
methods ``memhostalloc``, ``mempin``, ``initialize``, ``reset`` and ``defer_cleanup``, which do what the
package does without them: a class can call them with ``super()``.

An allocation method returns an object that has ``device_pointer`` (device memory, mapped host memory),
``host_pointer`` (host memory) and ``size``. Deleting the object frees the memory. The memory must be
ready for use on every stream when the method returns. The package deletes the object after the work that
uses the memory: immediately if the stream is idle, otherwise in a later allocation or free, at the latest
when more than ten frees or a fifth of the device's memory are pending.

The methods and finalizers run on any thread, with the context of the device current. An exception is
raised from the call that needed memory. After a ``MemoryError`` the package finishes pending frees and
tries once more. If a method uses this package to allocate memory, that memory comes from the driver.
"""

from __future__ import annotations

import abc
import contextlib
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ._native import Context, MemoryManager, _HostMemory

__all__ = ["BaseMemoryManager", "MappedMemory", "MemoryPointer", "PinnedMemory"]


class BaseMemoryManager(abc.ABC):
    """An optional base class for memory managers. A class must have ``memalloc`` and ``interface_version``,
    and inherits the other methods that the package calls, except for those without which it asks the
    driver."""

    def __init__(self, *, context: Context | None) -> None:
        self.context = context

    @abc.abstractmethod
    def memalloc(self, size: int) -> Any:
        """Allocates device memory and returns an object like :class:`MemoryPointer`."""

    def memhostalloc(self, size: int, mapped: bool, portable: bool, wc: bool) -> Any:
        """Allocates page-locked host memory with the driver."""
        memory = self._driver()._allocate_host(size, mapped, portable, wc, from_driver=True)
        return self._host(memory, mapped, None)

    def mempin(self, owner: object, pointer: int, size: int, mapped: bool) -> Any:
        """Page-locks host memory of the owner with the driver."""
        memory = self._driver()._pin(owner, pointer, size, mapped, from_driver=True)
        return self._host(memory, mapped, owner)

    def initialize(self) -> None:
        """Does nothing. The package calls it before the first allocation."""

    def reset(self) -> None:
        """Does nothing. The package calls it when the memory of the context is given up."""

    def defer_cleanup(self) -> AbstractContextManager[Any]:
        """Returns a context manager that does nothing. The package defers its own clean-up."""
        return contextlib.nullcontext()

    def _driver(self) -> MemoryManager:
        if self.context is None:
            raise ValueError("a memory manager without a context has no memory")
        return MemoryManager._of(self.context.device)

    def _host(self, memory: _HostMemory, mapped: bool, owner: object) -> PinnedMemory:
        kind = MappedMemory if mapped else PinnedMemory
        return kind(self.context, memory.address, memory.size, owner, memory.close)

    @property
    @abc.abstractmethod
    def interface_version(self) -> int:
        """The version of the interface that the class is written for: 1."""


class _Memory:
    """Memory that is freed when the object is deleted. The finalizer runs at most once. It does not run at
    interpreter exit, because the memory may still be in use."""

    def __init__(
        self,
        context: Context | None,
        size: int,
        owner: object,
        finalizer: Callable[[], object] | None,
    ) -> None:
        self.context = context
        self.size = size
        self.owner = owner
        if finalizer is not None:
            weakref.finalize(self, finalizer).atexit = False


class MemoryPointer(_Memory):
    """Device memory, as returned by ``memalloc`` and ``memallocmanaged``."""

    def __init__(
        self,
        context: Context | None,
        pointer: int,
        size: int,
        owner: object = None,
        finalizer: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(context, size, owner, finalizer)
        self.device_pointer = pointer


class PinnedMemory(_Memory):
    """Page-locked host memory, as returned by ``memhostalloc`` and ``mempin``."""

    def __init__(
        self,
        context: Context | None,
        pointer: int,
        size: int,
        owner: object = None,
        finalizer: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(context, size, owner, finalizer)
        self.host_pointer = pointer


class MappedMemory(PinnedMemory):
    """Page-locked host memory that is mapped for the device, as returned by ``memhostalloc`` and
    ``mempin`` if ``mapped`` is true. The package asks the driver for its device address."""
