"""CuPy allocates through the memory manager of this package.

::

    import cupy, cuda_safe.cupy

    cupy.cuda.set_allocator(cuda_safe.cupy.allocator)    # or cuda_safe.cupy.use()

Which manager that is says :func:`cuda_safe.set_memory_manager`; without that it is the caching pool.
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

# What each allocation needs: looking it up there would cost as much as the allocation.
_current_device: Any = _cupy.cuda.device.get_device_id
_current_stream: Any = _cupy.cuda.get_current_stream
_TheirStream: Any = _cupy.cuda.Stream
_UnownedMemory: Any = _cupy.cuda.UnownedMemory
_MemoryPointer: Any = _cupy.cuda.MemoryPointer

_allocates: dict[int, Callable[..., _Memory]] = {}

# Streams by device and handle, each with CuPy's object, which this keeps: so the handle is no other
# stream's meanwhile. Those that were not current for the longest time go first; memory that is in their
# order keeps them.
_streams: OrderedDict[tuple[int, int], tuple[Any, Stream]] = OrderedDict()
_STREAMS = 64

# The one that was used last: CuPy's object, the device, and ours. It is read and written at once.
_last: tuple[Any, int, Stream | None] = (None, -1, None)


def _stream(theirs: Any, device: int) -> Stream | int:
    """CuPy's stream, if memory can be in its order; else its handle.

    That needs somebody who keeps the stream: an ExternalStream does not. And the default stream of a
    thread is another one where the memory goes on another thread.
    """
    global _last
    handle = int(theirs.ptr)
    key = (device, handle)
    known = _streams.get(key)
    if known is not None:
        try:
            _streams.move_to_end(key)
        except KeyError:  # Another thread has just let go of it.
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
    """Device memory for CuPy, in the order of its current stream, in which it is used again when it is
    freed: as CuPy's own pool does it. While an ExternalStream or the default stream of a thread is
    current it is in nobody's order: used again behind all work of the device.

    Work on other streams is for you to put in order before an array goes, as with CuPy's pool. A stream
    that is captured is refused.
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
    # CuPy keeps the owner as long as it uses the address.
    return _MemoryPointer(_UnownedMemory(memory.address, size, memory, device), 0)


def use() -> None:
    """`cupy.cuda.set_allocator(allocator)`: CuPy allocates here from now on."""
    _choose_memory_manager()
    _cupy.cuda.set_allocator(allocator)
