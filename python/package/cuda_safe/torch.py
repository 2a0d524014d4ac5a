"""PyTorch allocates through the memory manager of this package.

Before its first use of CUDA::

    import cuda_safe.torch

    cuda_safe.torch.use()

Which manager that is says :func:`cuda_safe.set_memory_manager`; without that it is the caching pool.
Importing this module imports ``torch``; importing ``cuda_safe`` does not.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _native

__all__ = ["allocator", "know_streams", "use"]

_torch: Any = importlib.import_module("torch")

# More than PyTorch has of a priority.
_STREAMS = 1024


def allocator() -> Any:
    """A `torch.cuda.memory.CUDAPluggableAllocator`, of functions of C that this package exports: for
    `torch.cuda.memory.change_current_allocator`, or a `torch.cuda.MemPool`.

    Memory is in the order of the stream that is current when it is allocated, if that is a default stream
    or one that :func:`know_streams` has seen, and otherwise in nobody's: then it is used again behind all
    work of the device. So is memory with `record_stream`. Where there is too little memory PyTorch raises
    a `RuntimeError`, and for an allocation in a capture too. PyTorch's own figures and settings
    (`memory_allocated`, `memory_stats`, `PYTORCH_CUDA_ALLOC_CONF`) are not for such allocators: see
    `cuda_safe.memory_manager().statistics()`.
    """
    _native._choose_memory_manager()
    made = _torch.cuda.memory.CUDAPluggableAllocator(
        _native.__file__, "cuda_safe_torch_allocate", "cuda_safe_torch_free"
    )
    record = _native._torch_functions()[2]
    made.allocator().set_record_stream_fn(record)
    return made


def know_streams(device: int | None = None) -> int:
    """Notes the streams that PyTorch has made for a device, or the current one, and hands out again and
    again: how many those are. PyTorch never destroys them. It starts CUDA there."""
    if device is None:
        device = int(_torch.cuda.current_device())
    handles: set[int] = set()
    lowest, highest = 0, -1
    if hasattr(_torch.cuda.Stream, "priority_range"):
        lowest, highest = _torch.cuda.Stream.priority_range()
    for priority in range(highest, lowest + 1):
        seen: set[int] = set()
        for _ in range(_STREAMS):
            handle = int(_torch.cuda.Stream(device, priority=priority).cuda_stream)
            if handle in seen:
                break
            seen.add(handle)
        handles |= seen
    _native._torch_streams(device, sorted(handles))
    return len(handles)


def use() -> None:
    """PyTorch allocates here from now on; its CUDA must not have been used. The streams of its current
    device are known then; of others say so by :func:`know_streams`."""
    _torch.cuda.memory.change_current_allocator(allocator())
    know_streams()
