"""Makes PyTorch allocate with the memory manager of this package.

Before PyTorch's first use of CUDA::

    import cuda_safe.torch

    cuda_safe.torch.use()

The memory manager is the one chosen by :func:`cuda_safe.set_memory_manager`, by default the caching pool.
Importing this module imports ``torch``; importing ``cuda_safe`` does not.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _native

__all__ = ["allocator", "know_streams", "use"]

_torch: Any = importlib.import_module("torch")

# More streams than PyTorch has for one priority.
_STREAMS = 1024


def allocator() -> Any:
    """Returns a `torch.cuda.memory.CUDAPluggableAllocator` that uses C functions of this package, for
    `torch.cuda.memory.change_current_allocator` or a `torch.cuda.MemPool`.

    Memory is ordered on the stream that is current at the allocation, if it is a default stream or one that
    :func:`know_streams` has registered. Other memory, and memory with `record_stream`, is reused after all
    work of the device. If memory is insufficient, and for an allocation during a capture, PyTorch raises a
    `RuntimeError`. PyTorch's own statistics and settings (`memory_allocated`, `memory_stats`,
    `PYTORCH_CUDA_ALLOC_CONF`) do not apply to pluggable allocators: see
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
    """Registers the streams that PyTorch has created for a device, by default the current one, and returns
    their number. PyTorch reuses these streams and never destroys them. This call initializes CUDA there."""
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
    """Makes PyTorch allocate with this package. PyTorch must not have used CUDA before. This registers the
    streams of PyTorch's current device; call :func:`know_streams` for those of other devices."""
    _torch.cuda.memory.change_current_allocator(allocator())
    know_streams()
