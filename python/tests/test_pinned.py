"""Arrays in pinned host memory."""

import ctypes
import gc
import os
import shutil
import subprocess
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import SIMULATED, missing
from tensors import Consumer, tensor_of

import cuda_safe
from cuda_safe import DeviceArray, PinnedArray, Stream, from_dlpack

PINNED = (3, 0)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f4", "f8", "c16", "M8[s]", "S3", ">f4"])
def test_numpy_uses_the_memory(device, dtype):
    for shape in [(), (5,), (3, 4), (2, 0, 3)]:
        host = np.random.default_rng(3).integers(0, 2, shape).astype(dtype)
        array = PinnedArray.from_host(host)
        assert (array.shape, array.ndim, array.dtype) == (shape, len(shape), host.dtype)
        assert (array.size, array.itemsize, array.nbytes) == (host.size, host.itemsize, host.nbytes)
        assert array.typestr == host.dtype.str and array.descr is None
        for view in (array.numpy(), np.asarray(array)):
            assert view.dtype == host.dtype and view.shape == shape
            assert view.flags.writeable and view.flags.c_contiguous
            assert view.tobytes() == host.tobytes()
        zeros = PinnedArray.zeros(shape, dtype).numpy()
        assert zeros.tobytes() == bytes(host.nbytes)
        if host.size:
            view[...] = zeros
            assert array.numpy().tobytes() == bytes(host.nbytes)


def test_records_keep_their_fields(device):
    host = np.array([(1, 2.5), (3, 4.5)], dtype=[("x", "i4"), ("y", "f8")])
    array = PinnedArray.from_host(host)
    assert array.descr == [("x", "<i4"), ("y", "<f8")]
    assert (array.numpy() == host).all()


def test_the_memory_is_pinned(device):
    array = PinnedArray.empty((3, 4), "f4")
    address = array.__array_interface__["data"][0]
    attributes = cuda_safe.pointer_attributes(address)
    assert attributes is not None and not attributes.managed
    assert attributes.memory_type == "host"
    assert repr(array) == "<PinnedArray <f4 [3, 4]>"
    assert len(array) == 3
    with pytest.raises(TypeError, match="no length"):
        len(PinnedArray.empty(()))


def test_copies_run_in_the_order_of_both_streams(device):
    """With the software driver, work runs as late as possible, so a missing wait would be detected."""
    there, back = PinnedArray.empty(1000, "i4", stream=Stream()), PinnedArray.empty(1000, "i4")
    array = DeviceArray.zeros(1000, "i4", stream=Stream())
    for number in range(1, 20):
        there.numpy()[:] = number
        array.copy_from(there)
        array.copy_from(array[::-1])
        back.copy_from(array)
        array.fill(-number)
        # This waits for the work on the memory.
        assert (back.numpy() == number).all()
        there.synchronize()
    third = PinnedArray.zeros((2, 1000), "i4", stream=Stream())
    third.copy_from(back)
    assert (third.numpy() == number).all()


def test_the_host_does_not_wait_for_a_copy(device):
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    stream, word = Stream(), PinnedArray.zeros(1, "u4")
    array = DeviceArray.full(1000, 3, "i4", stream=stream)
    pinned = PinnedArray.zeros(1000, "i4", stream=Stream())
    array.synchronize()
    # The stream of the array waits until the word is 1.
    flag, address = word.numpy(), ctypes.c_uint64(word.as_device_array().address)
    handle, equal = ctypes.c_void_p(stream.handle), 1
    assert library.cuStreamWaitValue32_v2(handle, address, ctypes.c_uint32(1), equal) == 0
    try:
        pinned.copy_from(array)
        array.copy_from(pinned)
        event = pinned.stream.record_event()
        assert not event.is_complete
    finally:
        flag[0] = 1
    assert (pinned.numpy() == 3).all()
    assert event.is_complete


def test_memory_that_is_released_during_a_copy_stays_until_the_end(device):
    for number in range(20):
        array = DeviceArray.zeros(1000, "i4", stream=Stream())
        pinned = PinnedArray.from_host(np.full(1000, number, "i4"))
        array.copy_from(pinned)
        del pinned
        others = [PinnedArray.zeros(1000, "i4") for _ in range(3)]
        assert (array.copy_to_host() == number).all()
        del others


def test_a_view_of_numpy_keeps_the_memory(device):
    array = PinnedArray.from_host(np.arange(4))
    gone = weakref.ref(array)
    view = array.numpy()[1:]
    array.close()
    assert array.closed and view.tolist() == [1, 2, 3]
    del array
    gc.collect()
    assert gone() is not None and view.tolist() == [1, 2, 3]
    del view
    gc.collect()
    assert gone() is None


def test_a_closed_array_is_refused(device):
    array, other = PinnedArray.zeros(4), DeviceArray.zeros(4)
    array.close()
    for use in (
        array.numpy,
        array.synchronize,
        array.as_device_array,
        array.__dlpack__,
        array.__dlpack_device__,
        lambda: array.copy_from(other),
        lambda: other.copy_from(array),
        lambda: array.__array_interface__,
    ):
        with pytest.raises(cuda_safe.ClosedError):
            use()
    assert repr(array) == "<PinnedArray <f8 [4], closed>"


def test_invalid_copies_are_refused(device):
    array = PinnedArray.zeros((2, 3), "f4")
    with pytest.raises(cuda_safe.InvalidArgumentError, match="cannot be broadcast"):
        array.copy_from(DeviceArray.zeros(4, "f4"))
    with pytest.raises(cuda_safe.InvalidArgumentError, match="elements of"):
        array.copy_from(DeviceArray.zeros((2, 3), "f8"))
    for source in (np.zeros((2, 3), "f4"), 3):
        with pytest.raises(TypeError, match="assign to numpy"):
            array.copy_from(source)
    with pytest.raises(cuda_safe.InvalidArgumentError, match="default streams"):
        PinnedArray.zeros(3, stream=Stream.legacy())


def test_the_device_uses_the_memory(device, produce):
    array = PinnedArray.zeros((2, 3), "i4")
    seen = array.as_device_array()
    assert type(seen) is DeviceArray and seen.stream == array.stream
    seen[1, ::2] = 7
    assert array.numpy().tolist() == [[0, 0, 0], [7, 0, 7]]
    # Objects with the CUDA Array Interface are copied from too.
    array.copy_from(produce(DeviceArray.full((2, 3), 5, "i4")))
    assert array.numpy().tolist() == [[5] * 3] * 2
    out = DeviceArray.full((2, 3), 6, "i4").copy_to_host(array)
    assert out is array and array.numpy().tolist() == [[6] * 3] * 2


def test_numpy_imports_the_tensor_after_the_work_on_it(device):
    array = PinnedArray.zeros(1000, "i4", stream=Stream())
    assert array.__dlpack_device__() == PINNED
    for number in range(1, 20):
        array.as_device_array().fill(number)
        assert (np.from_dlpack(array) == number).all()
    shared = np.from_dlpack(array, copy=False)
    assert np.may_share_memory(shared, array.numpy())
    assert np.may_share_memory(np.from_dlpack(array, device="cpu"), shared)
    copied = np.from_dlpack(array, copy=True)
    assert not np.may_share_memory(copied, shared) and (copied == number).all()


def test_a_tensor_is_exported_to_where_it_is_requested(device):
    array = PinnedArray.from_host(np.arange(4, dtype="i4"))
    for dl_device in (None, PINNED):
        for copy in (None, False, True):
            capsule = array.__dlpack__(max_version=(1, 0), dl_device=dl_device, copy=copy)
            managed = tensor_of(capsule)
            assert (managed.tensor.device_type, managed.tensor.device_id) == PINNED
            assert managed.flags == (2 if copy else 0)
            at_home = managed.tensor.data == array.__array_interface__["data"][0]
            assert at_home == (not copy)
    capsule = array.__dlpack__(max_version=(1, 0), dl_device=(2, device.ordinal), copy=True)
    managed = tensor_of(capsule)
    assert (managed.tensor.device_type, managed.flags) == (2, 2)
    for dl_device in ((2, device.ordinal), (2, 77), (13, 0), (3, 1)):
        with pytest.raises(BufferError, match="was requested"):
            array.__dlpack__(dl_device=dl_device)
    with pytest.raises(BufferError, match="was requested"):
        array.__dlpack__(dl_device=(2, 77), copy=True)


def test_a_tensor_keeps_the_memory(device):
    array = PinnedArray.from_host(np.arange(4, dtype="i4"))
    consumer = Consumer(array.__dlpack__())
    array.close()
    del array
    gc.collect()
    others = [PinnedArray.zeros(4, "i4") for _ in range(3)]
    data = consumer.managed.tensor.data
    assert ctypes.string_at(data, 16) == np.arange(4, dtype="i4").tobytes()
    consumer.delete()
    del others


def test_an_import_shares_the_memory(device):
    array = PinnedArray.from_host(np.arange(6, dtype="i4").reshape(2, 3))
    imported = from_dlpack(array)
    assert imported.__dlpack_device__() == PINNED
    imported.fill(9)
    imported.synchronize()
    assert array.numpy().tolist() == [[9] * 3] * 2
    copied = from_dlpack(array, copy=True)
    copied.fill(1)
    copied.synchronize()
    assert copied.__dlpack_device__() == PINNED
    assert array.numpy().tolist() == [[9] * 3] * 2


@pytest.mark.parametrize("manager", ["caching", "ordered", "driver"])
def test_a_memory_manager_gets_the_memory_back_after_the_work(device, run_python, manager):
    run_python(
        f"""
import numpy as np
import cuda_safe
from cuda_safe import DeviceArray, PinnedArray, Stream

cuda_safe.set_memory_manager({manager!r})
arrays = []
for number in range(50):
    array = DeviceArray.zeros(1000, "i4", stream=Stream())
    pinned = PinnedArray.from_host(np.full(1000, number, "i4"))
    array.copy_from(pinned)
    del pinned
    arrays.append(array)
for number, array in enumerate(arrays):
    assert (array.copy_to_host() == number).all()
# The interpreter exits while these are in use.
pinned = PinnedArray.zeros(1000, "i4")
pinned.copy_from(arrays[7])
view = pinned.numpy()
pinned.copy_from(arrays[8])
assert cuda_safe.leaked() == 0
print("done")
"""
    )


def test_a_graph_copies_from_and_to_the_memory_and_keeps_it(device):
    stream = Stream()
    array = DeviceArray.zeros(1000, "i4", stream=stream)
    there, back = (PinnedArray.zeros(1000, "i4", stream=stream) for _ in range(2))
    view = there.numpy()
    with stream.capture() as graph:
        array.copy_from(there)
        back.copy_from(array)
        # The host cannot use the memory in stream order while the stream is captured.
        with pytest.raises(cuda_safe.InvalidArgumentError, match="captured"):
            back.numpy()
    ready = graph.instantiate()
    for number in (3, 7):
        view[:] = number
        ready.launch(stream)
        assert (back.numpy() == number).all()
    del there, view, graph
    gc.collect()
    others = [PinnedArray.zeros(1000, "i4", stream=stream) for _ in range(3)]
    ready.launch(stream)
    assert (back.numpy() == 7).all()
    del others


# A driver whose devices use host memory at addresses other than those of the host, as NVIDIA documents for
# some systems, and are known only where a context is current. It is the software driver with other answers.
DISJOINT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

enum { MEMORY_TYPE = 2, DEVICE_POINTER = 3, RANGE_START = 11, HOST = 1 };
static const uint64_t OFFSET = 1ull << 52;

typedef int Get(unsigned, int *, void **, uint64_t);

static int is_host(Get *get, uint64_t address)
{
    int asked = MEMORY_TYPE, type = 0;
    void *answer = &type;
    return get(1, &asked, &answer, address) == 0 && type == HOST;
}

int cuPointerGetAttributes(unsigned count, int *asked, void **answers, uint64_t address)
{
    Get *get = (Get *)dlsym(RTLD_NEXT, "cuPointerGetAttributes");
    if (is_host(get, address - OFFSET))
        address -= OFFSET;
    int (*get_current)(void **) = (int (*)(void **))dlsym(RTLD_NEXT, "cuCtxGetCurrent");
    void *current = 0;
    int code = get(count, asked, answers, address) || get_current(&current);
    for (unsigned i = 0; code == 0 && is_host(get, address) && i < count; i++) {
        uint64_t *answer = answers[i];
        if (asked[i] == DEVICE_POINTER)
            *answer = current ? *answer + OFFSET : 0;
        if (asked[i] == RANGE_START)
            *answer += OFFSET;
    }
    return code;
}
"""


@pytest.mark.skipif(not SIMULATED, reason="needs the software driver")
def test_the_address_for_the_device_is_asked_for_where_no_context_is_current(
    device, run_python, tmp_path
):
    if not shutil.which("cc"):
        missing("a C compiler")
    software = os.environ["CUDA_SYS_LIBRARY"]
    library = tmp_path / "libdisjoint.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), "-x", "c", "-", "-x", "none", "-ldl"]
    command += [f"-Wl,-rpath,{Path(software).parent}", "-Wl,--no-as-needed", software]
    subprocess.run(command, input=DISJOINT, text=True, check=True)
    run_python(
        """
import contextlib, ctypes, os
import cuda_safe
from cuda_safe import Context, PinnedArray, as_cuda_array

class Producer:
    pass

OFFSET = 1 << 52
library = ctypes.CDLL(os.environ["CUDA_SYS_LIBRARY"])
manager = cuda_safe.MemoryManager._of()
host = manager._allocate_host(1000, True, False, False)
theirs = Producer()
theirs.__cuda_array_interface__ = dict(
    shape=(1000,), typestr="|u1", data=(host.address, False), strides=None, version=3
)
for block in contextlib.nullcontext(), Context.primary():
    with block:
        current = ctypes.c_void_p()
        assert library.cuCtxGetCurrent(ctypes.byref(current)) == 0
        assert current.value == (block.handle if block == Context.primary() else None)
        assert as_cuda_array(theirs).address == host.address + OFFSET
        pinned = PinnedArray.zeros(1000, "u1")
        assert pinned.as_device_array().address == pinned.numpy().ctypes.data + OFFSET
print("done")
""",
        CUDA_SYS_LIBRARY=str(library),
    )
