"""DLPack import and export."""

import ctypes
import gc
import os
import threading
import weakref

import numpy as np
import pytest
from tensors import (
    CURRENT_STREAM,
    FROM_OBJECT,
    LEGACY,
    TABLE_NAME,
    VERSIONED,
    Consumer,
    Table,
    is_valid,
    new_capsule,
    rename,
    tensor_of,
)

import cuda_safe
from cuda_safe import DeviceArray, Stream, from_dlpack

class Producer:
    """An object with DLPack methods only, around an array; `changes` apply to its tensor."""

    def __init__(self, array, old=False, name=None, device=None, **changes):
        self.array, self.old, self.name, self.changes = array, old, name, changes
        self.device = device or array.__dlpack_device__()
        self.asked = None

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        if self.old and set(arguments) - {"stream"}:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked = arguments
        capsule = self.array.__dlpack__(**arguments)
        managed = tensor_of(capsule)
        for key, value in self.changes.items():
            setattr(managed if hasattr(managed, key) else managed.tensor, key, value)
        if self.name is not None:
            rename(capsule, self.name)
        return capsule


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("old", [False, True])
def test_round_trip(device, dtype, old):
    rng = np.random.default_rng(1)
    for shape in [(), (5,), (3, 4), (2, 0, 3), (2, 3, 4)]:
        host = rng.integers(0, 2, shape).astype(dtype)
        array = DeviceArray.from_host(host)
        for view, expected in [(array, host), (array.T, host.T), (array[..., None], host[..., None])]:
            again = from_dlpack(Producer(view, old))
            assert again.typestr == host.dtype.str and again.shape == expected.shape
            assert again.copy_to_host().tobytes() == expected.tobytes()
            assert again.is_c_contiguous == expected.flags.c_contiguous
            if host.size:
                assert again.address == view.address
        if host.ndim and host.size:
            view, expected = array[::-1], host[::-1]
            assert from_dlpack(view).copy_to_host().tobytes() == expected.tobytes()


def test_the_exported_description(device):
    array = DeviceArray.zeros((3, 4), "f4")
    assert array.__dlpack_device__() == (2, device.ordinal)
    capsule = array[1:, ::2].__dlpack__(max_version=(1, 0))
    managed = tensor_of(capsule)
    assert is_valid(capsule, VERSIONED) and managed.major == 1 and managed.flags == 0
    tensor = managed.tensor
    assert (tensor.data + tensor.byte_offset) == array.address + 16
    assert (tensor.device_type, tensor.device_id) == (2, device.ordinal)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert tensor.shape[: tensor.ndim] == [2, 2] and tensor.strides[: tensor.ndim] == [4, 2]
    for version in (None, (0, 8)):
        assert is_valid(array.__dlpack__(max_version=version), LEGACY)
    capsule = array[3:].__dlpack__()
    empty = tensor_of(capsule).tensor
    assert (empty.data, empty.shape[:2]) == (None, [0, 4])


def test_unused_strides_may_have_any_value(device, produce):
    array = DeviceArray.zeros((2, 1), "f4")
    for shape, strides in [((2, 1), (4, 3)), ((2, 0), (5, 3))]:
        odd = cuda_safe.as_cuda_array(produce(array, shape=shape, strides=strides))
        again = from_dlpack(odd)
        assert again.shape == shape
        assert again.copy_to_host().tolist() == odd.copy_to_host().tolist()
    odd = cuda_safe.as_cuda_array(produce(array, shape=(1, 2), strides=(4, 2)))
    with pytest.raises(BufferError, match="strides"):
        odd.__dlpack__()


def test_unsupported_exports_are_buffer_errors(device):
    array = DeviceArray.zeros(3, "f4")
    frozen = array.as_read_only()
    for use in (
        lambda: DeviceArray.zeros(3, "M8[s]").__dlpack__(),
        lambda: DeviceArray.zeros(3, ">f4").__dlpack__(),
        lambda: DeviceArray.zeros(3, "S3").__dlpack__(),
        lambda: DeviceArray.zeros(3, [("x", "f4")]).__dlpack__(),
        lambda: DeviceArray.zeros(3, [("x", "f4"), ("y", "i1")])["x"].__dlpack__(),
        lambda: frozen.__dlpack__(),
        lambda: array.__dlpack__(stream=0),
        lambda: array.__dlpack__(stream=-7),
        lambda: array.__dlpack__(dl_device=(1, 0), copy=False),
        lambda: array.__dlpack__(dl_device=(1, 1)),
        lambda: array.__dlpack__(dl_device=(9, 0)),
        lambda: array.__dlpack__(dl_device=(2, 77)),
    ):
        with pytest.raises(BufferError):
            use()
    with pytest.raises(cuda_safe.ExchangeError, match="use 1 .* 2 .* -1 "):
        array.__dlpack__(stream=0)
    array.__dlpack__(dl_device=array.__dlpack_device__())


def test_the_read_only_flag_is_kept(device):
    frozen = DeviceArray.zeros(3).as_read_only()
    capsule = frozen.__dlpack__(max_version=(1, 0))
    assert tensor_of(capsule).flags == 1
    again = from_dlpack(frozen)
    assert again.read_only
    with pytest.raises(cuda_safe.ReadOnlyError):
        again.fill(1)


def test_a_copy_is_made_on_request(device):
    array = DeviceArray.from_host(np.arange(4))
    assert from_dlpack(array).address == from_dlpack(array, copy=False).address == array.address
    copied = from_dlpack(array, copy=True)
    assert copied.address != array.address
    assert copied.copy_to_host().tolist() == [0, 1, 2, 3]
    capsule = array.__dlpack__(max_version=(1, 0), copy=True)
    assert tensor_of(capsule).flags == 2


@pytest.mark.parametrize("old", [False, True])
def test_the_memory_lives_until_the_deleter(device, old):
    version = None if old else (1, 0)
    array = DeviceArray.full(4, 7, "i4")
    consumer = Consumer(array.__dlpack__(max_version=version))
    address = array.address
    gone = weakref.ref(array)
    array.close()
    del array
    gc.collect()
    assert gone() is None
    # No other code has the memory.
    others = [DeviceArray.zeros(4, "i4") for _ in range(5)]
    assert address not in [other.address for other in others]
    thread = threading.Thread(target=consumer.delete)
    thread.start()
    thread.join()
    before = cuda_safe.leaked()
    # A capsule that was not consumed.
    del others
    DeviceArray.zeros(3).__dlpack__(max_version=version)
    gc.collect()
    assert cuda_safe.leaked() == before


def test_releasing_the_last_view_notifies_the_producer(device):
    array = DeviceArray.full(4, 7, "i4")

    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    own = cuda_safe.from_cuda_array_interface(array.__cuda_array_interface__, owner)
    imported = from_dlpack(own)
    del own, owner
    view = imported[2:]
    imported.close()
    gc.collect()
    assert gone() is not None
    view.fill(1)
    del view, imported
    gc.collect()
    assert gone() is None
    assert array.copy_to_host().tolist() == [7, 7, 1, 1]


def test_the_stream_argument(device):
    array = DeviceArray.zeros(4)
    producer = Producer(array)
    assert from_dlpack(producer).stream == device.default_stream
    assert producer.asked["stream"] == device.default_stream.handle
    assert tuple(producer.asked["max_version"]) >= (1, 0)
    stream = Stream()
    assert from_dlpack(producer, stream=stream).stream == stream
    assert producer.asked["stream"] == stream.handle
    with stream:
        assert from_dlpack(producer).stream == stream
    with pytest.raises(cuda_safe.InvalidArgumentError, match="per-thread default stream"):
        from_dlpack(producer, stream=Stream.per_thread())
    assert from_dlpack(producer, stream=Stream.legacy()).stream == Stream.legacy()
    assert producer.asked["stream"] == 1


def test_work_is_in_order_in_both_directions(device):
    """With the software driver, work runs as late as possible, so a missing wait would be detected."""
    home = Stream()
    array = DeviceArray.zeros(1000, "i4", stream=home)
    for number in range(1, 20):
        array.fill(number)
        stream = Stream()
        imported = from_dlpack(array, stream=stream)
        copied = imported.copy()
        assert (copied.copy_to_host() == number).all()
        imported.fill(-number)
        # Releasing it waits.
        del imported
        assert (array.copy_to_host() == -number).all()


def test_requests_without_a_stream_are_ordered(device):
    array = DeviceArray.zeros(1000, "i4", stream=Stream())
    # It reports pinned memory.
    producer = Producer(array, device=(3, 0))
    for number in range(1, 20):
        array.fill(number)
        imported = from_dlpack(producer, stream=Stream())
        assert "stream" not in producer.asked
        # A copy to the host runs on the legacy default stream.
        copied = imported.copy()
        assert (copied.copy_to_host() == number).all()
        del imported


def test_no_ordering_on_request(device):
    array = DeviceArray.zeros(3, stream=Stream())
    other = Stream()
    for stream in (None, -1, 1, 2, other.handle, array.stream.handle):
        Consumer(array.__dlpack__(stream=stream)).delete()


def test_types_without_a_numpy_type_round_trip(device):
    array = DeviceArray.from_host(np.arange(6, dtype="u2"))
    # The type is bfloat16.
    imported = from_dlpack(Producer(array, code=4))
    assert imported.typestr == "|V2"
    assert imported.copy_to_host().tobytes() == np.arange(6, dtype="u2").tobytes()
    for view in (imported, imported[::2], imported.copy(), imported.reshape(2, 3)):
        capsule = view.__dlpack__()
        assert tensor_of(capsule).tensor.code == 4
    capsule = imported.view_as("u2").__dlpack__()
    assert tensor_of(capsule).tensor.code == 1


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("version", {"major": 2}),
        ("dtype", {"bits": 0}),
        ("dtype", {"lanes": 0}),
        ("dtype", {"bits": 4}),
        ("ndim", {"ndim": -1}),
        ("device", {"device_type": 1}),
        ("device", {"device_type": 7}),
        ("device", {"device_id": -1}),
        ("data", {"data": 0}),
        ("byte_offset", {"byte_offset": (1 << 64) - 1}),
    ],
)
def test_invalid_tensors_are_refused(device, field, changes):
    array = DeviceArray.zeros(3)
    with pytest.raises(cuda_safe.ExchangeError, match=f"DLPack, {field}:"):
        from_dlpack(Producer(array, **changes))
    array.fill(1)


def test_unknown_memory_is_refused(device):
    array = DeviceArray.zeros(3)
    with pytest.raises(cuda_safe.ExchangeError, match="the driver knows no memory"):
        from_dlpack(Producer(array, data=4096))
    with pytest.raises(cuda_safe.ExchangeError, match="knows no memory|exceeds the allocation"):
        from_dlpack(Producer(array, byte_offset=1 << 44))


def test_objects_without_dlpack_are_refused(device):
    with pytest.raises(TypeError, match="no __dlpack__"):
        from_dlpack(3)
    with pytest.raises(cuda_safe.ExchangeError, match="host"):
        from_dlpack(np.zeros(3))
    with pytest.raises(cuda_safe.ExchangeError, match="device"):
        from_dlpack(Producer(DeviceArray.zeros(3), device=(10, 0)))
    for nonsense in (3, "33", (2,), (2, "0"), (2, 1 << 40), (None, 0)):
        with pytest.raises(cuda_safe.ExchangeError, match="__dlpack_device__"):
            from_dlpack(Producer(DeviceArray.zeros(3), device=nonsense))
    with pytest.raises(ValueError, match="did not return a capsule"):
        from_dlpack(Producer(DeviceArray.zeros(3), name=b"used_dltensor_versioned"))


def test_pinned_and_managed_memory(device):
    import os

    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    with device:
        host, managed = ctypes.c_void_p(), ctypes.c_uint64()
        assert library.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(64), 2) == 0
        assert library.cuMemAllocManaged(ctypes.byref(managed), ctypes.c_size_t(64), 1) == 0
    for address, kind in ((host.value, 3), (managed.value, 13)):
        array = cuda_safe.from_cuda_array_interface(
            dict(version=3, shape=(8,), typestr="<f8", data=(address, False), stream=None)
        )
        assert array.__dlpack_device__() == (kind, 0)
        array.fill(3)
        assert array.copy_to_host().tolist() == [3] * 8
        imported = from_dlpack(array)
        assert imported.__dlpack_device__() == (kind, 0)
        imported.fill(4)
        imported.synchronize()
        assert array.copy_to_host().tolist() == [4] * 8
        del imported, array
    with device:
        assert library.cuMemFreeHost(host) == 0
        assert library.cuMemFree_v2(managed) == 0


class TableProducer:
    """A type with the C exchange table of DLPack 1.2, like PyTorch's tensors."""

    requires_grad = False
    calls: list[str] = []
    current = 0

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        self.calls.append("__dlpack__")
        return self.array.__dlpack__(**arguments)


def from_object(tensor, out):
    TableProducer.calls.append("from_object")
    consumer = Consumer(tensor.array.__dlpack__(stream=-1, max_version=(1, 2)))
    ctypes.c_void_p.from_address(out).value = ctypes.addressof(consumer.managed)
    return 0


def current_stream(kind, number, out):
    TableProducer.calls.append("current_stream")
    assert (kind, number) == (2, 0)
    ctypes.c_void_p.from_address(out).value = TableProducer.current
    return 0


TABLE = Table(
    1,
    3,
    from_object=FROM_OBJECT(from_object),
    current_stream=CURRENT_STREAM(current_stream),
)
TableProducer.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(TABLE), TABLE_NAME, None)


def test_tensors_are_imported_with_the_table_of_their_type(device, monkeypatch):
    calls = TableProducer.calls = []
    array = DeviceArray.from_host(np.arange(6, dtype="i4"))
    imported = from_dlpack(TableProducer(array[::2]))
    assert calls == ["from_object", "current_stream"]
    assert imported.copy_to_host().tolist() == [0, 2, 4]
    assert imported.stream == device.default_stream
    del imported
    # The import is ordered with the library's current stream.
    stream = Stream()
    array = DeviceArray.zeros(1000, "i4", stream=stream)
    monkeypatch.setattr(TableProducer, "current", stream.handle)
    for number in range(1, 10):
        array.fill(number)
        imported = from_dlpack(TableProducer(array), stream=Stream())
        assert (imported.copy_to_host() == number).all()
        imported.fill(-number)
        del imported
        assert (array.copy_to_host() == -number).all()


def test_unsupported_tables_fall_back_to_python(device, monkeypatch):
    calls = TableProducer.calls = []
    from_dlpack(TableProducer(DeviceArray.zeros(3, "c8")))
    from_dlpack(TableProducer(DeviceArray.zeros(3)), copy=True)
    monkeypatch.setattr(TableProducer, "requires_grad", True)
    from_dlpack(TableProducer(DeviceArray.zeros(3)))
    assert calls == ["from_object", "__dlpack__", "__dlpack__", "__dlpack__"]
    monkeypatch.setattr(TableProducer, "requires_grad", False)
    monkeypatch.setattr(TABLE, "major", 2)
    from_dlpack(TableProducer(DeviceArray.zeros(3)))
    assert calls[4:] == ["__dlpack__"]


FOREIGN = """
import ctypes, gc, os, sys, weakref
sys.path.insert(0, os.environ["TESTS"])
import cuda_safe
from cuda_safe import DeviceArray, as_cuda_array, from_dlpack
from tensors import Consumer

class Owner:
    pass

def export():
    '''Returns a tensor that has the last reference to its owner, and a weak reference to the latter.'''
    owner = Owner()
    owner.array = DeviceArray.zeros(3, "i4")
    owner.__cuda_array_interface__ = owner.array.__cuda_array_interface__
    return Consumer(as_cuda_array(owner).__dlpack__()).managed, weakref.ref(owner)

class Foreign:
    def __init__(self, action):
        self.action, self.array = action, DeviceArray.zeros(3, "i4")
    def __dlpack_device__(self):
        self.action()
        return self.array.__dlpack_device__()
    def __dlpack__(self, **arguments):
        self.action()
        return self.array.__dlpack__(**arguments)
    @property
    def __cuda_array_interface__(self):
        self.action()
        return self.array.__cuda_array_interface__
    def __cuda_stream__(self):
        self.action()
        return 0, self.array.stream.handle
    def __index__(self):
        self.action()
        return 0

def uses(action):
    foreign = Foreign(action)
    yield lambda: from_dlpack(foreign)
    yield lambda: from_dlpack(foreign, copy=True)
    yield lambda: as_cuda_array(foreign)
    yield lambda: foreign.array.join(foreign)
    yield lambda: foreign.array[foreign]
    yield lambda: cuda_safe.Stream.from_object(foreign)
"""


@pytest.mark.parametrize("caller", ["CFUNCTYPE", "PYFUNCTYPE"])
def test_other_code_deletes_tensors_within_calls_without_the_gil(device, run_python, caller):
    """A caller with CFUNCTYPE releases the GIL, and one with PYFUNCTYPE keeps it."""
    run_python(
        FOREIGN
        + """
caller = getattr(ctypes, os.environ["CALLER"])(None, ctypes.c_void_p)

def delete():
    managed, gone = export()
    assert gone() is not None
    caller(managed.deleter)(ctypes.addressof(managed))
    gc.collect()
    deleted.append(gone() is None)

deleted = []
for use in uses(delete):
    use()
assert len(deleted) == 8 and all(deleted), deleted
print("done")
""",
        TESTS=os.path.dirname(__file__),
        CALLER=caller,
    )
