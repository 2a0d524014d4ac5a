"""Lifetimes of objects, and the end of the process."""

import gc
import os
import sys
import threading
import time
import types
import weakref

import pytest

import cuda_safe
from conftest import since
from cuda_safe import DeviceArray, Stream, as_cuda_array, from_cuda_array_interface


def test_a_view_keeps_its_producer(device, produce):
    array = DeviceArray.full(4, 7, "i4")
    producer = produce(array)
    gone = weakref.ref(producer)
    imported = as_cuda_array(producer)
    assert imported.owner is producer
    view, stream = imported[::2], imported.stream
    del producer, imported
    gc.collect()
    assert gone() is not None
    assert view.copy_to_host().tolist() == [7, 7]
    del view
    gc.collect()
    # The stream is also the producer's.
    assert gone() is not None
    del stream
    gc.collect()
    assert gone() is None


def test_the_stream_of_a_cupy_array_is_kept(device, produce, monkeypatch):
    class Current:
        def __init__(self):
            self.stream = Stream()
            self.ptr = self.stream.handle

    def import_of(producer, current):
        cupy = types.SimpleNamespace(ndarray=type(producer))
        cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: current)
        # Afterwards, the global keeps nothing alive.
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cupy", cupy)
            imported = as_cuda_array(producer)
        assert imported.owner is producer
        return imported

    array = DeviceArray.full(4, 7, "i4")
    current = Current()
    current.stream.wait_stream(array.stream)
    imported = import_of(produce(array, stream=current.ptr), current)
    assert imported.stream.handle == current.ptr
    gone = weakref.ref(current)
    view = imported[::2]
    del current, imported
    gc.collect()
    assert gone() is not None
    assert view.copy_to_host().tolist() == [7, 7]
    copied = view.copy()
    array.join(copied.stream)
    stream = copied.stream
    del view, copied
    gc.collect()
    assert gone() is not None
    del stream
    gc.collect()
    assert gone() is None
    # A stream that was current earlier.
    current, home = Current(), Stream()
    imported = import_of(produce(array, stream=home.handle), current)
    assert imported.stream.handle == home.handle
    gone = weakref.ref(current)
    del current
    gc.collect()
    assert gone() is None
    del imported


def test_a_bare_interface_keeps_its_owner(device, produce):
    producer = produce(DeviceArray.zeros(3))
    gone = weakref.ref(producer)
    array = from_cuda_array_interface(producer.__cuda_array_interface__, producer)
    assert array.owner is producer
    del producer
    gc.collect()
    assert gone() is not None
    array.close()
    gc.collect()
    assert gone() is None


def test_a_bare_interface_without_an_owner_keeps_nothing(device, produce):
    producer = produce(DeviceArray.zeros(3))
    gone = weakref.ref(producer), weakref.ref(producer.keep), weakref.ref(producer.keep.stream)
    interface = producer.__cuda_array_interface__
    bare = from_cuda_array_interface(interface)
    assert bare.owner is None
    view, stream = bare[1:], bare.stream
    del producer
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3
    assert (bare.shape, view.shape, stream.handle) == ((3,), (2,), interface["stream"])


def test_reference_cycles_are_collected(device, produce):
    producer = produce(DeviceArray.zeros(3))
    producer.imported = as_cuda_array(producer)
    producer.view = producer.imported[1:]
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None


def test_an_owner_in_a_cycle_with_its_stream_is_released_by_a_close(device):
    """The garbage collector does not see the cycle. It would finalize the owner, which may destroy the
    stream, before memory is freed on the stream."""

    class Owner:
        pass

    stream = Stream()
    owner = Owner()
    owner.stream = Stream.from_handle(stream.handle, owner=owner)
    gone = weakref.ref(owner)
    array = DeviceArray.full(4, 7, "i4", stream=owner.stream)
    del owner
    gc.collect()
    assert gone() is not None
    assert array.copy_to_host().tolist() == [7] * 4
    del array
    gc.collect()
    assert gone() is not None
    gone().stream.close()
    gc.collect()
    assert gone() is None


def test_a_close_during_the_first_export_keeps_the_memory(device):
    """The export lets other threads run: `close` either comes first, or does not free the memory."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    both = threading.Barrier(2)
    arrays, exports = [], []

    def close():
        try:
            while True:
                both.wait()
                arrays[-1].close()
                both.wait()
        except threading.BrokenBarrierError:
            pass

    closer = threading.Thread(target=close)
    closer.start()
    try:
        for number in range(1000):
            array = DeviceArray.full(10, number, "i4", stream=Stream())
            arrays.append(array)
            both.wait()
            try:
                interface = array.__cuda_array_interface__
                exports.append(from_cuda_array_interface(interface, array))
            except cuda_safe.ClosedError:
                exports.append(None)
            both.wait()
            others = [DeviceArray.full(10, -1, "i4") for _ in range(2)]
            if exports[-1] is not None:
                assert exports[-1].copy_to_host().tolist() == [number] * 10
            del others
    finally:
        sys.setswitchinterval(interval)
        both.abort()
        closer.join()
    # The race happened.
    assert any(export is not None for export in exports)


def test_an_exported_array_keeps_its_memory_when_closed(device):
    array = DeviceArray.full(4, 7, "i4")
    imported = as_cuda_array(array)
    array.close()
    with pytest.raises(cuda_safe.ClosedError):
        array.fill(1)
    assert imported.copy_to_host().tolist() == [7] * 4


def test_the_owner_of_an_array_may_use_it_during_its_release(device):
    class Owner:
        def __init__(self):
            self.seen = None

        def __del__(self):
            try:
                self.array.fill(1)
            except cuda_safe.ClosedError as why:
                seen.append(why)

    seen = []
    array = DeviceArray.zeros(3)
    owner = Owner()
    owner.array = from_cuda_array_interface(array.__cuda_array_interface__, owner)
    del owner
    gc.collect()
    assert len(seen) <= 1


def test_threads_use_and_close_concurrently(device):
    """Threads that come too late get a `ClosedError`."""
    errors = []

    def work(array):
        try:
            for _ in range(200):
                array.fill(3)
                array[1:].copy_to_host()
        except cuda_safe.ClosedError:
            pass
        except Exception as why:
            errors.append(why)

    for _ in range(10):
        stream = Stream()
        array = DeviceArray.zeros(100, "i4", stream=stream)
        threads = [threading.Thread(target=work, args=(array,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        stream.close()
        array.close()
        for thread in threads:
            thread.join()
    assert errors == []


def test_other_threads_run_while_one_waits(device):
    """A wait that held the GIL would block the thread that ends the wait."""
    if "CUDA_SYS_LIBRARY" in os.environ:
        pytest.skip("the software driver does not wait")
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    array = DeviceArray.zeros(1 << 30, "u1")
    for number in range(400):
        array.fill(number % 256)
    before = len(ticks)
    array.synchronize()
    during = len(ticks) - before
    stop.set()
    thread.join()
    assert during > 0


def test_nothing_is_leaked(device):
    before = cuda_safe.leaked()
    for _ in range(20):
        stream = Stream()
        array = DeviceArray.zeros(100, stream=stream)
        view = as_cuda_array(array)[1:]
        del stream, array, view
    gc.collect()
    assert cuda_safe.leaked() == before


ENDS = {
    "objects in the module": "",
    "a stack of contexts that nobody ended": "stream.__enter__(); device.__enter__()",
    "a daemon thread that works": """
import threading
def work():
    while True:
        a = cuda_safe.DeviceArray.zeros(100, stream=stream)
        a.fill(1)
        cuda_safe.as_cuda_array(a)[1:].copy_to_host()
        stream.synchronize()
        a.close()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
import time; time.sleep(0.2)
""",
    "objects that others free at the end": """
import atexit
atexit.register(lambda: (array.copy_to_host(), stream.synchronize()))
""",
    "objects that end last": """
import sys
class Last:
    def __del__(self, array=array, view=view):
        view.fill(1)
        array.copy_to_host()
sys.last = Last()
""",
    "a circle": """
class Producer: pass
p = Producer()
p.__cuda_array_interface__ = array.__cuda_array_interface__
p.array = cuda_safe.as_cuda_array(p)
p.stream = p.array.stream
del p
""",
    "an owner of a stream": """
theirs = cuda_safe.Stream.from_handle(stream.handle, owner=lambda: None)
on_it = cuda_safe.DeviceArray.zeros(10, stream=theirs)
""",
    "an exit without an end": "import os; print('done', flush=True); os._exit(0)",
    "a call of Python's that is under way": """
import threading, time
begun = threading.Event()
class Slow:
    @property
    def __cuda_array_interface__(self):
        begun.set()
        time.sleep(0.5)
        # Possibly another allocation, at the end.
        return cuda_safe.as_cuda_array(array).__cuda_array_interface__
threading.Thread(target=lambda: cuda_safe.as_cuda_array(Slow()), daemon=True).start()
begun.wait()
""",
    "an index that is computed by Python": """
import sys, threading, time
sys.setswitchinterval(1e-6)
class Number:
    def __index__(self):
        return sum(range(100)) * 0
def work():
    while True:
        array[Number(), Number():]
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
""",
    "a wait that outlasts it": """
# The thread returns from the driver after the interpreter was finalized and its timeout expired.
import ctypes, os, sys, threading, time
driver = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
sleep = ctypes.cast(ctypes.CDLL(None).sleep, ctypes.c_void_p)
assert driver.cuLaunchHostFunc(ctypes.c_void_p(stream.handle), sleep, ctypes.c_void_p(7)) == 0
threading.Thread(target=stream.synchronize, daemon=True).start()
time.sleep(0.5)
class Last:
    def __del__(self, sleep=time.sleep):
        sleep(4)
sys.last = Last()
""",
    "an exception": """
try:
    array[100]
except IndexError as why:
    error = why
""",
}


@pytest.mark.parametrize("what", ENDS)
def test_the_interpreter_exits_cleanly(device, run_python, what):
    run_python(
        """
import cuda_safe
device = cuda_safe.Device(0)
stream = cuda_safe.Stream()
array = cuda_safe.DeviceArray.zeros((3, 4), "f4", stream=stream)
view = cuda_safe.as_cuda_array(array)[1:]
event = stream.record_event()
if cuda_safe.driver_version() >= (12, 4):
    green = device.sm_resource().partition(["25%"])[0]
    green_stream = green.stream()
    on_green = cuda_safe.DeviceArray.zeros(10, stream=green_stream)
"""
        + ENDS[what]
        + "\nprint('done')"
    )


def test_an_ended_interpreter_gets_no_error_of_the_allocator(device, run_python):
    """The function that gets the error may be written in Python."""
    run_python(
        """
import atexit, ctypes, os, sys, threading, time
ended = []
def wait():
    ended.append(True)
    time.sleep(0.1)
# It runs after the function of the package, which is registered later.
atexit.register(wait)
import cuda_safe
sys.path.insert(0, os.environ["TESTS"])
from tensors import ALLOCATE, SET_ERROR, TABLE_NAME, DLTensor, Table, pointer_of
table = pointer_of(cuda_safe.DeviceArray.__dlpack_c_exchange_api__, TABLE_NAME)
allocate = ALLOCATE(ctypes.cast(Table.from_address(table).allocate, ctypes.c_void_p).value)
prototype, out = DLTensor(device_type=1), ctypes.c_void_p()
errors = []
def fail(context, kind, message):
    errors.append(message)
    if ended:
        print("called after the end", file=sys.stderr)
failed = SET_ERROR(fail)
def work():
    while True:
        code = allocate(ctypes.addressof(prototype), ctypes.addressof(out), None, failed)
        assert code == -1
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
while len(errors) < 100:
    time.sleep(0.001)
print("done")
""",
        TESTS=os.path.dirname(__file__),
    )


def test_earlier_exit_handlers_do_not_wait(device, run_python):
    """They run after the function of this package; until then, threads that they join use the package."""
    begin = time.monotonic()
    run_python(
        """
import atexit, threading, time
stop, begin, ended = threading.Event(), threading.Event(), []
def work_late():
    begin.wait()
    work()
def work():
    try:
        while not stop.is_set():
            array.fill(1)
            array[1:].copy_to_host()
            cuda_safe.as_cuda_array(array)
    finally:
        ended.append(threading.get_ident())
def end():
    # The finalizing thread continues, and other threads end.
    assert array.copy_to_host().tolist() == [1, 1, 1]
    begin.set()
    late.join()
    stop.set()
    for thread in threads:
        thread.join()
    assert len(ended) == 4
    print("done", flush=True)
atexit.register(end)
import cuda_safe
array = cuda_safe.DeviceArray.full(3, 1, stream=cuda_safe.Stream())
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
# Since Python 3.12, no thread can be started during finalization, so this one has started before.
late = threading.Thread(target=work_late, daemon=True)
for thread in [late, *threads]:
    thread.start()
time.sleep(0.2)
"""
    )
    assert time.monotonic() - begin < 30


FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")


@FORKS
def test_a_fork_during_calls_of_other_threads_exits(device, run_python):
    run_python(
        """
import cuda_safe, os, signal, sys, threading, time, warnings
# An import that is interrupted by the fork would never complete in the child.
import numpy
warnings.simplefilter("ignore")
begun, stop = threading.Event(), threading.Event()
class Slow:
    @property
    def __cuda_array_interface__(self):
        begun.set()
        stop.wait()
        return array.__cuda_array_interface__
array = cuda_safe.DeviceArray.zeros(10)
slow = threading.Thread(target=lambda: cuda_safe.as_cuda_array(Slow()))
slow.start()
begun.wait()
def work():
    while not stop.is_set():
        stream = cuda_safe.Stream()
        own = cuda_safe.DeviceArray.zeros(100, stream=stream)
        own.fill(1)
        own.copy_to_host()
        stream.close()
        own.close()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
ended = []
for _ in range(20):
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            array.copy_to_host()
        except cuda_safe.ForkedError:
            array.close()
            sys.exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    # It does not wait.
    ended.append((os.waitstatus_to_exitcode(status), time.monotonic() - start < 4))
stop.set()
assert ended == [(7, True)] * 20, ended
for thread in [slow, *threads]:
    thread.join()
print("done")
"""
    )


@FORKS
def test_a_fork_during_lazy_initialization_works(device, run_python):
    # Lazy initialization happens once in a process.
    for _ in range(10):
        run_python(
            """
import cuda_safe, os, signal, sys, threading, warnings
import numpy
warnings.simplefilter("ignore")
# Threads are therefore in the middle of each initialization.
sys.setswitchinterval(1e-6)
arrays = [cuda_safe.DeviceArray.zeros(10) for _ in range(4)]
go = threading.Event()
def work(array):
    go.wait()
    array.copy_to_host()
    array.__cuda_array_interface__
    cuda_safe.as_cuda_array(array)
threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
for thread in threads:
    thread.start()
go.set()
children = []
for _ in range(12):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            arrays[0].copy_to_host()
        except cuda_safe.ForkedError:
            os._exit(7)
        os._exit(1)
    children.append(child)
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert ended == [7] * 12, ended
for thread in threads:
    thread.join()
print("done")
"""
        )


@FORKS
def test_a_fork_is_an_exception(device, run_python):
    run_python(
        """
import cuda_safe, os, sys, warnings
warnings.simplefilter("ignore")
array = cuda_safe.DeviceArray.zeros(10)
stream, event = cuda_safe.Stream(), cuda_safe.Event()
child = os.fork()
if child == 0:
    uses = [
        lambda: array.fill(1),
        lambda: array.copy_to_host(),
        lambda: array.copy(),
        lambda: cuda_safe.as_cuda_array(array),
        lambda: cuda_safe.DeviceArray.zeros(3),
        lambda: stream.synchronize(),
        lambda: event.record(stream),
        lambda: stream.wait_event(event),
        lambda: cuda_safe.Stream(),
        lambda: cuda_safe.Device(),
        lambda: cuda_safe.Device(0).sm_resource(),
        lambda: cuda_safe.Stream.legacy().synchronize(),
    ]
    code = 0
    for number, use in enumerate(uses):
        try:
            use()
        except cuda_safe.ForkedError:
            pass
        except BaseException as why:
            print(number, type(why), why)
            code = 1
        else:
            print(number, "worked")
            code = 1
    # Releasing objects has no effect.
    del array, stream, event
    sys.stdout.flush()
    os._exit(code)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert (array.copy_to_host() == 0).all()
print("done")
"""
    )


RESET = """
import ctypes, gc, os
import cuda_safe
from cuda_safe import Context, DeviceArray, Event, PinnedArray, Stream, as_cuda_array, from_dlpack

def reset():
    library = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
    assert library.cuDevicePrimaryCtxReset_v2(0) == 0

def refused(use):
    try:
        use()
    except cuda_safe.InvalidArgumentError as why:
        assert "was reset" in str(why), why
    else:
        raise AssertionError("no exception was raised")
"""


def test_objects_of_a_context_that_was_reset_are_refused(device, run_python):
    since(12, 0)
    run_python(
        RESET
        + """
context, stream, event = Context.primary(), Stream(), Event()
own, default = DeviceArray.zeros(3, stream=stream), DeviceArray.zeros(3)
default.__cuda_array_interface__
imported, tensor = as_cuda_array(own), from_dlpack(default)
pinned, view = PinnedArray.zeros(3), own[1:]
host = pinned.numpy()
host[:] = 5
exported = default.__dlpack__()
graph_stream = Stream()
with stream:
    reset()
    refused(lambda: DeviceArray.zeros(3))
    refused(lambda: Stream.current())
for array in own, default, imported, tensor, view, pinned:
    for use in (
        array.synchronize,
        array.copy_from if array is pinned else array.copy_to_host,
        array.__dlpack__,
        array.__dlpack_device__,
        lambda: array.stream,
    ):
        refused(lambda: use(own) if use == pinned.copy_from else use())
for array in own, default, imported, tensor, view:
    for use in (
        array.copy,
        array.to_bytes,
        lambda: array.fill(1),
        lambda: array[:1],
        lambda: array.address,
        lambda: array.join(Stream()),
        lambda: array.__cuda_array_interface__,
        lambda: DeviceArray.zeros(array.shape).copy_from(array),
        lambda: cuda_safe.pointer_attributes(array),
    ):
        refused(use)
for use in pinned.numpy, pinned.as_device_array, lambda: pinned.__array_interface__:
    refused(use)
for use in (
    stream.synchronize,
    stream.__enter__,
    stream.__cuda_stream__,
    stream.record_event,
    stream.capture,
    lambda: stream.handle,
    lambda: stream.is_complete,
    lambda: stream.is_capturing,
    lambda: stream.wait_event(Event()),
    lambda: stream.wait_stream(Stream()),
    lambda: Stream().wait_stream(stream),
    lambda: Stream().wait_event(event),
    lambda: DeviceArray.zeros(3, stream=stream),
    lambda: event.record(Stream()),
    lambda: event.is_complete,
    event.synchronize,
    context.stream,
):
    refused(use)
# The new context is used from now on.
assert Context.primary() != context
array = DeviceArray.full(3, 7, "i4", stream=Stream())
assert array.copy_to_host().tolist() == [7] * 3
assert PinnedArray.zeros(3).numpy().tolist() == [0] * 3
assert DeviceArray.full(3, 8, "i4").copy_to_host().tolist() == [8] * 3
# Nothing of the old context is released, as its handles and addresses may be in use again.
event.close()
graph_stream.close()
del own, default, imported, tensor, view, pinned, host, exported, stream, event, graph_stream
gc.collect()
assert array.copy_to_host().tolist() == [7] * 3
assert cuda_safe.leaked() == 0
print("done")
"""
    )


def test_a_tensor_is_released_after_a_reset(device, run_python):
    """The consumer of an export, and the producer of an import."""
    since(12, 0)
    run_python(
        RESET
        + """
import sys, weakref
sys.path.insert(0, os.environ["TESTS"])
from tensors import Consumer

class Owner:
    pass

for stream in (lambda: None), Stream:
    array = DeviceArray.zeros(3, stream=stream())
    owner = Owner()
    owner.__cuda_array_interface__ = array.__cuda_array_interface__
    consumer = Consumer(as_cuda_array(owner).__dlpack__(stream=1))
    imported = from_dlpack(as_cuda_array(owner))
    imported.fill(1)
    gone = weakref.ref(owner)
    del owner
    reset()
    assert gone() is not None
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(consumer.managed.deleter)(
        ctypes.addressof(consumer.managed)
    )
    del imported
    gc.collect()
    assert gone() is None
assert cuda_safe.leaked() == 0
print("done")
""",
        TESTS=os.path.dirname(__file__),
    )
