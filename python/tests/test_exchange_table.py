"""DLPack's C exchange table of DeviceArray."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from tensors import (
    DELETER,
    SET_ERROR,
    TABLE_NAME,
    DLTensor,
    ManagedVersioned,
    Table,
    is_valid,
    pointer_of,
    tensor_of,
)

import cuda_safe
from cuda_safe import DeviceArray, Stream

CAPSULE = DeviceArray.__dlpack_c_exchange_api__
TABLE = Table.from_address(pointer_of(CAPSULE, TABLE_NAME))
HOST, DEVICE, PINNED, MANAGED = 1, 2, 3, 13


def exported(array):
    """Returns a tensor of an array, which the caller deletes."""
    address = ctypes.c_void_p()
    assert TABLE.from_object(array, ctypes.addressof(address)) == 0
    return ManagedVersioned.from_address(address.value)


def delete(managed):
    DELETER(managed.deleter)(ctypes.addressof(managed))


def imported(managed):
    """Returns the array of a tensor, which is consumed."""
    address = ctypes.c_void_p()
    assert TABLE.to_object(ctypes.addressof(managed), ctypes.addressof(address)) == 0
    array = ctypes.cast(address, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(address)
    return array


def borrowed(array):
    tensor = DLTensor()
    assert TABLE.borrow(array, ctypes.addressof(tensor)) == 0
    return tensor


def current_stream(kind=DEVICE, number=0):
    stream = ctypes.c_void_p(77)
    assert TABLE.current_stream(kind, number, ctypes.addressof(stream)) == 0
    return stream.value


def described(tensor):
    ndim = tensor.ndim
    return (
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        (tensor.code, tensor.bits, tensor.lanes),
        tensor.shape[:ndim],
        tensor.strides[:ndim],
    )


def on_stream(array, stream):
    """Returns the same memory as an array on another stream, without any ordering."""
    interface = {**array.__cuda_array_interface__, "stream": stream.handle}
    return cuda_safe.from_cuda_array_interface(interface, stream)


def test_the_type_has_a_table():
    assert is_valid(CAPSULE, TABLE_NAME)
    assert (TABLE.major, TABLE.minor, TABLE.previous) == (1, 3, None)
    for name in ("allocate", "from_object", "to_object", "borrow", "current_stream"):
        assert getattr(TABLE, name), name


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_an_export_describes_the_array(device, dtype):
    array = DeviceArray.zeros((3, 4), dtype)
    views = [array, array.T, array[::-1, ::2], array[1, 1], array[..., None], array[:0], array[2:]]
    for view in views:
        capsule = view.__dlpack__(stream=-1, max_version=(1, 2))
        expected = tensor_of(capsule)
        # The first export of an array creates the description, and the second one uses it.
        for _ in range(2):
            managed = exported(view)
            assert (managed.major, managed.minor) == (expected.major, expected.minor)
            assert managed.flags == 0
            assert described(managed.tensor) == described(expected.tensor)
            delete(managed)
        assert described(borrowed(view)) == described(expected.tensor)


def test_the_read_only_flag_is_exported(device):
    frozen = DeviceArray.zeros(3).as_read_only()
    managed = exported(frozen)
    assert managed.flags == 1
    assert imported(managed).read_only
    # A DLTensor has no flags.
    with pytest.raises(BufferError, match="read-only"):
        borrowed(frozen)


def test_a_tensor_becomes_an_array_on_the_current_stream(device):
    array = DeviceArray.from_host(np.arange(6, dtype="i4"))
    again = imported(exported(array[::2]))
    assert type(again) is DeviceArray and again.stream == device.default_stream
    assert again.copy_to_host().tolist() == [0, 2, 4]
    with Stream() as stream:
        again = imported(exported(array))
        assert again.stream == stream
        assert again.copy_to_host().tolist() == list(range(6))
    # The type is bfloat16.
    managed = exported(DeviceArray.zeros(3, "u2"))
    managed.tensor.code = 4
    again = imported(managed)
    assert again.typestr == "|V2"
    managed = exported(again)
    assert managed.tensor.code == 4
    delete(managed)


def test_a_tensor_is_taken_even_if_it_is_refused(device):
    array = DeviceArray.zeros(3)
    for changes in ({"device_type": HOST}, {"bits": 4}, {"ndim": -1}):
        managed = exported(array)
        count = ctypes.c_int(0)
        deleter, original = managed.deleter, ctypes.addressof(managed)

        def counting(address, deleter=deleter, original=original, count=count):
            assert address == original
            count.value += 1
            DELETER(deleter)(address)

        hook = DELETER(counting)
        managed.deleter = ctypes.cast(hook, ctypes.c_void_p).value
        for name, value in changes.items():
            setattr(managed.tensor, name, value)
        with pytest.raises(BufferError):
            imported(managed)
        assert count.value == 1


def test_the_memory_lives_until_the_deleter(device):
    array = DeviceArray.full(4, 7, "i4")
    managed, address = exported(array), array.address
    gone = weakref.ref(array)
    array.close()
    del array
    gc.collect()
    assert gone() is None
    others = [DeviceArray.zeros(4, "i4") for _ in range(5)]
    assert address not in [other.address for other in others]
    again = imported(managed)
    assert again.copy_to_host().tolist() == [7] * 4
    managed = exported(again)
    del again
    thread = threading.Thread(target=delete, args=(managed,))
    thread.start()
    thread.join()


def test_the_owner_of_foreign_memory_lives_until_the_deleter(device):
    array = DeviceArray.zeros(4)

    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    own = cuda_safe.from_cuda_array_interface(array.__cuda_array_interface__, owner)
    managed = exported(own)
    del own, owner
    gc.collect()
    assert gone() is not None
    delete(managed)
    gc.collect()
    assert gone() is None


def test_exports_that_are_not_possible_set_an_exception(device):
    for dtype in ("M8[s]", ">f4", "S3"):
        for export in (exported, borrowed):
            with pytest.raises(BufferError, match="dtype"):
                export(DeviceArray.zeros(3, dtype))
    closed = DeviceArray.zeros(3)
    closed.close()
    for export in (exported, borrowed):
        with pytest.raises(cuda_safe.ClosedError):
            export(closed)
        for thing in (3, device, np.zeros(3)):
            with pytest.raises(TypeError):
                export(thing)


def test_a_description_keeps_the_memory_of_a_closed_array(device):
    array = DeviceArray.full(4, 7, "i4")
    address = borrowed(array).data
    array.close()
    others = [DeviceArray.zeros(4, "i4") for _ in range(5)]
    assert address not in [other.address for other in others]


def test_the_current_stream(device):
    assert current_stream() == device.default_stream.handle
    for kind in (PINNED, MANAGED):
        assert current_stream(kind) == device.default_stream.handle
    assert current_stream(HOST) is None
    for stream in (Stream(), Stream.legacy(), Stream.per_thread()):
        with stream:
            assert current_stream() == stream.handle
            assert current_stream(HOST) is None
    for kind, number in ((7, 0), (0, 0), (DEVICE, -1)):
        with pytest.raises(BufferError):
            current_stream(kind, number)
    with pytest.raises(cuda_safe.CudaError):
        current_stream(DEVICE, 63)


def test_the_current_stream_waits_for_the_array(device):
    """With the software driver, work runs as late as possible, so a missing wait would be detected."""
    array = DeviceArray.zeros(1000, "i4", stream=Stream())
    for number in range(1, 20):
        array.fill(number)
        with Stream() as stream:
            managed = exported(array)
            assert (on_stream(array, stream).copy_to_host() == number).all()
            delete(managed)


def test_later_work_on_the_array_waits_for_the_consumer(device):
    array = DeviceArray.zeros(1000, "i4", stream=Stream())
    for number in range(1, 20):
        with Stream() as stream:
            managed = exported(array)
            on_stream(array, stream).fill(number)
        delete(managed)
        assert (array.copy_to_host() == number).all()


def test_the_memory_is_freed_after_the_consumer(device):
    """With the software driver, a write to freed memory would be an error."""
    for _ in range(20):
        array = DeviceArray.zeros(1000, "i4", stream=Stream())
        with Stream() as stream:
            managed = exported(array)
            view = on_stream(array, stream)
            view.fill(1)
        del view, array
        delete(managed)
        device.synchronize()


def test_an_export_on_the_stream_of_the_array_submits_nothing(device):
    """An export works while the stream is captured, because it needs no driver call."""
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    stream = Stream()
    array = DeviceArray.zeros(4, stream=stream)
    delete(exported(array))
    handle, graph = ctypes.c_void_p(stream.handle), ctypes.c_void_p()
    with stream:
        assert library.cuStreamBeginCapture_v2(handle, 2) == 0
        managed = exported(array)
        tensor = borrowed(array)
        assert current_stream() == stream.handle
        assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    assert tensor.data == array.address
    nodes = ctypes.c_size_t(77)
    assert library.cuGraphGetNodes(graph, None, ctypes.byref(nodes)) == 0
    assert nodes.value == 0
    assert library.cuGraphDestroy(graph) == 0
    delete(managed)


@pytest.mark.parametrize("captured", ["consumer", "array"])
def test_a_tensor_that_is_deleted_in_a_capture_is_freed_after_it(run_python, captured):
    run_python(
        """
import ctypes, gc, os, sys, weakref
sys.path.insert(0, os.environ["TESTS"])
import cuda_safe
from cuda_safe import DeviceArray, Stream, as_cuda_array
from test_exchange_table import delete, exported

class Producer:
    pass

cuda_safe.set_memory_manager()
statistics = lambda: cuda_safe.memory_manager().statistics()
library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
stream, other = Stream(), Stream()
array = DeviceArray.zeros(1000, "i4", stream=stream)
producer = Producer()
producer.__cuda_array_interface__ = array.__cuda_array_interface__
gone = weakref.ref(producer)
with other:
    managed, foreign = exported(array), exported(as_cuda_array(producer))
captured = {"consumer": other, "array": stream}[os.environ["CAPTURED"]]
handle, graph = ctypes.c_void_p(captured.handle), ctypes.c_void_p()
assert library.cuStreamBeginCapture_v2(handle, 2) == 0
del array, producer
delete(managed)
delete(foreign)
gc.collect()
if captured is other:
    # The consumer's work cannot be waited for.
    assert statistics().used == 4000 and gone() is not None
assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
DeviceArray.zeros(0)
assert statistics().used == 0 and gone() is None, statistics()
assert cuda_safe.leaked() == 0
print("done")
""",
        TESTS=os.path.dirname(__file__),
        CAPTURED=captured,
    )


def test_a_description_needs_the_stream_of_the_array(device):
    stream = Stream()
    array = DeviceArray.zeros(4, stream=stream)
    with pytest.raises(BufferError, match="with array.stream"):
        borrowed(array)
    with stream:
        assert borrowed(array).data == array.address
    with Stream(), pytest.raises(BufferError, match="with array.stream"):
        borrowed(DeviceArray.zeros(4, stream=device.default_stream))
    # The default stream is in order with the legacy default stream.
    with Stream.legacy():
        borrowed(DeviceArray.zeros(4, stream=device.default_stream))


def allocated(shape, dtype=(2, 32, 1), device=(DEVICE, 0)):
    """Returns a new tensor, or the error."""
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    prototype = DLTensor(None, *device, len(shape), *dtype, extents, None, 0)
    errors = []
    context = ctypes.c_void_p(5)

    def set_error(given, kind, message):
        assert given == context.value
        errors.append((kind.decode(), message.decode()))

    address = ctypes.c_void_p()
    arguments = ctypes.addressof(prototype), ctypes.addressof(address), context
    if TABLE.allocate(*arguments, SET_ERROR(set_error)) == 0:
        assert errors == []
        return ManagedVersioned.from_address(address.value)
    (error,) = errors
    return error


def test_memory_is_allocated_for_other_libraries(device):
    for shape in ((), (3,), (2, 3, 4), (2, 0)):
        managed = allocated(shape)
        array = imported(managed)
        assert (array.shape, array.typestr) == (shape, "<f4")
        assert array.is_c_contiguous and not array.read_only
        array.fill(3)
        assert (array.copy_to_host() == 3).all()
    managed = allocated((3,), dtype=(4, 16, 1))
    assert (managed.tensor.code, managed.tensor.bits) == (4, 16)
    delete(managed)
    for stream in (Stream(), Stream.legacy(), Stream.per_thread()):
        with stream:
            delete(allocated((1000,)))


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"shape": (3,), "device": (HOST, 0)}, "BufferError", "device type 1"),
        ({"shape": (3,), "device": (DEVICE, -1)}, "BufferError", "device"),
        ({"shape": (3,), "device": (DEVICE, 63)}, "RuntimeError", ""),
        ({"shape": (-3,)}, "BufferError", "shape"),
        ({"shape": (3,), "dtype": (2, 4, 1)}, "BufferError", "whole number of bytes"),
        ({"shape": (3,), "dtype": (2, 0, 1)}, "BufferError", "whole number of bytes"),
        ({"shape": (1 << 50,)}, "MemoryError", ""),
        ({"shape": (1 << 62, 1 << 62)}, "RuntimeError", "more than can be addressed"),
    ],
)
def test_a_failed_allocation_is_reported(device, arguments, kind, words):
    error = allocated(**arguments)
    assert error[0] == kind and words in error[1]


def test_a_forked_process_gets_an_error():
    program = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import cuda_safe
array = cuda_safe.DeviceArray.zeros(3, stream=cuda_safe.Stream())
from test_exchange_table import exported
child = os.fork()
if child == 0:
    try:
        exported(array)
    except cuda_safe.ForkedError:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "7", done.stderr
