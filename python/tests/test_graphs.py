"""Graphs: captures, launches, updates, and what a graph keeps alive.

The tests of CuPy, PyTorch and Numba in graphs are in test_graphs_of_peers.py. Here their work is done with
raw driver calls, as those libraries do it.
"""

import contextlib
import ctypes
import gc
import os
import threading
import weakref

import numpy as np
import pytest
from conftest import SIMULATED

import cuda_safe
from cuda_safe import DeviceArray, Stream, as_cuda_array

N = 100


class Thing:
    """An object to keep."""


def numbers(start=0):
    return np.arange(start, start + N, dtype="i4")


def array(stream, start=0):
    return DeviceArray.from_host(numbers(start), stream=stream)


def driver():
    return ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))


def copied(stream):
    """Captures a copy between two arrays."""
    source, target = array(stream), array(stream, 1000)
    with stream.capture() as graph:
        target.copy_from(source)
    return source, target, graph


def collected(*streams):
    """Completes all work, and lets the package release objects."""
    gc.collect()
    for stream in streams:
        stream.synchronize()
    cuda_safe.Event()


def test_a_graph_replays_the_captured_work_with_changed_inputs(device):
    stream = Stream()
    source, target = array(stream), array(stream, 1000)
    half = target[: N // 2]
    with stream.capture() as graph:
        assert stream.is_capturing
        target.copy_from(source)
        half.fill(-1)
    assert not stream.is_capturing
    assert target.copy_to_host().tolist() == numbers(1000).tolist(), "nothing was executed"
    executable = graph.instantiate()
    executable.upload(stream)
    for start in 3, 200:
        source.copy_from(numbers(start))
        executable.launch(stream)
        expected = numbers(start)
        expected[: N // 2] = -1
        assert target.copy_to_host().tolist() == expected.tolist()


def test_a_graph_tells_its_nodes_and_draws_itself(device, tmp_path):
    stream, side = Stream(), Stream()
    a, b, c = array(stream), array(stream), array(side)
    with stream.capture() as graph:
        a.fill(1)
        side.wait_event(stream.record_event())
        b.copy_from(a)
        c.fill(2)
        stream.wait_stream(side)
        a.fill(3)
    assert graph.nodes == ["fill", "copy", "fill", "fill"]
    assert sorted(graph.edges) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    graph.dot(tmp_path / "graph.dot")
    short = (tmp_path / "graph.dot").read_text()
    assert short.startswith("digraph") and short.count("->") == 4
    graph.dot(str(tmp_path / "verbose.dot"), verbose=True)
    assert (tmp_path / "verbose.dot").read_text() != ""
    with pytest.raises(cuda_safe.DriverError, match="CUDA_ERROR_OPERATING_SYSTEM"):
        graph.dot(tmp_path / "nowhere" / "graph.dot")


def test_streams_of_one_capture_are_ordered_by_their_arrays(device):
    """A copy between arrays of two streams orders both streams, here within the graph."""
    stream, side = Stream(), Stream()
    a, b = array(stream), array(side, 1000)
    with stream.capture() as graph:
        side.wait_event(stream.record_event())
        assert side.is_capturing
        b.copy_from(a)
        b.fill(5)
        a.copy_from(b)
        stream.wait_stream(side)
    executable = graph.instantiate()
    executable.launch(stream)
    assert a.copy_to_host().tolist() == [5] * N
    assert b.copy_to_host().tolist() == [5] * N


def test_a_graph_keeps_the_arrays_that_the_package_used(device, produce):
    stream = Stream()
    memory = array(stream)
    producer, target = produce(memory), array(stream)
    gone = weakref.ref(producer)
    imported = as_cuda_array(producer)
    del producer
    with stream.capture() as graph:
        for _ in range(3):
            target.copy_from(imported[:])
    executable = graph.instantiate()
    del imported
    gc.collect()
    assert gone() is not None
    graph.close()
    target.fill(0)
    executable.launch(stream)
    assert target.copy_to_host().tolist() == numbers().tolist()
    executable.close()
    collected(stream)
    assert gone() is None


def test_a_graph_keeps_the_arrays_of_streams_that_joined_through_other_code(device, produce):
    library, stream, side = driver(), Stream(), Stream()
    memory = array(side)
    producer = produce(memory)
    gone = weakref.ref(producer)
    imported = as_cuda_array(producer)
    del producer
    events = [cuda_safe.Event(), cuda_safe.Event()]

    def wait(event, before, after):
        handles = [ctypes.c_void_p(handle) for handle in (event.handle, before.handle, after.handle)]
        assert library.cuEventRecord(handles[0], handles[1]) == 0
        assert library.cuStreamWaitEvent(handles[2], handles[0], 0) == 0

    with stream.capture() as graph:
        wait(events[0], stream, side)
        imported.fill(3)
        wait(events[1], side, stream)
    del imported
    gc.collect()
    assert gone() is not None
    graph.instantiate().launch(stream)
    stream.synchronize()
    assert memory.copy_to_host().tolist() == [3] * N
    graph.close()
    collected(stream)
    assert gone() is None


def test_a_closed_array_stays_alive_in_a_graph(device):
    stream = Stream()
    source, target, graph = copied(stream)
    source.close()
    del source
    garbage = [DeviceArray.full(N, 77, "i4", stream=stream) for _ in range(10)]
    graph.instantiate().launch(stream)
    assert target.copy_to_host().tolist() == numbers().tolist()
    del garbage


def test_kept_objects_are_released_after_the_last_launch(device):
    """Work of another library, whose memory the graph does not know."""
    library, stream = driver(), Stream()
    memory, thing = array(stream), Thing()
    thing.memory = memory
    memory.stream.synchronize()
    with stream.capture() as graph:
        handle = ctypes.c_void_p(stream.handle)
        address = ctypes.c_uint64(memory.address)
        assert library.cuMemsetD32Async(address, 7, ctypes.c_size_t(N), handle) == 0
        graph.keep(thing)
    gone, seen = weakref.ref(thing), memory[:]
    del thing, memory
    executable = graph.instantiate()
    late = Thing()
    late_gone = weakref.ref(late)
    graph.keep(late, late)
    del graph, late
    gc.collect()
    assert gone() is not None and late_gone() is not None
    executable.launch(stream)
    del executable
    gc.collect()
    if SIMULATED:
        # The launch has not run.
        assert gone() is not None and late_gone() is not None
    collected(stream)
    assert gone() is None and late_gone() is None
    assert seen.copy_to_host().tolist() == [7] * N


def test_a_graph_that_is_never_launched_releases_its_objects_at_once(device):
    stream, thing = Stream(), Thing()
    gone = weakref.ref(thing)
    with stream.capture() as graph:
        graph.keep(thing)
    del thing
    executable = graph.instantiate()
    graph.close()
    gc.collect()
    assert gone() is not None
    executable.close()
    del graph
    gc.collect()
    assert gone() is None


def test_closing_ends_a_cycle(device):
    stream, thing = Stream(), Thing()
    with stream.capture() as thing.graph:
        thing.graph.keep(thing)
    thing.executable = thing.graph.instantiate()
    gone = weakref.ref(thing)
    graph, executable = thing.graph, thing.executable
    del thing
    gc.collect()
    assert gone() is not None
    graph.close()
    executable.close()
    del graph, executable
    gc.collect()
    assert gone() is None


def test_an_update_changes_later_launches_and_releases_what_they_do_not_use(device):
    stream, things = Stream(), []
    target = array(stream, 1000)

    def fill(value):
        thing = Thing()
        things.append(weakref.ref(thing))
        with stream.capture() as graph:
            target.fill(value)
            graph.keep(thing)
        return graph

    executable = fill(1).instantiate()
    for value in 2, 3, 4:
        executable.launch(stream)
        executable.update(fill(value))
        assert target.copy_to_host().tolist() == [value - 1] * N
        executable.launch(stream)
        assert target.copy_to_host().tolist() == [value] * N
        collected(stream)
        assert [thing() is not None for thing in things] == [False] * (value - 1) + [True]
    executable.close()
    collected(stream)
    assert things[-1]() is None


def test_a_failed_update_names_the_node_and_the_reason_and_changes_nothing(device):
    stream = Stream()
    source, target, graph = copied(stream)
    executable = graph.instantiate()
    with stream.capture() as other_type:
        target.fill(9)
    with stream.capture() as other_shape:
        target.copy_from(source)
        target.fill(9)
    with pytest.raises(cuda_safe.DriverError, match=r"another type \(node 0, fill\)") as why:
        executable.update(other_type)
    assert why.value.name == "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
    with pytest.raises(cuda_safe.DriverError, match="nodes or edges"):
        executable.update(other_shape)
    executable.launch(stream)
    assert target.copy_to_host().tolist() == numbers().tolist()


def test_an_exception_in_the_block_discards_the_captured_work(device):
    stream = Stream()
    target, thing = array(stream), Thing()
    gone = weakref.ref(thing)
    with pytest.raises(ZeroDivisionError):
        with stream.capture() as graph:
            target.fill(1)
            graph.keep(thing)
            raise ZeroDivisionError
    del thing
    gc.collect()
    assert gone() is None
    assert not stream.is_capturing
    for use in graph.instantiate, lambda: graph.nodes, lambda: graph.keep(1):
        with pytest.raises(ValueError, match="capture of the graph has failed"):
            use()
    assert "failed" in repr(graph)
    assert target.copy_to_host().tolist() == numbers().tolist()
    target.fill(2)
    assert target.copy_to_host().tolist() == [2] * N


def test_a_failed_capture_raises_the_reason_of_the_driver(device):
    stream, side = Stream(), Stream()
    other = array(side)
    with pytest.raises(cuda_safe.DriverError) as unjoined:
        with stream.capture() as graph:
            side.wait_event(stream.record_event())
            other.fill(1)
    assert unjoined.value.name == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
    assert not stream.is_capturing and not side.is_capturing
    with pytest.raises(ValueError, match="failed"):
        graph.instantiate()
    with pytest.raises(cuda_safe.DriverError) as invalidated:
        with stream.capture():
            with contextlib.suppress(cuda_safe.DriverError):
                stream.synchronize()
    assert invalidated.value.name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    stream.synchronize()
    assert other.copy_to_host().tolist() == numbers().tolist()


def test_what_a_capture_cannot_contain_is_refused_and_the_capture_goes_on(device):
    stream, outside = Stream(), Stream()
    source, target = array(stream), array(stream, 1000)
    others, memory = array(outside), array(stream)
    bare = cuda_safe.from_cuda_array_interface({**memory.__cuda_array_interface__, "stream": None}, memory)
    executable = copied(stream)[2].instantiate()
    with stream.capture() as graph:
        for use in (
            lambda: DeviceArray.zeros(N, stream=stream),
            lambda: source.copy(),
            lambda: source.copy_to_host(),
            lambda: source.copy_from(numbers()),
            lambda: source.copy_from(others),
            lambda: others.copy_from(source),
            lambda: source.copy_from(bare),
            lambda: stream.wait_stream(outside),
            lambda: outside.wait_stream(stream),
            lambda: executable.launch(stream),
            lambda: executable.upload(stream),
            lambda: stream.capture().__enter__(),
            lambda: graph.instantiate(),
        ):
            with pytest.raises(cuda_safe.InvalidArgumentError, match="captur"):
                use()
        assert stream.is_capturing and not outside.is_capturing
        target.copy_from(source)
    assert graph.nodes == ["copy"]
    graph.instantiate().launch(stream)
    assert target.copy_to_host().tolist() == numbers().tolist()


def test_other_streams_work_during_a_capture(device):
    stream, outside = Stream(), Stream()
    source, target, first = copied(stream)
    executable, others = first.instantiate(), array(outside)
    with stream.capture() as graph:
        target.fill(1)
        with outside.capture() as inner:
            others.fill(2)
            source.fill(3)
        executable.launch(outside)
        others.copy_from(numbers(7))
        assert others.copy_to_host().tolist() == numbers(7).tolist()
    assert (graph.nodes, inner.nodes) == (["fill", "fill"], ["fill"])
    assert target.copy_to_host().tolist() == numbers().tolist()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_mode_forbids_calls_of_threads(device, mode):
    library, stream = driver(), Stream()
    target = array(stream)

    def allocate():
        """Makes a call that could wait for captured work. Returns whether it was permitted."""
        address = ctypes.c_uint64()
        with device:
            code = library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64))
            return code == 0 and library.cuMemFree_v2(address) == 0

    def permitted(on_thread):
        answers = []
        try:
            with stream.capture(mode):
                target.fill(1)
                on_thread(lambda: answers.append(allocate()))
        except cuda_safe.DriverError as why:
            assert why.name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
            assert answers == [False]
        return answers[0]

    def elsewhere(call):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    assert permitted(lambda call: call()) == (mode == "relaxed")
    assert permitted(elsewhere) == (mode != "global")


def test_default_streams_and_unknown_modes_are_refused(device):
    for stream in Stream.legacy(), Stream.per_thread():
        with pytest.raises(cuda_safe.InvalidArgumentError, match="default streams"):
            stream.capture()
    with pytest.raises(cuda_safe.InvalidArgumentError, match="thread_local"):
        Stream().capture("Global")


def test_a_graph_is_launched_on_any_stream_that_is_kept_alive(device):
    stream = Stream()
    source, target, graph = copied(stream)
    executable = graph.instantiate()
    other = Stream()

    class Theirs:
        def __cuda_stream__(self):
            return 0, other.handle

    for launched_on in stream, other, Theirs(), Stream.legacy(), device.default_stream:
        target.fill(0)
        stream.synchronize()
        executable.launch(launched_on)
        other.synchronize()
        device.default_stream.synchronize()
        assert target.copy_to_host().tolist() == numbers().tolist()
    with pytest.raises(cuda_safe.InvalidArgumentError, match="pass an owner"):
        executable.launch(Stream.from_handle(other.handle))
    executable.launch(Stream.from_handle(other.handle, owner=other))
    with pytest.raises(cuda_safe.InvalidArgumentError, match="per-thread"):
        executable.launch(Stream.per_thread())
    device.synchronize()


def test_a_stream_lives_until_its_launches_are_complete(device):
    source, target, graph = copied(Stream())
    executable = graph.instantiate()
    stream = Stream()
    handle = stream.handle
    executable.launch(stream)
    target.join(stream)
    stream.close()
    del stream, executable, graph
    gc.collect()
    assert target.copy_to_host().tolist() == numbers().tolist()
    assert handle


def test_the_stream_of_a_capture_may_be_dropped_or_closed(device):
    stream = Stream()
    target = array(stream)
    with stream.capture() as graph:
        stream.close()
        target.fill(1)
        del stream
        gc.collect()
    with Stream().capture() as empty:
        gc.collect()
    assert graph.nodes == ["fill"] and empty.nodes == []
    executable = empty.instantiate()
    executable.launch(Stream())


def test_a_capture_is_used_once_and_ends_on_its_thread(device):
    stream = Stream()
    capture = stream.capture()
    answers = []

    def leave():
        try:
            capture.__exit__(None, None, None)
        except cuda_safe.InvalidArgumentError as why:
            answers.append(str(why))

    with capture as graph:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert "thread that began it" in answers[0]
        assert stream.is_capturing
    assert graph.nodes == []
    with pytest.raises(cuda_safe.InvalidArgumentError, match="one `with` block"):
        capture.__enter__()
    with pytest.raises(cuda_safe.InvalidArgumentError, match="thread that began it"):
        capture.__exit__(None, None, None)


def test_a_capture_that_is_not_left_ends_with_its_object(device):
    stream = Stream()
    capture = stream.capture()
    graph = capture.__enter__()
    assert stream.is_capturing
    del capture
    gc.collect()
    assert not stream.is_capturing
    with pytest.raises(ValueError, match="failed"):
        graph.instantiate()


def test_a_graph_that_is_closed_in_its_block_stays_closed(device):
    stream = Stream()
    target = array(stream)
    with stream.capture() as graph:
        assert "captured" in repr(graph)
        target.fill(1)
        graph.close()
    for use in graph.instantiate, lambda: graph.keep(1):
        with pytest.raises(cuda_safe.ClosedError):
            use()
    assert graph.closed and "closed" in repr(graph)


def test_closed_executable_graphs_are_refused_and_their_launches_go_on(device):
    stream = Stream()
    source, target, graph = copied(stream)
    executable = graph.instantiate()
    executable.launch(stream)
    executable.close()
    executable.close()
    assert executable.closed and "closed" in repr(executable)
    for use in (
        lambda: executable.launch(stream),
        lambda: executable.upload(stream),
        lambda: executable.update(graph),
    ):
        with pytest.raises(cuda_safe.ClosedError):
            use()
    assert executable.context == stream.context
    assert target.copy_to_host().tolist() == numbers().tolist()


def test_threads_launch_update_and_close_concurrently(device):
    """Launches that come too late get a `ClosedError`."""
    stream = Stream()
    source, target, graph = copied(stream)
    errors, launched = [], []

    def launch(executable):
        own = Stream()
        try:
            for _ in range(100):
                executable.launch(own)
                launched.append(1)
        except cuda_safe.ClosedError:
            pass
        except Exception as why:
            errors.append(why)
        own.synchronize()

    def update(executable):
        try:
            for _ in range(30):
                executable.update(graph)
        except cuda_safe.ClosedError:
            pass
        except Exception as why:
            errors.append(why)

    for _ in range(5):
        executable = graph.instantiate()
        threads = [threading.Thread(target=launch, args=(executable,)) for _ in range(3)]
        threads.append(threading.Thread(target=update, args=(executable,)))
        for thread in threads:
            thread.start()
        while not launched and not errors:
            pass
        executable.close()
        for thread in threads:
            thread.join()
    assert errors == []
    assert target.copy_to_host().tolist() == numbers().tolist()


def test_threads_capture_their_own_streams(device):
    errors = []

    def work(value):
        try:
            stream = Stream()
            target = array(stream)
            for number in range(20):
                with stream.capture() as graph:
                    target.fill(value + number)
                graph.instantiate().launch(stream)
                assert target.copy_to_host().tolist() == [value + number] * N
        except Exception as why:
            errors.append(why)

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_finalizer_may_use_the_graph(device):
    """It runs in a call of the package, which must not hold a lock."""
    stream, seen = Stream(), []
    target = array(stream)

    class Owner:
        def __init__(self, executable):
            self.executable = executable

        def __del__(self):
            try:
                self.executable.launch(stream)
                self.executable.close()
            except cuda_safe.CudaError as why:
                seen.append(why)
            else:
                seen.append(None)

    with stream.capture() as graph:
        target.fill(1)
    executable = graph.instantiate()
    with stream.capture() as other:
        target.fill(2)
    other_executable = other.instantiate()
    other.keep(Owner(executable))
    other_executable.launch(stream)
    del other, other_executable
    gc.collect()
    stream.synchronize()
    # The first launch on a stream creates an event, and so may release objects.
    with contextlib.suppress(cuda_safe.ClosedError):
        executable.launch(Stream())
    collected(stream)
    assert len(seen) == 1


def test_a_tensor_of_a_captured_stream_is_released_after_the_capture(device):
    stream = Stream()
    source = array(stream)
    gone = weakref.ref(source)
    with stream.capture() as graph:
        imported = cuda_safe.from_dlpack(source, stream=stream)
        assert imported.stream == stream
        del imported, source
        gc.collect()
    assert graph.nodes == []
    collected(stream)
    assert gone() is None


def test_nothing_is_leaked(device):
    before, stream = cuda_safe.leaked(), Stream()
    for _ in range(10):
        source, target, graph = copied(stream)
        graph.keep(source)
        executable = graph.instantiate()
        executable.launch(stream)
        executable.update(graph)
        del source, target, graph, executable
    collected(stream)
    assert cuda_safe.leaked() == before


PREPARE = """
import gc, os, sys, threading, time
import cuda_safe
from cuda_safe import DeviceArray, Stream
stream = Stream()
target = DeviceArray.zeros(100, "i4", stream=stream)
with stream.capture() as graph:
    target.fill(1)
    graph.keep(object())
executable = graph.instantiate()
executable.launch(stream)
"""

ENDS = {
    "objects are alive": "",
    "objects are in a cycle": "graph.keep(executable, graph)\n",
    "a capture is open": "capture = stream.capture()\ncapture.__enter__()\ntarget.fill(1)\n",
    "a thread captures": """
def work():
    side = Stream()
    array = DeviceArray.zeros(100, "i4", stream=side)
    while True:
        with side.capture() as graph:
            array.fill(1)
        graph.keep(array)
        graph.instantiate().launch(side)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_process_ends_while(device, run_python, end):
    run_python(PREPARE + ENDS[end] + 'print("done")\n')


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_releases_nothing_and_raises(device, run_python):
    program = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
capture = stream.capture()
capture.__enter__()
child = os.fork()
if child == 0:
    for use in (
        lambda: executable.launch(stream),
        lambda: executable.update(graph),
        lambda: graph.instantiate(),
        lambda: capture.__exit__(None, None, None),
        lambda: stream.capture().__enter__(),
    ):
        try:
            use()
        except cuda_safe.ForkedError:
            continue
        os._exit(1)
    del graph, executable, capture, stream, target
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
capture.__exit__(None, None, None)
stream.synchronize()
print("done")
"""
    run_python(PREPARE + program)
