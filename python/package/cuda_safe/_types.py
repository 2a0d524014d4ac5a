"""Small types of the package."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MemoryInfo"]


class MemoryInfo(NamedTuple):
    """Device memory, in bytes."""

    free: int
    """Free for allocations, of this process or another."""
    total: int
    """All that the device has."""
