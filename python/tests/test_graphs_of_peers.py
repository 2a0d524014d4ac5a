"""Work of CuPy, PyTorch and Numba in graphs of this package, on a GPU.

Each library works on arrays of this package, in an external stream that is captured here. As the
documentation requires, everything is allocated and converted before the capture, and the work has run once:
the first run compiles and loads kernels.
"""

from __future__ import annotations

import gc

import numpy as np
import peers
import pytest

import cuda_safe
from cuda_safe import DeviceArray, Stream

pytestmark = pytest.mark.filterwarnings("default")

N = 1 << 16
WRITERS = [kind for kind in peers.PEERS if kind.writes]
writers = pytest.mark.parametrize("kind", WRITERS, ids=[kind.name for kind in WRITERS])


def numbers(start):
    return np.arange(start, start + N, dtype="i4")


def convert(peer, stream, array):
    """Returns an array of the other library in the same memory, for work in the same stream."""
    with peer.on(peer.external(stream.handle)):
        return peer.from_dlpack(array) if peer.dlpack else peer.from_interface(array)


def reuse_freed_memory(stream):
    """Allocates and overwrites memory, which may be freed memory of other arrays."""
    others = [DeviceArray.full(N, -7, "i4", stream=stream) for _ in range(20)]
    stream.synchronize()
    return others


@writers
def test_work_of_a_library_is_replayed_in_its_place(device, kind):
    peer, stream = peers.get(kind), Stream()
    middle, result = (DeviceArray.zeros(N, "i4", stream=stream) for _ in range(2))
    theirs = convert(peer, stream, middle)
    external = peer.external(stream.handle)

    def work(value):
        middle.fill(1)
        result.copy_from(middle)
        with peer.on(external):
            peer.fill(theirs, value)
        result[: N // 2] = middle[: N // 2]

    work(2)
    with stream.capture() as graph:
        work(3)
        graph.keep(theirs, external)
    assert (result.copy_to_host()[: N // 2] == 2).all(), "nothing was executed"
    executable = graph.instantiate()
    for _ in range(3):
        result.fill(0)
        executable.launch(stream)
        host = result.copy_to_host()
        assert (host[: N // 2] == 3).all() and (host[N // 2 :] == 1).all()
    with stream.capture() as other:
        work(4)
    executable.update(other)
    executable.launch(stream)
    assert (result.copy_to_host()[: N // 2] == 4).all()


def test_cupy_pytorch_and_this_package_share_one_graph(device):
    cupy, torch = peers.get(peers.CuPy), peers.get(peers.Torch)
    stream = Stream()
    inputs, middle, result = (DeviceArray.zeros(N, "i4", stream=stream) for _ in range(3))
    of_cupy = [convert(cupy, stream, array) for array in (inputs, middle)]
    of_torch = [convert(torch, stream, array) for array in (middle, result)]
    cupys, torchs = cupy.external(stream.handle), torch.external(stream.handle)

    def work():
        with cupy.on(cupys):
            cupy.lib.multiply(of_cupy[0], 2, out=of_cupy[1])
        middle[: N // 2] = 100
        with torch.on(torchs):
            of_torch[0].add_(1)
            torch.lib.mul(of_torch[0], 3, out=of_torch[1])
        result[0] = 5

    def expected(start):
        host = numbers(start) * 2
        host[: N // 2] = 100
        host = (host + 1) * 3
        host[0] = 5
        return host

    work()
    stream.synchronize()
    with stream.capture() as graph:
        work()
        graph.keep(*of_cupy, *of_torch, cupys, torchs)
    assert graph.nodes == ["kernel", "fill", "kernel", "kernel", "fill"]
    assert sorted(graph.edges) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    executable = graph.instantiate()
    for start in 3, 1000, -50:
        inputs.copy_from(numbers(start))
        executable.launch(stream)
        assert (result.copy_to_host() == expected(start)).all()
    # The graph keeps the memory in between alive.
    del work, of_cupy, of_torch, middle, graph, cupys, torchs
    gc.collect()
    others = reuse_freed_memory(stream)
    inputs.copy_from(numbers(77))
    executable.launch(stream)
    assert (result.copy_to_host() == expected(77)).all()
    assert all((other.copy_to_host() == -7).all() for other in others)


@pytest.mark.parametrize("kind", [peers.CuPy, peers.Torch], ids=lambda kind: kind.name)
def test_a_graph_is_launched_on_a_stream_of_a_library(device, kind):
    peer, stream = peers.get(kind), Stream()
    target = DeviceArray.zeros(N, "i4", stream=stream)
    with stream.capture() as graph:
        target.fill(3)
    executable = graph.instantiate()
    theirs = peer.stream()
    stream.synchronize()
    with peer.on(theirs):
        peer.slow()
    executable.launch(theirs)
    target.join(theirs)
    assert (target.copy_to_host() == 3).all()


def test_kept_objects_are_released_after_a_slow_launch(device):
    """The launch is still running when the objects are dropped."""
    peer, stream = peers.get(peers.CuPy), Stream()
    result = DeviceArray.zeros(N, "i4", stream=stream)
    external = peer.external(stream.handle)
    with peer.on(external):
        source = peer.make(numbers(5))
        peer.slow()
        peer.lib.copyto(convert(peer, stream, result), source)
    theirs = convert(peer, stream, result)
    stream.synchronize()
    result.fill(0)
    with stream.capture() as graph:
        with peer.on(external):
            peer.slow()
            peer.lib.copyto(theirs, source)
        graph.keep(source, theirs, external)
    released = []

    class Last:
        def __del__(self):
            released.append(stream.is_complete)

    graph.keep(Last())
    executable = graph.instantiate()
    # With several large libraries loaded, a collection of all objects takes longer than the launch.
    gc.collect()
    gc.freeze()
    executable.launch(stream)
    del graph, executable, source, theirs
    gc.collect()
    gc.unfreeze()
    assert not stream.is_complete and released == []
    pool = peer.lib.get_default_memory_pool()
    pool.free_all_blocks()
    assert (result.copy_to_host() == numbers(5)).all()
    cuda_safe.Event()
    gc.collect()
    assert released == [True]
