"""The exceptions of this package, which derive from :class:`CudaError`."""

from __future__ import annotations

__all__ = [
    "ArrayInterfaceError",
    "ClosedError",
    "CompileError",
    "CompilerNotFoundError",
    "CudaError",
    "DriverError",
    "DriverNotFoundError",
    "ExchangeError",
    "FatalError",
    "ForkedError",
    "InvalidArgumentError",
    "InvalidValueError",
    "MaskedArrayError",
    "MissingFunctionError",
    "NoDeviceError",
    "OutOfMemoryError",
    "ReadOnlyError",
]


class CudaError(RuntimeError):
    """The base class of all exceptions of this package.

    ``code`` is the driver's error code and ``name`` its name in C (``"CUDA_ERROR_OUT_OF_MEMORY"``).
    Both are ``None`` if the error does not come from a driver call.
    """

    code: int | None
    name: str | None

    def __init__(self, message: str, code: int | None = None, name: str | None = None) -> None:
        super().__init__(message, code, name)
        self.code = code
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


class DriverError(CudaError):
    """A driver function returned an error code."""


class OutOfMemoryError(DriverError, MemoryError):
    """Not enough device memory is available, or the limit of the memory manager is reached."""


class FatalError(DriverError):
    """The process cannot use the GPU any more, for example after an illegal address. Start a new
    process."""


class DriverNotFoundError(CudaError):
    """No NVIDIA driver was found; the message names the searched places."""


class NoDeviceError(CudaError):
    """The driver finds no GPU that this process may use."""


class MissingFunctionError(CudaError, NotImplementedError):
    """The driver is too old; the message names the required version."""


class ForkedError(CudaError):
    """The process was forked from one that had initialized CUDA, so CUDA does not work in it.

    Use the start method "spawn" or "forkserver" of ``multiprocessing``.
    """


class InvalidArgumentError(CudaError, ValueError):
    """An argument is invalid."""


class InvalidValueError(DriverError, InvalidArgumentError):
    """The driver refused an argument (``CUDA_ERROR_INVALID_VALUE``)."""


class ArrayInterfaceError(InvalidArgumentError):
    """A ``__cuda_array_interface__`` is invalid; the message names the key."""


class MaskedArrayError(ArrayInterfaceError, NotImplementedError):
    """An array has a mask, which this package does not support."""


class ExchangeError(InvalidArgumentError, BufferError):
    """An array cannot be exchanged through DLPack, or is not supported by this package."""


class ReadOnlyError(InvalidArgumentError):
    """An array must not be written, because its producer marked it as read-only."""


class CompileError(CudaError):
    """The compiler rejected a program or an option; the message contains its log."""


class CompilerNotFoundError(CudaError):
    """NVRTC was not found; the message names the searched places."""


class ClosedError(InvalidArgumentError):
    """An object was used after it was closed."""


# Show the public module in tracebacks, not this file.
for _name in __all__:
    globals()[_name].__module__ = "cuda_safe"
