"""What can go wrong. All of it is a :class:`CudaError`."""

from __future__ import annotations

__all__ = [
    "ArrayInterfaceError",
    "ClosedError",
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
    """Something did not happen; the base of all exceptions of this package.

    ``code`` is the number of the driver's error and ``name`` its name in C
    (``"CUDA_ERROR_OUT_OF_MEMORY"``); both are ``None`` where the driver was not asked.
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
    """A function of the driver answered an error code."""


class OutOfMemoryError(DriverError, MemoryError):
    """There is not as much memory on the device."""


class FatalError(DriverError):
    """The process cannot use the GPU any more (after an illegal address, say): only a new one can."""


class DriverNotFoundError(CudaError):
    """There is no NVIDIA driver on this machine; the message says where it was looked for."""


class NoDeviceError(CudaError):
    """There is a driver, and no GPU that this process may use."""


class MissingFunctionError(CudaError, NotImplementedError):
    """The driver is too old for this; the message says which version has it."""


class ForkedError(CudaError):
    """This process was forked from one that had started CUDA, where CUDA does not work.

    Use the start method "spawn" or "forkserver" of ``multiprocessing``.
    """


class InvalidArgumentError(CudaError, ValueError):
    """An argument that cannot be right."""


class InvalidValueError(DriverError, InvalidArgumentError):
    """An argument that the driver did not take (``CUDA_ERROR_INVALID_VALUE``)."""


class ArrayInterfaceError(InvalidArgumentError):
    """A ``__cuda_array_interface__`` that cannot be right; the message names the key."""


class MaskedArrayError(ArrayInterfaceError, NotImplementedError):
    """An array with a mask, which this package does not support."""


class ExchangeError(InvalidArgumentError, BufferError):
    """An array that DLPack, or this side of it, cannot hand over."""


class ReadOnlyError(InvalidArgumentError):
    """An array that its producer says must not be written."""


class ClosedError(InvalidArgumentError):
    """An object that was closed before."""


# They are the package's, whichever file they are in.
for _name in __all__:
    globals()[_name].__module__ = "cuda_safe"
