"""Devices, contexts, streams and events."""

import ctypes
import gc
import itertools
import os
import pickle
import threading
import weakref

import numpy as np
import pytest
from conftest import SIMULATED, since

import cuda_safe
from cuda_safe import Context, Device, DeviceArray, Event, GreenContext, Stream


def test_the_properties_of_a_device(device):
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


def leave(thing):
    thing.__exit__(None, None, None)


def test_overlapping_blocks_restore_the_previous_state(device):
    a, b, c = Stream(), Stream(), Stream()
    for order in itertools.permutations((a, b, c)):
        open_blocks = [a, b, c]
        for stream in open_blocks:
            stream.__enter__()
        for stream in order:
            leave(stream)
            open_blocks.remove(stream)
            # This is the innermost open block.
            expected = open_blocks[-1] if open_blocks else device.default_stream
            assert Stream.current() == expected
        with pytest.raises(cuda_safe.InvalidArgumentError, match=f"no block of {a!r} is open"):
            leave(a)
    # One object is entered twice.
    for stream in (a, b, a):
        stream.__enter__()
    leave(a)
    assert Stream.current() == b
    leave(a)
    assert Stream.current() == b
    leave(b)
    assert Stream.current() == device.default_stream


def test_blocks_in_generators_end_when_those_do(device):
    def on(stream):
        with stream:
            yield Stream.current()

    a, b = Stream(), Stream()
    one, two = on(a), on(b)
    assert (next(one), next(two)) == (a, b)
    one.close()
    assert Stream.current() == b
    two.close()
    assert Stream.current() == device.default_stream


class Owner:
    pass


def test_blocks_that_always_overlap_keep_no_stream(device):
    """This happens with asyncio tasks of which one is always open."""
    own = Stream()
    owners = [Owner() for _ in range(100)]
    gone = [weakref.ref(owner) for owner in owners]
    before = None
    for owner in owners:
        stream = Stream.from_handle(own.handle, owner)
        stream.__enter__()
        if before is not None:
            leave(before)
        before = stream
    del owners, owner, stream
    gc.collect()
    assert [owner() is None for owner in gone] == [True] * 99 + [False]
    assert Stream.current() == own
    leave(before)
    del before
    gc.collect()
    assert gone[-1]() is None
    assert Stream.current() == device.default_stream


def test_blocks_that_overlap_leave_no_context_on_the_thread(devices):
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))

    def stack():
        """Returns the stack of contexts on this thread, with the current one last."""
        contexts, context = [], ctypes.c_void_p()
        while True:
            assert library.cuCtxGetCurrent(ctypes.byref(context)) == 0
            if context.value is None:
                break
            assert library.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
            contexts.append(context.value)
        for one in reversed(contexts):
            assert library.cuCtxPushCurrent_v2(ctypes.c_void_p(one)) == 0
        return contexts[::-1]

    first, second = (device.context.handle for device in devices)
    # A library that was used before may have left a context, which a block for its device does not push again.
    below = stack()
    for _ in below:
        assert library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
    streams = [Stream(device) for device in devices]
    streams[0].__enter__()
    for turn in range(1, 100):
        streams[turn % 2].__enter__()
        leave(streams[(turn + 1) % 2])
        assert Device() == devices[turn % 2]
        assert stack() == [(first, second)[turn % 2]]
    # If other code has made another context current, none is popped.
    streams[0].__enter__()
    assert library.cuCtxPushCurrent_v2(ctypes.c_void_p(second)) == 0
    leave(streams[1])
    assert stack() == [second, first, second]
    assert library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
    assert Stream.current() == streams[0]
    leave(streams[0])
    assert stack() == []
    for one in below:
        assert library.cuCtxPushCurrent_v2(ctypes.c_void_p(one)) == 0


def test_contexts_of_overlapping_blocks_are_current_in_them(devices):
    first, second = devices
    # No context is current before, so the current context is what the blocks have left.
    assert Device() == first
    for outer, inner in [(first, second), (second, first), (first, Stream(second))]:
        outer.__enter__()
        inner.__enter__()
        leave(outer)
        assert Device() == getattr(inner, "device", inner)
        leave(inner)
        assert Device() == first
    other = Stream(second)
    with first, other:
        assert Stream.current() == other and Device() == second


def test_a_block_ends_on_its_thread(device):
    stream = Stream()
    refused = []

    def end():
        try:
            leave(stream)
        except cuda_safe.InvalidArgumentError as why:
            refused.append(why)

    with stream:
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    assert len(refused) == 1 and f"no block of {stream!r}" in str(refused[0])


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


def test_foreign_streams_by_handle(device):
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
        assert stream.is_complete and stream.device == device
        stream.wait_stream(own)
        own.wait_stream(stream)
        own.wait_event(stream.record_event())
    with pytest.raises(cuda_safe.InvalidArgumentError, match="0 is ambiguous: use 1"):
        Stream.from_handle(0)
    with pytest.raises(cuda_safe.InvalidArgumentError, match="version 1"):
        Stream.from_object(Theirs((1, own.handle)))
    with pytest.raises(cuda_safe.InvalidArgumentError, match="int is not a stream"):
        Stream.from_object(3)


def test_the_owner_of_a_stream_lives_as_long_as_the_stream(device):
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


@pytest.mark.parametrize(
    "read", [lambda stream: stream.handle, lambda stream: stream.__cuda_stream__()[1]], ids=["handle", "protocol"]
)
def test_a_stream_whose_handle_was_read_stays_as_long_as_its_object(device, read):
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))

    def is_there(handle):
        return library.cuStreamQuery(ctypes.c_void_p(handle)) == 0

    stream = Stream()
    handle = read(stream)
    stream.close()
    assert stream.closed and is_there(handle)
    with pytest.raises(cuda_safe.ClosedError):
        read(stream)
    with pytest.raises(cuda_safe.ClosedError), stream:
        pass
    del stream
    gc.collect()
    if SIMULATED:
        # A driver need not report this for a destroyed stream.
        assert not is_there(handle)
    # The handle of this stream was not read.
    owner = Owner()
    gone = weakref.ref(owner)
    own = Stream()
    other = Stream.from_handle(own.handle, owner)
    del owner
    other.close()
    gc.collect()
    assert gone() is None and other.closed


def test_events_order_streams_and_take_the_time(device):
    first, second = Stream(), Stream()
    start, end = Event(timing=True), device.event(timing=True)
    start.record(first)
    DeviceArray.zeros(1 << 16, stream=first).fill(1)
    end.record(first)
    second.wait_event(end)
    second.synchronize()
    assert end.is_complete and start.is_complete
    assert 0 <= end.elapsed_since(start) < 60
    assert end.context == device.context and end.handle
    with pytest.raises(cuda_safe.InvalidArgumentError, match=r"Event\(timing=True\)"):
        second.record_event().elapsed_since(start)


def test_using_a_closed_object_is_an_exception(device):
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


def test_blocks_of_green_contexts_may_overlap(device):
    since(12, 4)
    resource = device.sm_resource()
    groups, _ = resource.split_by_count(max(resource.min_group, resource.group_multiple), 2)
    one, other = (GreenContext([group]) for group in groups)
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))

    def current():
        context = ctypes.c_void_p()
        assert library.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    before, of = current(), {}
    for block in one, other, device, Stream():
        with block:
            of[id(block)] = current()
    for blocks in itertools.permutations((one, other, device)):
        for order in itertools.permutations(blocks):
            left = list(blocks)
            for block in blocks:
                block.__enter__()
                assert current() == of[id(block)]
            for block in order:
                leave(block)
                left.remove(block)
                assert current() == (of[id(left[-1])] if left else before)
    gone = weakref.ref(one)
    stream = Stream()
    one.__enter__()
    stream.__enter__()
    leave(one)
    del block, blocks, order, one
    gc.collect()
    assert gone() is None
    leave(stream)
    assert current() == before


def test_foreign_captures_are_not_invalidated(device):
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
    # The fill belongs to the graph.
    assert array.copy_to_host().tolist() == [0] * 4
    other.fill(2)
    assert other.copy_to_host().tolist() == [2] * 4


def test_copies_to_the_host_invalidate_no_capture(device):
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    stream, graph = Stream(), ctypes.c_void_p()
    array = DeviceArray.from_host(np.arange(12, dtype="i4").reshape(3, 4))
    # CU_STREAM_CAPTURE_MODE_GLOBAL forbids calls that may involve the legacy stream.
    assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 0) == 0
    assert array.copy_to_host().tolist() == np.arange(12).reshape(3, 4).tolist()
    assert array[:, 1:3].copy_to_host().tolist() == [[1, 2], [5, 6], [9, 10]]
    assert array[::2, ::3].to_bytes() == np.array([0, 3, 8, 11], "i4").tobytes()
    array[1:, 1:] = np.zeros((2, 3), "i4")
    # An array without a stream is waited for, and a DLPack import when it is released.
    bare = cuda_safe.from_cuda_array_interface({**array.__cuda_array_interface__, "stream": None}, array)
    bare.fill(3)
    imported = cuda_safe.from_dlpack(array)
    imported.fill(4)
    del imported
    assert library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
    assert library.cuGraphDestroy(graph) == 0


def test_handles_are_those_of_the_driver(device):
    # Called as a C library would do it.
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    stream, context = Stream(), ctypes.c_void_p()
    assert library.cuStreamGetCtx(ctypes.c_void_p(stream.handle), ctypes.byref(context)) == 0
    assert context.value == stream.context.handle


def test_streams_of_other_devices_are_used_on_theirs(devices):
    first, second = devices
    own, array = Stream(second), DeviceArray.zeros(100, "i4")

    class Theirs:
        def __init__(self, stream):
            self.stream = stream

        def __cuda_stream__(self):
            return 0, self.stream.handle

    for stream in (Stream.from_handle(own.handle, own), Stream.from_object(Theirs(own))):
        assert stream == own and stream.device == second and stream.context == second.context
        other = DeviceArray.full(3, 7, "i4", stream=stream)
        assert other.device == second and other.copy_to_host().tolist() == [7] * 3
    assert Stream.from_handle(own.handle, device=second).device == second
    with pytest.raises(cuda_safe.InvalidArgumentError, match="context"):
        Stream.from_handle(own.handle, device=first)
    with pytest.raises(cuda_safe.InvalidArgumentError, match="context"):
        Stream.from_object(Theirs(own), device=first)
    with pytest.raises(cuda_safe.InvalidArgumentError, match="device 1 where a stream of device 0"):
        Stream.from_object(own, device=first)
    # Ordered across devices.
    array.join(Theirs(own))
    array.stream.wait_stream(Theirs(own))
    own.wait_stream(Theirs(array.stream))
    array.fill(2)
    assert array.copy_to_host().tolist() == [2] * 100


def test_default_streams_use_the_device_of_their_object(devices):
    first, second = devices

    class Torch:
        cuda_stream = 0

        def __init__(self, index):
            self.device_index = index

    class CuPy:
        ptr = 0

        def __init__(self, number):
            self.device_id = number

    assert Stream.from_object(Torch(1)) == Stream.legacy(second) != Stream.legacy(first)
    assert Stream.from_object(CuPy(1)).device == second
    assert Stream.from_object(CuPy(-1)).device == first
    with second:
        assert Stream.from_object(CuPy(-1)).device == second
    assert Stream.from_object(Torch(1), device=second) == Stream.legacy(second)
    assert Stream.from_object(CuPy(-1), device=second) == Stream.legacy(second)
    for theirs in Torch(1), CuPy(1):
        with pytest.raises(cuda_safe.InvalidArgumentError, match="device 1 where a stream of device 0"):
            Stream.from_object(theirs, device=first)


def test_an_array_of_a_stream_of_another_device_is_refused(devices, produce):
    first, second = devices
    array, own = DeviceArray.zeros(3), Stream(second)
    with pytest.raises(cuda_safe.ArrayInterfaceError, match="stream: the stream belongs to a context"):
        cuda_safe.as_cuda_array(produce(array, stream=own.handle))
    # An empty array fits any stream.
    empty = DeviceArray.zeros(0)
    imported = cuda_safe.as_cuda_array(produce(empty, stream=own.handle))
    assert imported.device == second and imported.stream == own
    # Nothing of the array keeps this stream alive.
    del imported
