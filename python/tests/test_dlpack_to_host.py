"""DLPack export to the host, as the array API standard defines it."""

import ctypes
import os

import numpy as np
import pytest
from tensors import LEGACY, VERSIONED, Consumer, is_valid, tensor_of

import cuda_safe
from cuda_safe import DeviceArray, Stream, from_dlpack

HOST = (1, 0)
READ_ONLY, COPIED = 1, 2


class Exchanged:
    """An object with a given capsule."""

    def __init__(self, capsule, device=HOST):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_arguments):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def on_host(array, **arguments):
    """Returns NumPy's array of a tensor on the host."""
    return np.from_dlpack(Exchanged(array.__dlpack__(dl_device=HOST, **arguments)))


@pytest.fixture(params=["pinned", "managed"])
def accessible(request, device):
    """An array in memory that the host can access too, and the device type of this memory."""
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    with device:
        if request.param == "pinned":
            kind, start = 3, ctypes.c_void_p()
            allocate, free = library.cuMemHostAlloc, library.cuMemFreeHost
        else:
            kind, start = 13, ctypes.c_uint64()
            allocate, free = library.cuMemAllocManaged, library.cuMemFree_v2
        assert allocate(ctypes.byref(start), ctypes.c_size_t(24), ctypes.c_uint(1)) == 0
    interface = dict(version=3, shape=(2, 3), typestr="<f4", data=(start.value, False), strides=None)
    stream = Stream()
    array = cuda_safe.from_cuda_array_interface({**interface, "stream": stream.handle}, stream)
    assert array.__dlpack_device__()[0] == kind
    concurrent = device.attribute(89)  # CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
    if request.param == "managed" and not concurrent:
        pytest.skip("the host cannot access managed memory while the device works")
    yield array
    array.synchronize()
    with device:
        assert free(start) == 0


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16"])
def test_the_elements_are_copied_to_the_host(device, dtype):
    host = np.random.default_rng(2).integers(0, 2, (3, 4, 5)).astype(dtype)
    array = DeviceArray.from_host(host)
    for key in [..., (slice(None, None, -1), 1), (slice(1, 1),), (0, 0, 0), (..., None, slice(0, 5, 2))]:
        copied = on_host(array[key], max_version=(1, 0))
        assert copied.dtype == host.dtype and copied.shape == host[key].shape
        assert copied.tobytes() == host[key].tobytes()
    assert on_host(array.T).tobytes() == host.T.tobytes()


@pytest.mark.parametrize(
    ("arguments", "version"),
    [
        ({}, LEGACY),
        ({"max_version": None}, LEGACY),
        ({"max_version": (0, 8)}, LEGACY),
        ({"max_version": (1, 0)}, VERSIONED),
        ({"max_version": (10, 10)}, VERSIONED),
    ],
)
@pytest.mark.parametrize("copy", [None, True])
def test_the_description_of_a_copy(device, arguments, version, copy):
    array = DeviceArray.zeros((3, 4), "f4")
    capsule = array[:, ::2].__dlpack__(dl_device=HOST, copy=copy, **arguments)
    assert is_valid(capsule, version)
    managed = tensor_of(capsule)
    tensor = managed.tensor
    assert (tensor.device_type, tensor.device_id) == HOST
    assert (tensor.data + tensor.byte_offset) % 256 == 0
    assert tensor.shape[:2] == [3, 2] and tensor.strides[:2] == [2, 1]
    if version is VERSIONED:
        assert (managed.major, managed.flags) == (1, COPIED)


def test_device_memory_cannot_be_exported_to_the_host_without_a_copy(device):
    array = DeviceArray.zeros(3)
    for version in (None, (1, 0)):
        with pytest.raises(BufferError, match="copy=False is not possible.*PinnedArray"):
            array.__dlpack__(dl_device=HOST, copy=False, max_version=version)


def test_a_copy_of_a_read_only_array_can_be_written(device):
    frozen = DeviceArray.full(3, 5, "i4").as_read_only()
    # The format before version 1 can express the copy, but not the array.
    assert on_host(frozen).tolist() == [5, 5, 5]
    copied = on_host(frozen, max_version=(1, 0))
    copied[:] = 6
    assert frozen.copy_to_host().tolist() == [5, 5, 5]
    assert tensor_of(frozen.__dlpack__(max_version=(1, 0), copy=True)).flags == COPIED
    assert is_valid(frozen.__dlpack__(copy=True), LEGACY)


def test_the_copy_waits_for_the_work_on_the_array(device):
    """With the software driver, work runs as late as possible, so a missing wait would be detected."""
    stream = Stream()
    array = DeviceArray.zeros(1000, "i4", stream=stream)
    for number in range(1, 20):
        array.fill(number)
        # The host has no streams: an argument, as PyTorch passes it, has no effect.
        arguments = {} if number % 2 else {"stream": [-1, 1, 2, Stream().handle][number % 4]}
        copied = on_host(array, **arguments)
        array.fill(-number)
        assert (copied == number).all()


def test_numpy_requests_the_export(device):
    array = DeviceArray.from_host(np.arange(6, dtype="f4").reshape(2, 3))
    copied = np.from_dlpack(array.T, device="cpu")
    assert copied.tolist() == [[0, 3], [1, 4], [2, 5]]
    copied[:] = 1
    copied = np.from_dlpack(array, device="cpu", copy=True)
    assert copied.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(BufferError):
        np.from_dlpack(array, device="cpu", copy=False)


def test_types_without_a_numpy_type_keep_their_type(device):
    array = DeviceArray.from_host(np.arange(6, dtype="u2"))
    capsule = array.__dlpack__(stream=-1)
    # The type is bfloat16.
    tensor_of(capsule).tensor.code = 4
    imported = from_dlpack(Exchanged(capsule, (2, 0)))
    capsule = imported.__dlpack__(dl_device=HOST, max_version=(1, 0))
    tensor = tensor_of(capsule).tensor
    assert (tensor.code, tensor.bits) == (4, 16)
    assert ctypes.string_at(tensor.data, 12) == np.arange(6, dtype="u2").tobytes()


def test_types_that_dlpack_does_not_have_are_refused_before_the_copy(device):
    for dtype in ("M8[s]", ">f4", "S3"):
        with pytest.raises(BufferError, match="dtype"):
            DeviceArray.zeros(3, dtype).__dlpack__(dl_device=HOST)


def test_a_copy_on_the_host_needs_no_array_and_no_gil_to_be_released(device):
    array = DeviceArray.full(4, 7, "i4")
    consumer = Consumer(array.__dlpack__(dl_device=HOST))
    data = consumer.managed.tensor.data
    array.close()
    del array
    assert ctypes.string_at(data, 16) == np.full(4, 7, "i4").tobytes()
    consumer.delete()


def test_memory_that_the_host_can_access_is_shared(accessible):
    array = accessible
    array.fill(3)
    shared = on_host(array)
    assert shared.tolist() == [[3] * 3] * 2
    for copy in (None, False):
        capsule = array.__dlpack__(dl_device=HOST, copy=copy, max_version=(1, 0))
        managed = tensor_of(capsule)
        assert (managed.tensor.device_type, managed.tensor.device_id, managed.flags) == (1, 0, 0)
        assert managed.tensor.data == shared.ctypes.data
        assert np.may_share_memory(on_host(array, copy=copy), shared)
    reversed_view = on_host(array[::-1, 1:], copy=False, max_version=(1, 0))
    reversed_view[:] = [[1, 2], [3, 4]]
    assert array.copy_to_host().tolist() == [[3, 3, 4], [3, 1, 2]]
    copied = on_host(array, copy=True, max_version=(1, 0))
    assert not np.may_share_memory(copied, shared)
    assert copied.tolist() == [[3, 3, 4], [3, 1, 2]]
    capsule = array.__dlpack__(dl_device=HOST, copy=True, max_version=(1, 0))
    assert tensor_of(capsule).flags == COPIED


def test_shared_memory_stays_read_only(accessible):
    frozen = accessible.as_read_only()
    capsule = frozen.__dlpack__(dl_device=HOST, max_version=(1, 0))
    assert tensor_of(capsule).flags == READ_ONLY
    assert not on_host(frozen, max_version=(1, 0)).flags.writeable
    # The format before version 1 cannot express this.
    with pytest.raises(BufferError, match="read-only"):
        frozen.__dlpack__(dl_device=HOST)


def test_shared_memory_is_exported_after_the_work_on_it(accessible):
    for number in range(1, 20):
        accessible.fill(number)
        assert (on_host(accessible) == number).all()


def test_a_consumer_without_a_stream_may_be_the_host(accessible):
    for number in range(1, 20):
        accessible.fill(number)
        assert (np.from_dlpack(accessible) == number).all()
        accessible.fill(-number)
        assert (np.from_dlpack(accessible, copy=True) == -number).all()


def test_a_copy_is_in_memory_of_the_same_kind(accessible):
    accessible.fill(5)
    own = accessible.__dlpack_device__()
    for dl_device in (None, own):
        capsule = accessible.__dlpack__(max_version=(1, 0), dl_device=dl_device, copy=True)
        managed = tensor_of(capsule)
        assert (managed.tensor.device_type, managed.tensor.device_id) == own
        assert managed.flags == COPIED
        copied = np.from_dlpack(Exchanged(capsule, own))
        accessible.fill(6)
        assert copied.tolist() == [[5] * 3] * 2
        accessible.fill(5)
    capsule = accessible.__dlpack__(max_version=(1, 0), dl_device=(2, 0), copy=True)
    assert tensor_of(capsule).tensor.device_type == 2
