"""The other libraries, each with the few functions that the tests need."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import SIMULATED as SIMULATED
from conftest import missing

import cuda_safe
from cuda_safe import as_cuda_array, from_dlpack

# Otherwise JAX allocates most of the memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# About a quarter of a second, which is long compared to all other work of the tests. No test waits for it twice.
CYCLES = 400_000_000

SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) { }
}
"""


# What a library refuses, through which protocol, and with which error; a test is then skipped. Other
# versions may support it. All other operations that the tests use must work.
REFUSED: dict[tuple[str, str, str], type[Exception] | tuple[type[Exception], ...]] = {
    # It does not report whether it supports them, or how it refuses one.
    ("jax", "interface", "consumer"): Exception,
    # Indexing its arrays does not support None.
    ("numba", "interface", "repeated"): IndexError,
    # It has no such type.
    ("torch", "interface", "void"): TypeError,
    # It asks the driver for the kind of memory at address 0.
    ("cupy", "dlpack", "no elements"): RuntimeError,
    # Older versions ask for the device of address 0.
    ("torch", "interface", "no elements"): (RuntimeError, ValueError),
    # It also compares the strides of empty arrays.
    ("jax", "dlpack", "no elements"): RuntimeError,
    ("torch", "interface", "read-only"): TypeError,
    # This requires a consumer that requests a versioned tensor; other versions are refused by this package.
    ("cupy", "dlpack", "read-only"): BufferError,
    ("torch", "dlpack", "read-only"): BufferError,
    ("jax", "dlpack", "read-only"): BufferError,
}


class CuPy:
    name = "cupy"
    dtypes = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
    interface = dlpack = True
    # The protocols with which it orders its own work.
    keeps_stream = True
    exports_stream = True
    writes = True
    # It writes into read-only arrays, unless it refuses them.
    ignores_read_only = True
    strided = reversed = True

    def __init__(self) -> None:
        import cupy

        self.lib = cupy
        cupy.cuda.runtime.getDeviceCount()
        self.spin = cupy.RawKernel(SPIN, "spin")

    def make(self, host: Any) -> Any:
        return self.lib.asarray(host)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        return self.lib.broadcast_to(array, shape)

    def host(self, array: Any) -> Any:
        return self.lib.asnumpy(array)

    def from_interface(self, array: Any) -> Any:
        return self.lib.asarray(array)

    def from_dlpack(self, array: Any) -> Any:
        return self.lib.from_dlpack(array)

    def stream(self) -> Any:
        return self.lib.cuda.Stream(non_blocking=True)

    def external(self, handle: int) -> Any:
        if not hasattr(self.lib.cuda.Stream, "from_external"):
            return self.lib.cuda.ExternalStream(handle)

        class Handle:
            def __cuda_stream__(self) -> tuple[int, int]:
                return 0, handle

        return self.lib.cuda.Stream.from_external(Handle())

    def on(self, stream: Any) -> Any:
        return stream

    def slow(self) -> None:
        self.spin((1,), (1,), (np.int64(CYCLES),))

    def fill(self, array: Any, value: int) -> None:
        array.fill(value)

    def synchronize(self) -> None:
        self.lib.cuda.runtime.deviceSynchronize()


class Torch:
    name = "torch"
    dtypes = ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
    interface = dlpack = True
    keeps_stream = exports_stream = False
    writes = ignores_read_only = True
    strided, reversed = True, False

    def __init__(self) -> None:
        import torch

        self.lib = torch
        if not torch.cuda.is_available():
            raise ImportError("it sees no GPU")

    def make(self, host: Any) -> Any:
        array = self.lib.from_numpy(np.ascontiguousarray(host).reshape(host.shape)).cuda()
        return array

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        return array.expand(shape)

    def host(self, array: Any) -> Any:
        return array.cpu().numpy()

    def from_interface(self, array: Any) -> Any:
        return self.lib.as_tensor(array, device="cuda")

    def from_dlpack(self, array: Any) -> Any:
        return self.lib.from_dlpack(array)

    def stream(self) -> Any:
        return self.lib.cuda.Stream()

    def external(self, handle: int) -> Any:
        return self.lib.cuda.ExternalStream(handle)

    def on(self, stream: Any) -> Any:
        return self.lib.cuda.stream(stream)

    def slow(self) -> None:
        self.lib.cuda._sleep(CYCLES)

    def fill(self, array: Any, value: int) -> None:
        array.fill_(value)

    def synchronize(self) -> None:
        self.lib.cuda.synchronize()


class Numba:
    name = "numba"
    dtypes = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
    interface, dlpack = True, False
    keeps_stream = exports_stream = True
    writes = ignores_read_only = True
    strided, reversed = True, False

    def __init__(self) -> None:
        # Versions of Numba from before NumPy 2.5 use this alias, which NumPy 2.5 has removed.
        if not hasattr(np, "row_stack"):
            np.row_stack = np.vstack  # type: ignore[attr-defined]
        from numba import cuda

        if not cuda.is_available():
            raise ImportError("it sees no GPU")
        self.lib = cuda
        self.current: Any = None
        self.streams: list[cuda_safe.Stream] = []

        @cuda.jit
        def spin(cycles):  # type: ignore[no-untyped-def]
            # A number of sleeps of at most a millisecond each.
            for _ in range(cycles):
                cuda.nanosleep(1_000_000)

        @cuda.jit
        def fill(array, value):  # type: ignore[no-untyped-def]
            index = cuda.grid(1)
            if index < array.size:
                array[index] = value

        self._spin, self._fill = spin, fill

    def make(self, host: Any) -> Any:
        return self.lib.to_device(np.ascontiguousarray(host).reshape(host.shape), stream=self.current or 0)

    def host(self, array: Any) -> Any:
        return array.copy_to_host(stream=self.current or 0)

    def from_interface(self, array: Any) -> Any:
        return self.lib.as_cuda_array(array)

    def stream(self) -> Any:
        # Not one of Numba's streams: these are ordered with the legacy default stream, and so with every
        # copy to the host.
        self.streams.append(cuda_safe.Stream())
        return self.external(self.streams[-1].handle)

    def external(self, handle: int) -> Any:
        return self.lib.external_stream(handle)

    @contextlib.contextmanager
    def on(self, stream: Any) -> Any:
        before, self.current = self.current, stream
        try:
            yield stream
        finally:
            self.current = before

    def slow(self) -> None:
        self._spin[1, 1, self.current or 0](250)

    def fill(self, array: Any, value: int) -> None:
        self._fill[(array.size + 127) // 128, 128, self.current or 0](array, value)

    def synchronize(self) -> None:
        self.lib.synchronize()


class Jax:
    name = "jax"
    dtypes = ["?", "i1", "u2", "i4", "u4", "f2", "f4", "c8"]
    interface = dlpack = True
    keeps_stream = exports_stream = False
    writes = False
    strided = reversed = False

    def __init__(self) -> None:
        import jax

        self.lib = jax
        self.device = jax.devices("gpu")[0]

    def make(self, host: Any) -> Any:
        # JAX's array interface does not wait for the array and has no stream.
        return self.lib.device_put(host, self.device).block_until_ready()

    def host(self, array: Any) -> Any:
        return np.asarray(array)

    def from_interface(self, array: Any) -> Any:
        return self.lib.numpy.asarray(array)

    def from_dlpack(self, array: Any) -> Any:
        return self.lib.dlpack.from_dlpack(array)

    def synchronize(self) -> None:
        self.lib.block_until_ready(self.lib.numpy.zeros(1))

    def slow_add(self) -> Any:
        """Returns a function that adds one to an array after a long time, without a wait."""
        one = self.lib.numpy.eye(8192, dtype="float32")

        @self.lib.jit
        def add(array, one):  # type: ignore[no-untyped-def]
            product = one
            for _ in range(16):
                product = product @ one
            # The value is 1, but the compiler cannot know this.
            return array + product[0, 0].astype(array.dtype)

        return lambda array: add(array, one)


PEERS = [CuPy, Torch, Numba, Jax]
PROTOCOLS = {"interface": as_cuda_array, "dlpack": from_dlpack}
EVERY = [(kind, protocol) for kind in PEERS for protocol in PROTOCOLS if getattr(kind, protocol)]
IDS = [f"{kind.name}-{protocol}" for kind, protocol in EVERY]
every = pytest.mark.parametrize(("kind", "protocol"), EVERY, ids=IDS)
_made: dict[type, Any] = {}


def get(kind: type) -> Any:
    """Returns the library, or skips with the reason why it is not available."""
    if SIMULATED:
        pytest.skip("the other libraries need a GPU")
    if kind not in _made:
        try:
            # It shares the primary context.
            cuda_safe.Device(0).context.synchronize()
            _made[kind] = kind()
        except Exception as why:
            _made[kind] = f"{kind.name}: {why}"  # type: ignore[attr-defined]
    if isinstance(_made[kind], str):
        missing(_made[kind])
    return _made[kind]


def give(peer: Any, protocol: str, array: Any) -> Any:
    """Passes an array of this package to the other library."""
    take = getattr(peer, f"from_{protocol}")
    return theirs(peer, protocol, "consumer", lambda: take(array))


def theirs(peer: Any, protocol: str, what: str, action: Callable[[], Any]) -> Any:
    """Runs an action that the other library may refuse, but this package may not."""
    try:
        return action()
    except cuda_safe.CudaError:
        raise
    except REFUSED.get((peer.name, protocol, what), ()) as why:
        pytest.skip(f"{peer.name} refuses: {why!r:.200}")
