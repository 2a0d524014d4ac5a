"""Small types of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._native import Device

__all__ = ["MemoryInfo", "MemoryStatistics", "PointerAttributes"]


class MemoryInfo(NamedTuple):
    """Device memory, in bytes."""

    free: int
    """Free for allocations, of this process or another."""
    total: int
    """All that the device has."""


class PointerAttributes(NamedTuple):
    """What the driver knows about memory."""

    device: Device | None
    """The device that the memory was allocated or registered on."""
    memory_type: str
    """``"device"`` (managed memory as well), or ``"host"`` for page-locked host memory."""
    start: int
    """The first address of the allocation."""
    size: int
    """The size of the allocation in bytes."""
    managed: bool
    """Whether it is managed memory."""


class MemoryStatistics(NamedTuple):
    """What a memory manager was asked for, and what it has. Bytes are as they were asked for, where
    nothing else is said; what a manager does not know is None."""

    used: int = 0
    """Bytes that are handed out."""
    used_high: int = 0
    """The most that were at a time."""
    allocated: int = 0
    """Allocations up to now."""
    freed: int = 0
    """Those that were given back."""
    failed: int = 0
    """Those that there was no memory for."""
    kept: int = 0
    """Bytes that are in nobody's hands: kept for the next use, or waiting to be freed."""
    reserved: int | None = None
    """Bytes that the manager has of the driver (of "ordered": those of the device's own pool, whoever
    uses that)."""
    reserved_high: int | None = None
    """The most that it had."""
    grown: int | None = None
    """How often the driver was asked for memory."""
    hits: int | None = None
    """Allocations that a thread had the memory for at hand."""
    misses: int | None = None
    """Those for which the pool had to look."""
    stream_waits: int | None = None
    """How often a stream had to wait for the work of another."""
    host_waits: int | None = None
    """How often the host waited for all work of the device."""
    fragmentation: float | None = None
    """How far what is kept is in pieces: 0 for one piece, near to 1 for many small ones."""
