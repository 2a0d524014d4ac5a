"""Makes CuPy allocate with the memory manager of this package.

::

    import cupy, cuda_safe.cupy

    cupy.cuda.set_allocator(cuda_safe.cupy.allocator)    # or cuda_safe.cupy.use()

The memory manager is the one chosen by :func:`cuda_safe.set_memory_manager`, by default the caching pool.
Importing this module imports ``cupy``; importing ``cuda_safe`` does not.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ._native import MemoryManager, Stream, _choose_memory_manager, _Memory

__all__ = ["allocator", "use"]

_cupy: Any = importlib.import_module("cupy")

# These are used by each allocation; looking them up there would cost as much as the allocation.
_current_device: Any = _cupy.cuda.device.get_device_id
_current_stream: Any = _cupy.cuda.get_current_stream
_TheirStream: Any = _cupy.cuda.Stream
_UnownedMemory: Any = _cupy.cuda.UnownedMemory
_MemoryPointer: Any = _cupy.cuda.MemoryPointer

_allocates: dict[int, Callable[..., _Memory]] = {}

# Streams by device and handle, each with CuPy's stream object, which is kept alive here so that the
# handle is not reused for another stream. The streams that were not current for the longest time
# are removed first; memory that is ordered on a stream keeps it alive.
_streams: OrderedDict[tuple[int, int], tuple[Any, Stream]] = OrderedDict()
_STREAMS = 64

# The last used stream: CuPy's object, the device, and our object. The tuple is read and written
# atomically.
_last: tuple[Any, int, Stream | None] = (None, -1, None)


def _stream(theirs: Any, device: int) -> Stream | int:
    """Returns CuPy's stream if memory can be ordered on it, or else its handle.

    This requires that something keeps the stream alive, which an ExternalStream does not. A per-thread
    default stream would be a different stream if the memory is freed on another thread.
    """
    global _last
    handle = int(theirs.ptr)
    key = (device, handle)
    known = _streams.get(key)
    if known is not None:
        try:
            _streams.move_to_end(key)
        except KeyError:  # Another thread has just removed it.
            pass
        if known[0] is theirs:
            _last = (theirs, device, known[1])
        return known[1]
    if handle > 1 and (handle == 2 or type(theirs) is not _TheirStream):
        return handle
    ours = Stream.legacy(device) if handle <= 1 else Stream.from_object(theirs, device=device)
    _streams[key] = (theirs, ours)
    while len(_streams) > _STREAMS:
        try:
            _streams.popitem(last=False)
        except KeyError:
            break
    _last = (theirs, device, ours)
    return ours


def allocator(size: int) -> Any:
    """Allocates device memory for CuPy, ordered on CuPy's current stream. When it is freed, it is reused
    in the order of this stream, as in CuPy's own pool. While an ExternalStream or a per-thread default
    stream is current, the memory is not ordered on a stream: it is reused after all work of the device.

    As with CuPy's pool, the caller must order work on other streams before an array is freed. A
    capturing stream is refused.
    """
    device = _current_device()
    if size == 0:
        return _MemoryPointer(_UnownedMemory(0, 0, None, device), 0)
    theirs = _current_stream(device)
    their_last, its_device, stream = _last
    known = stream if theirs is their_last and device == its_device else _stream(theirs, device)
    allocate = _allocates.get(device)
    if allocate is None:
        allocate = _allocates[device] = MemoryManager._of(device)._allocate
    memory = allocate(size, known)
    # CuPy keeps the owner alive as long as it uses the address.
    return _MemoryPointer(_UnownedMemory(memory.address, size, memory, device), 0)


def use() -> None:
    """Calls `cupy.cuda.set_allocator(allocator)`, which makes CuPy allocate with this package."""
    _choose_memory_manager()
    _cupy.cuda.set_allocator(allocator)
