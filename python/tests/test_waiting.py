"""Every call that may block lets other Python threads run, including releases.

Each call waits for a C function that a Python thread lets continue. This thread gets the GIL only from
the call, so a call that held the GIL would block forever.
"""

import pytest
from conftest import SIMULATED, since

START = """
import ctypes, faulthandler, os, sys, threading
import numpy
import cuda_safe
from cuda_safe import DeviceArray, Stream

faulthandler.dump_traceback_later(60, exit=True)
# Calls through this library object keep the GIL.
driver = ctypes.PyDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
libc = ctypes.CDLL(None)
begun, go_on = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
for semaphore in (begun, go_on):
    assert libc.sem_init(semaphore, 0, 0) == 0

def block(stream):
    for function, semaphore in [(libc.sem_post, begun), (libc.sem_wait, go_on)]:
        assert driver.cuLaunchHostFunc(ctypes.c_void_p(stream), function, semaphore) == 0

ran = []
def run():
    libc.sem_wait(begun)
    ran.append(True)
    libc.sem_post(go_on)

def green():
    return device.sm_resource().partition([device.sm_resource().min_group])[0]
"""

OBJECTS = """
device, stream = cuda_safe.Device(0), Stream()
array, host = DeviceArray.zeros(1000, "i4", stream=stream), numpy.ones(1000, "i4")
stream.synchronize()
"""

MEANWHILE = """
thread = threading.Thread(target=run, daemon=True)
thread.start()
with device:
    block({blocked})
    sys.setswitchinterval(1000)
    {call}
    # On a GPU, some of them do not block.
    assert ran or {is_gpu}
thread.join()
faulthandler.cancel_dump_traceback_later()
print("done")
"""

# The setup, and the call. The stream of the objects is blocked.
CALLS = {
    "synchronize of a stream": ("", "stream.synchronize()"),
    "synchronize of an event": ("", "stream.record_event().synchronize()"),
    "synchronize of an array": ("", "array.synchronize()"),
    "synchronize of a device": ("", "device.synchronize()"),
    "synchronize of a context": ("", "device.context.synchronize()"),
    "a copy to the host": ("", "array.copy_to_host()"),
    "a copy of steps to the host": ("", "array[::2].copy_to_host()"),
    "a copy to bytes": ("", "array.to_bytes()"),
    "a copy from the host": ("", "array.copy_from(host)"),
    "a copy of steps from the host": ("", "array[::2] = host[::2]"),
    "an array of one of the host": ("", "DeviceArray.from_host(host, stream=stream)"),
}

TENSOR = "tensor = cuda_safe.from_dlpack(array, stream=stream); tensor.fill(1)"
STREAM = "last = green().stream()"
ARRAY = "last = DeviceArray.zeros(1000, stream=green().stream()); last.synchronize()"
RELEASES = {
    "the last reference to an imported tensor": (TENSOR, "del tensor"),
    "close of an imported tensor": (TENSOR, "tensor.close()"),
}

# Driver 580 destroys green contexts without a wait.
RELEASES_WITHOUT_A_WAIT = {
    "the last reference to a green context": ("last = green()", "del last"),
    "close of a green context": ("last = green()", "last.close()"),
    "the last reference to its resource": ("last = green().sm_resource()", "del last"),
    "the last reference to its stream": (STREAM, "del last"),
    "close of its stream": (STREAM, "last.close()"),
    "the end of a block of its stream": (STREAM + "; last.__enter__(); last.close()", "last.__exit__()"),
    "the last reference to an array on it": (ARRAY, "del last"),
    "close of an array on it": (ARRAY, "last.close()"),
    "the last reference to a tensor of that": (ARRAY + "; last = last.__dlpack__(stream=-1)", "del last"),
}

CHOOSE = "cuda_safe.set_memory_manager('driver'); manager = cuda_safe.MemoryManager._of()\n"
MEMORY = "all = [manager._allocate(4096) for _ in range(20)]"
MANAGED = "all = [manager._allocate_managed(4096, True) for _ in range(20)]"
HOST = "all = [manager._allocate_host(4096, False, False, False) for _ in range(20)]"
PINNED = "last = manager._pin(host, host.ctypes.data, host.nbytes, False)"
ARRAYS = "all = [DeviceArray.zeros(1000, stream=stream) for _ in range(20)]; stream.synchronize()"
MANAGERS = {
    "the last references to memory": (MEMORY, "all.clear()"),
    "close of memory": (MEMORY, "[memory.close() for memory in all]"),
    "the last references to managed memory": (MANAGED, "all.clear()"),
    "the last references to arrays": (ARRAYS, "all.clear()"),
    "close of arrays": (ARRAYS, "[array.close() for array in all]"),
    "the last references to memory of the host": (HOST, "all.clear()"),
    "close of memory of the host": (HOST, "[memory.close() for memory in all]"),
    "the last reference to memory that was pinned": (PINNED, "del last"),
    "close of memory that was pinned": (PINNED, "last.close()"),
    "trim": (MEMORY + "; all.clear()", "manager.trim()"),
}

INTERFACE = "interface = array.__cuda_array_interface__"
BARE = "bare = cuda_safe.from_cuda_array_interface({**array.__cuda_array_interface__, 'stream': None}, array)"
DEFAULT_STREAMS = {
    "synchronize of the legacy one": ("", "1", "Stream.legacy().synchronize()"),
    "synchronize of the thread's": ("", "2", "Stream.per_thread().synchronize()"),
    "work on an array that has no stream": (BARE, "device.default_stream.handle", "bare.fill(1)"),
    "the import of an array on the thread's": (
        INTERFACE,
        "2",
        "cuda_safe.from_cuda_array_interface({**interface, 'stream': 2}, array)",
    ),
}


def other_threads_run(run_python, before, call, blocked="stream.handle"):
    run_python(START + before + MEANWHILE.format(blocked=blocked, call=call, is_gpu=not SIMULATED))


@pytest.mark.parametrize("what", [*CALLS, *RELEASES])
def test_other_threads_run_during(device, run_python, what):
    before, call = {**CALLS, **RELEASES}[what]
    other_threads_run(run_python, OBJECTS + before, call)


@pytest.mark.parametrize("what", RELEASES_WITHOUT_A_WAIT)
def test_running_work_is_not_waited_for_by(device, run_python, what):
    since(12, 4)
    before, call = RELEASES_WITHOUT_A_WAIT[what]
    program = MEANWHILE.replace("assert ran or {is_gpu}", "assert not ran or {is_gpu}; stream.synchronize()")
    program = program.format(blocked="stream.handle", call=call, is_gpu=not SIMULATED)
    run_python(START + OBJECTS + before + program)


@pytest.mark.parametrize("what", MANAGERS)
def test_other_threads_run_while_a_manager_waits_in(device, run_python, what):
    before, call = MANAGERS[what]
    other_threads_run(run_python, CHOOSE + OBJECTS + before, call)


@pytest.mark.parametrize("what", DEFAULT_STREAMS)
def test_other_threads_run_while_a_default_stream_is_waited_for_in(device, run_python, what):
    before, stream, call = DEFAULT_STREAMS[what]
    other_threads_run(run_python, OBJECTS + before, call, stream)
