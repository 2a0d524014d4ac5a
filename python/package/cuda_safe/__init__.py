"""Arrays of a GPU that flow to and from CuPy, PyTorch, Numba and JAX without a copy.

A :class:`DeviceArray` is memory of a device in the order of a :class:`Stream`. Others take it, and it
takes theirs, by the CUDA Array Interface and by DLPack, in order with their streams::

    import cuda_safe, cupy

    array = cuda_safe.DeviceArray.zeros((3, 4), "float32")
    cupy.asarray(array)[1] = 7
    array[1:, ::-1].copy_to_host()

:func:`set_memory_manager` chooses who allocates: for these arrays, and for Numba, CuPy and PyTorch by the
modules ``cuda_safe.numba``, ``cuda_safe.cupy`` and ``cuda_safe.torch``, so that one pool serves all.

Importing the package needs no driver: the first use says what is missing. All exceptions are
:class:`CudaError`.
"""

from __future__ import annotations

import atexit
import os

# Here, and not at its first use: a fork in the middle of an import keeps that from coming to its end.
from . import _host as _host
from ._errors import (
    ArrayInterfaceError,
    ClosedError,
    CudaError,
    DriverError,
    DriverNotFoundError,
    ExchangeError,
    FatalError,
    ForkedError,
    InvalidArgumentError,
    InvalidValueError,
    MaskedArrayError,
    MissingFunctionError,
    NoDeviceError,
    OutOfMemoryError,
    ReadOnlyError,
)
from ._native import (
    Config,
    Context,
    Device,
    DeviceArray,
    Event,
    GreenContext,
    MemoryManager,
    SmGroup,
    SmResource,
    Stream,
    as_cuda_array,
    config,
    driver_version,
    from_cuda_array_interface,
    from_dlpack,
    leaked,
    memory_manager,
    pointer_attributes,
    set_memory_manager,
)
from ._native import _end, _forked
from ._types import MemoryInfo, MemoryStatistics, PointerAttributes

__all__ = [
    "ArrayInterfaceError",
    "ClosedError",
    "Config",
    "Context",
    "CudaError",
    "Device",
    "DeviceArray",
    "DriverError",
    "DriverNotFoundError",
    "Event",
    "ExchangeError",
    "FatalError",
    "ForkedError",
    "GreenContext",
    "InvalidArgumentError",
    "InvalidValueError",
    "MaskedArrayError",
    "MemoryInfo",
    "MemoryManager",
    "MemoryStatistics",
    "MissingFunctionError",
    "NoDeviceError",
    "OutOfMemoryError",
    "PointerAttributes",
    "ReadOnlyError",
    "SmGroup",
    "SmResource",
    "Stream",
    "as_cuda_array",
    "config",
    "driver_version",
    "from_cuda_array_interface",
    "from_dlpack",
    "leaked",
    "memory_manager",
    "pointer_attributes",
    "set_memory_manager",
]

atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
