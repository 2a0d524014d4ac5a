"""GPU arrays that CuPy, PyTorch, Numba and JAX can use without a copy.

A :class:`DeviceArray` is device memory that is ordered on a :class:`Stream`. It can be exported to and
imported from other libraries through the CUDA Array Interface and DLPack, ordered with their streams::

    import cuda_safe, cupy, numpy

    array = cuda_safe.DeviceArray.from_host(numpy.eye(3, 4))
    cupy.asarray(array)[1] = 7
    numpy.from_dlpack(array[1:, ::-1], device="cpu")

:func:`compile` compiles a kernel from CUDA C++ at run time.

``with stream.capture() as graph:`` captures work, also that of other libraries, which can then be launched
many times.

:func:`set_memory_manager` chooses the memory manager for these arrays. The modules ``cuda_safe.numba``,
``cuda_safe.cupy`` and ``cuda_safe.torch`` let those libraries use the same one, so that they share one
pool.

Importing the package does not require a driver; if something is missing, the first use raises an
exception that names it. All exceptions derive from :class:`CudaError`.
"""

import atexit as _atexit
import os as _os

# Imported here rather than at its first use: a fork during an import would leave it incomplete.
from . import _host as _host
from ._errors import (
    ArrayInterfaceError,
    ClosedError,
    CompileError,
    CompilerNotFoundError,
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
    ExecutableGraph,
    Graph,
    GreenContext,
    Kernel,
    MemoryManager,
    Module,
    PinnedArray,
    SmGroup,
    SmResource,
    Stream,
    as_cuda_array,
    compile,
    config,
    driver_version,
    from_cuda_array_interface,
    from_dlpack,
    leaked,
    memory_manager,
    pointer_attributes,
    set_memory_manager,
)
from ._native import __version__, _end, _forked
from ._types import MemoryInfo, MemoryStatistics, PointerAttributes

__all__ = [
    "ArrayInterfaceError",
    "ClosedError",
    "CompileError",
    "CompilerNotFoundError",
    "Config",
    "Context",
    "CudaError",
    "Device",
    "DeviceArray",
    "DriverError",
    "DriverNotFoundError",
    "Event",
    "ExchangeError",
    "ExecutableGraph",
    "FatalError",
    "ForkedError",
    "Graph",
    "GreenContext",
    "InvalidArgumentError",
    "InvalidValueError",
    "Kernel",
    "MaskedArrayError",
    "MemoryInfo",
    "MemoryManager",
    "MemoryStatistics",
    "MissingFunctionError",
    "Module",
    "NoDeviceError",
    "OutOfMemoryError",
    "PinnedArray",
    "PointerAttributes",
    "ReadOnlyError",
    "SmGroup",
    "SmResource",
    "Stream",
    "__version__",
    "as_cuda_array",
    "compile",
    "config",
    "driver_version",
    "from_cuda_array_interface",
    "from_dlpack",
    "leaked",
    "memory_manager",
    "pointer_attributes",
    "set_memory_manager",
]

_atexit.register(_end)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_forked)
