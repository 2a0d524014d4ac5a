"""Small types of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._native import Device

__all__ = ["MemoryInfo", "MemoryStatistics", "PointerAttributes"]


class MemoryInfo(NamedTuple):
    """Amounts of device memory in bytes."""

    free: int
    """The memory that is free for allocations, of this or another process."""
    total: int
    """The total memory of the device."""


class PointerAttributes(NamedTuple):
    """What the driver reports about memory."""

    device: Device | None
    """The device on which the memory was allocated or registered."""
    memory_type: str
    """``"device"`` (also for managed memory), or ``"host"`` for page-locked host memory."""
    start: int
    """The first address of the allocation."""
    size: int
    """The size of the allocation in bytes."""
    managed: bool
    """Whether the memory is managed."""
    context: int | None
    """The handle of the context that owns the memory, as in ``Context.handle``. Memory of a pool or of
    virtual memory management belongs to the device, and has None."""
    host_address: int | None
    """The address at which the host accesses this address, or None if it cannot access the memory."""


class MemoryStatistics(NamedTuple):
    """Statistics of a memory manager. Unless noted otherwise, bytes are requested bytes. A value that the
    manager does not know is None."""

    used: int = 0
    """The number of bytes in use."""
    used_peak: int = 0
    """The maximum of ``used``."""
    allocated: int = 0
    """The number of allocations so far."""
    freed: int = 0
    """The number of frees so far."""
    failed: int = 0
    """The number of allocations that failed because memory was insufficient."""
    cached: int = 0
    """The number of bytes that are not in use: cached, or waiting to be freed."""
    reserved: int | None = None
    """The number of bytes that the manager has reserved from the driver. For "ordered" this is the reserved
    memory of the device's default pool, including other users of that pool."""
    reserved_peak: int | None = None
    """The maximum of ``reserved``."""
    slabs_added: int | None = None
    """The number of requests to the driver for memory."""
    hits: int | None = None
    """The number of allocations from the cache of the calling thread."""
    misses: int | None = None
    """The number of allocations that searched the shared pool."""
    stream_waits: int | None = None
    """The number of times that a stream had to wait for the work of another stream."""
    host_waits: int | None = None
    """The number of times that the host waited for all work of the device."""
    fragmentation: float | None = None
    """The fragmentation of cached memory: 0 for one piece, close to 1 for many small pieces."""
