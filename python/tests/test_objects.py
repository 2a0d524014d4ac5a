"""Devices, contexts, streams, events and green contexts."""

import ctypes
import pickle
import threading

import numpy as np
import pytest

import cuda_safe
from cuda_safe import Context, Device, DeviceArray, Event, GreenContext, Stream


def test_a_device_says_what_it_is(device):
    assert device == Device(0) and hash(device) == hash(Device(0))
    assert Device.count() == len(Device.all()) >= 1
    assert (device.ordinal, int(device)) == (0, 0)
    assert device.name and device.uuid.startswith("GPU-")
    major, minor = device.compute_capability
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
    assert (device.attribute(75), device.attribute(76)) == (major, minor)
    assert device.attributes()["MULTIPROCESSOR_COUNT"] == str(device.sm_count)
    free, total = device.memory_info()
    assert 0 < free <= total <= device.total_memory
    assert device.memory_info().total == total
    with pytest.raises(cuda_safe.InvalidArgumentError, match="there is no device 1000"):
        Device(1000)
    with pytest.raises(cuda_safe.InvalidValueError) as raised:
        device.attribute(100_000)
    assert (raised.value.code, raised.value.name) == (1, "CUDA_ERROR_INVALID_VALUE")
    assert isinstance(raised.value, ValueError)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy), copy.code) == (type(raised.value), str(raised.value), 1)


def test_contexts_are_current_in_their_block(device):
    context = Context.primary(device)
    assert context == device.context and context.device == device
    assert context.handle and hash(context) == hash(device.context)
    with device as entered, context, context:
        assert entered is device
        assert Device() == device
    context.synchronize()
    device.synchronize()


def test_blocks_end_in_reverse_order(device):
    stream, other = Stream(), Stream()
    stream.__enter__()
    other.__enter__()
    with pytest.raises(cuda_safe.InvalidArgumentError, match="in reverse order"):
        stream.__exit__(None, None, None)
    assert Stream.current() == other
    other.__exit__(None, None, None)
    stream.__exit__(None, None, None)
    assert Stream.current() == device.default_stream


def test_a_block_ends_on_its_thread(device):
    stream = Stream()
    refused = []

    def leave():
        try:
            stream.__exit__(None, None, None)
        except cuda_safe.InvalidArgumentError as why:
            refused.append(why)

    with stream:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_a_thread_may_end_in_the_middle_of_a_block(device):
    thread = threading.Thread(target=lambda: Stream().__enter__())
    thread.start()
    thread.join()
    device.synchronize()


def test_new_arrays_are_on_the_stream_of_the_block(device):
    stream = Stream(priority=-1)
    with stream:
        array = DeviceArray.zeros(3)
    assert array.stream == stream != DeviceArray.zeros(3).stream
    assert DeviceArray.zeros(3).stream == device.default_stream
    assert stream.priority <= 0
    with Stream.legacy(), pytest.raises(cuda_safe.InvalidArgumentError, match="default streams"):
        DeviceArray.zeros(3)


def test_streams_of_others_by_their_handle(device):
    class Theirs:
        def __init__(self, answer):
            self.answer = answer

        def __cuda_stream__(self):
            return self.answer

    own = Stream()
    assert own.__cuda_stream__() == (0, own.handle)
    assert Stream.from_handle(own.handle, own) == own
    assert hash(Stream.from_handle(own.handle, own)) == hash(own)
    assert Stream.from_object(Theirs((0, own.handle))) == own
    assert Stream.from_object(own) == own
    assert Stream.from_object(Theirs((0, 0))) == Stream.legacy()
    assert Stream.from_handle(1) == Stream.legacy() and Stream.legacy().handle == 1
    assert Stream.from_handle(2) == Stream.per_thread() != Stream.legacy()
    for stream in (Stream.legacy(), Stream.per_thread(), Stream.from_handle(own.handle, own)):
        stream.synchronize()
        assert stream.is_idle and stream.device == device
        stream.wait(own)
        own.wait(stream)
        own.wait(stream.record())
    with pytest.raises(cuda_safe.InvalidArgumentError, match="0 is not clear: 1 is"):
        Stream.from_handle(0)
    with pytest.raises(cuda_safe.InvalidArgumentError, match="version 1"):
        Stream.from_object(Theirs((1, own.handle)))
    with pytest.raises(cuda_safe.InvalidArgumentError, match="int is no stream"):
        Stream.from_object(3)


def test_the_owner_of_a_stream_lives_as_long_as_the_stream(device):
    class Owner:
        pass

    import gc
    import weakref

    owner, own = Owner(), Stream()
    gone = weakref.ref(owner)
    stream = Stream.from_handle(own.handle, owner)
    del owner
    array = DeviceArray.zeros(3, stream=stream)
    stream.close()
    del stream
    gc.collect()
    assert gone() is not None
    del array
    gc.collect()
    assert gone() is None


def test_events_order_streams_and_take_the_time(device):
    first, second = Stream(), Stream()
    start, end = Event(timing=True), device.event(timing=True)
    start.record(first)
    DeviceArray.zeros(1 << 16, stream=first).fill(1)
    end.record(first)
    second.wait(end)
    second.synchronize()
    assert end.is_done and start.is_done
    assert 0 <= end.elapsed_since(start) < 60
    assert end.context == device.context and end.handle
    with pytest.raises(cuda_safe.DriverError) as raised:
        second.record().elapsed_since(start)
    assert raised.value.name == "CUDA_ERROR_INVALID_HANDLE"


def test_what_was_closed_is_an_exception(device):
    for thing, use in (
        (Stream(), lambda it: it.synchronize()),
        (Stream(), lambda it: it.handle),
        (Stream(), lambda it: it.__cuda_stream__()),
        (Event(), lambda it: it.synchronize()),
        (DeviceArray.zeros(3), lambda it: it.fill(1)),
        (DeviceArray.zeros(3), lambda it: it.copy_to_host()),
        (DeviceArray.zeros(3), lambda it: it[1:]),
        (DeviceArray.zeros(3), lambda it: it.address),
        (DeviceArray.zeros(3), lambda it: it.__cuda_array_interface__),
    ):
        assert not thing.closed
        thing.close()
        thing.close()
        assert thing.closed and "closed" in repr(thing)
        with pytest.raises(cuda_safe.ClosedError, match="was closed"):
            use(thing)
        assert isinstance(hash(thing), int) and thing == thing


def test_a_stream_lives_with_its_arrays(device):
    stream = Stream()
    array = DeviceArray.full(4, 5, "i4", stream=stream)
    stream.close()
    assert array.copy_to_host().tolist() == [5] * 4
    assert array.stream.handle == array.__cuda_array_interface__["stream"]


def since(major, minor):
    if cuda_safe.driver_version() < (major, minor):
        pytest.skip(f"the driver is older than CUDA {major}.{minor}")


def test_green_contexts_share_no_multiprocessor(device):
    since(12, 4)
    resource = device.sm_resource()
    assert resource.sm_count == device.sm_count and resource.device == device
    size = max(resource.min_group, resource.group_multiple)
    groups, rest = resource.split_by_count(size, 2, label="the tests")
    assert [group.sm_count for group in groups] == [size, size]
    assert rest is None or rest.sm_count == resource.sm_count - 2 * size
    with pytest.raises(cuda_safe.InvalidArgumentError, match="the tests"):
        resource.split_by_count(size)
    resource.split_by_count(size, 1, allow_overlap=True)
    green, other = (GreenContext([group]) for group in groups)
    with pytest.raises(cuda_safe.ClosedError, match="used in a green context"):
        GreenContext([groups[0]])
    assert green.sm_count == size and green.device == device
    assert green.context == device.context
    stream = green.stream(priority=-1)
    array = DeviceArray.full(3, 1.5, "f4", stream=stream)
    with green:
        assert array.copy_to_host().tolist() == [1.5] * 3
    assert green.sm_resource().sm_count == size
    # The stream keeps it.
    green.close()
    with pytest.raises(cuda_safe.ClosedError):
        green.stream()
    array.fill(2)
    assert array.copy_to_host().tolist() == [2] * 3
    other.close()


def test_partitions_of_sizes_that_are_wished(device):
    since(12, 4)
    resource = device.sm_resource()
    ask = [resource.min_group, "25%", None] if cuda_safe.driver_version() >= (12, 5) else ["25%"]
    parts = resource.partition(ask, label="wishes")
    assert len(parts) == len(ask) and parts[0].sm_count >= 1
    assert sum(part.sm_count for part in parts) <= resource.sm_count
    for wrong in (["half"], [0], []):
        with pytest.raises(cuda_safe.InvalidArgumentError):
            resource.partition(wrong, allow_overlap=True)


def test_captures_of_others_are_left_alone(device):
    import os

    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    stream, graph = Stream(), ctypes.c_void_p()
    array, other = DeviceArray.zeros(4, "i4", stream=stream), DeviceArray.zeros(4, "i4")
    # CU_STREAM_CAPTURE_MODE_RELAXED.
    assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 2) == 0
    for use in (
        lambda: other.copy_from(array),
        lambda: other.join(stream),
        lambda: cuda_safe.from_dlpack(array),
        lambda: array.copy_to_host(),
        lambda: array.copy_from(np.zeros(4, "i4")),
        lambda: DeviceArray.zeros(4, stream=stream),
    ):
        with pytest.raises(ValueError, match="captur|graph"):
            use()
    array.fill(1)
    assert library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
    assert library.cuGraphDestroy(graph) == 0
    # The fill is the graph's.
    assert array.copy_to_host().tolist() == [0] * 4
    other.fill(2)
    assert other.copy_to_host().tolist() == [2] * 4


def test_handles_are_those_of_the_driver(device):
    # As a C library would have them.
    import os

    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    stream, context = Stream(), ctypes.c_void_p()
    assert library.cuStreamGetCtx(ctypes.c_void_p(stream.handle), ctypes.byref(context)) == 0
    assert context.value == stream.context.handle
