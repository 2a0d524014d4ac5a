"""Stream order with CuPy, PyTorch, Numba and JAX, on a GPU.

A slow kernel is followed by a write and an immediate hand-over. If the other library does not implement
its part of the ordering, the test does not require it. Further tests show what happens without ordering,
to prove that the tests can fail.
"""

from __future__ import annotations

import numpy as np
import peers
import pytest
from peers import PROTOCOLS, every, give

import cuda_safe
from cuda_safe import DeviceArray, Stream, as_cuda_array, from_cuda_array_interface, from_dlpack

pytestmark = pytest.mark.filterwarnings("default")

N = 1 << 16


def slow_on(peer, stream):
    """Keeps a stream of this package busy for a long time."""
    with peer.on(peer.external(stream.handle)):
        peer.slow()


def skip_unless_it_orders_its_work(peer, protocol):
    if not peer.writes:
        pytest.skip(f"{peer.name} does not write into arrays")
    if protocol == "interface" and not peer.exports_stream:
        pytest.skip(f"{peer.name} exports no stream")


@every
def test_the_producers_work_runs_first(device, kind, protocol):
    peer = peers.get(kind)
    skip_unless_it_orders_its_work(peer, protocol)
    stream = peer.stream()
    with peer.on(stream):
        made = peer.make(np.zeros(N, "i4"))
        peer.synchronize()
        peer.slow()
        peer.fill(made, 7)
        imported = PROTOCOLS[protocol](made)
    assert (imported.copy_to_host() == 7).all()


class Loose:
    """A DLPack array whose producer is asked not to order its work."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **arguments):
        return self.array.__dlpack__(stream=-1, **arguments)


def seen(action):
    """Returns the values from the second run of an action, because the first may compile, load and
    allocate."""
    action()
    return action()


@every
def test_without_ordering_the_producers_work_is_late(device, kind, protocol):
    """Shows what `test_the_producers_work_runs_first` would see without ordering, so that it can fail."""
    peer = peers.get(kind)
    if not peer.writes:
        pytest.skip(f"{peer.name} does not write into arrays")
    stream = peer.stream()

    def action():
        with peer.on(stream):
            made = peer.make(np.zeros(N, "i4"))
            peer.synchronize()
            peer.slow()
            peer.fill(made, 7)
            if protocol == "dlpack":
                loose = from_dlpack(Loose(made), stream=Stream())
            else:
                loose = as_cuda_array(made, sync=False)
        host = loose.copy_to_host()
        peer.synchronize()
        return host

    assert (seen(action) == 0).all()


@every
def test_without_ordering_the_consumer_is_early(device, kind, protocol, monkeypatch):
    """Shows the same for `test_the_consumers_work_runs_afterwards`."""
    peer = peers.get(kind)
    if not hasattr(peer, "stream"):
        pytest.skip(f"{peer.name} has no streams")
    own, side = Stream(), Stream()
    array = DeviceArray.zeros(N, "i4", stream=own)
    monkeypatch.setattr(cuda_safe.config, "array_interface_export_stream", protocol != "interface")

    def action():
        array.fill(0)
        own.synchronize()
        slow_on(peer, own)
        array.fill(5)
        with peer.on(peer.external(side.handle)):
            given = give(peer, protocol, Loose(array) if protocol == "dlpack" else array)
            host = peer.host(given)
        own.synchronize()
        return host

    assert (seen(action) == 0).all()


def test_jax_exports_while_its_work_runs(device):
    """With DLPack, because JAX's array interface does not wait and has no stream."""
    jax = peers.get(peers.Jax)
    add = jax.slow_add()
    start = jax.make(np.full(N, 6, "i4"))

    def action():
        made = add(start)
        is_ready = made.is_ready()
        host = from_dlpack(made, stream=Stream()).copy_to_host()
        return is_ready, host

    is_ready, host = seen(action)
    assert (host == 7).all()
    assert not is_ready, "the work completed too early, so the test has shown nothing"


@every
def test_the_producer_continues_after_our_work(device, kind, protocol):
    peer = peers.get(kind)
    skip_unless_it_orders_its_work(peer, protocol)
    stream = peer.stream()
    here = Stream()
    with peer.on(stream):
        made = peer.make(np.zeros(N, "i4"))
        peer.synchronize()
        with here:
            imported = PROTOCOLS[protocol](made)
            # A tensor is on this stream; an array of the other protocol is on neither.
            slow_on(peer, here)
            slow_on(peer, device.default_stream)
            imported.fill(9)
        # With DLPack, the release notifies the producer.
        del imported
        assert (peer.host(made) == 9).all()


@every
def test_without_ordering_the_producer_continues_too_early(device, kind, protocol):
    """Shows what happens if the array is on another stream, or if a tensor's producer is notified too
    early."""
    peer = peers.get(kind)
    skip_unless_it_orders_its_work(peer, protocol)
    here, stream = Stream(), peer.stream()

    def action():
        with peer.on(stream):
            made = peer.make(np.zeros(N, "i4"))
            peer.synchronize()
            if protocol == "dlpack":
                imported = from_dlpack(made, stream=here)
            else:
                interface = {**made.__cuda_array_interface__, "stream": here.handle}
                imported = from_cuda_array_interface(interface, made)
            slow_on(peer, here)
            imported.fill(9)
            host = peer.host(made)
        peer.synchronize()
        return host

    assert (seen(action) == 0).all()


@every
def test_the_consumers_work_runs_afterwards(device, kind, protocol):
    peer = peers.get(kind)
    if not peer.writes:
        pytest.skip(f"{peer.name} makes no slow work here: see test_jax_waits_for_our_work")
    if protocol == "interface" and not peer.keeps_stream:
        pytest.skip(f"{peer.name} does not look at the stream of an array interface")
    own = Stream()
    array = DeviceArray.zeros(N, "i4", stream=own)
    own.synchronize()
    slow_on(peer, own)
    array.fill(5)
    with peer.on(peer.stream()):
        given = give(peer, protocol, array)
        assert (peer.host(given) == 5).all()


def test_jax_waits_for_our_work(device):
    jax, other = peers.get(peers.Jax), peers.get(peers.Torch)
    own = Stream()
    array = DeviceArray.zeros(N, "i4", stream=own)
    own.synchronize()
    slow_on(other, own)
    array.fill(5)
    assert (jax.host(jax.from_dlpack(array) + 1) == 6).all()


def test_pytorch_on_its_default_stream_is_in_order_with_the_default_stream_here(device):
    """PyTorch ignores the stream of an array interface, and does not need it."""
    torch = peers.get(peers.Torch)
    array = DeviceArray.zeros(N, "i4")
    for number in range(1, 4):
        slow_on(torch, array.stream)
        array.fill(number)
        tensor = torch.from_interface(array)
        assert (torch.host(tensor) == number).all()
        torch.slow()
        tensor.fill_(-number)
        assert (array.copy_to_host() == -number).all()
        torch.slow()
        tensor.fill_(number * 10)
        assert (as_cuda_array(tensor).copy_to_host() == number * 10).all()


def test_a_chain_of_three(device):
    """CuPy, this package and Numba, all ordered on CuPy's stream."""
    cupy, numba = peers.get(peers.CuPy), peers.get(peers.Numba)
    # CuPy's arrays do not keep the stream that they export alive.
    stream = cupy.stream()
    with cupy.on(stream):
        made = cupy.make(np.zeros(N, "i4"))
        cupy.slow()
        cupy.fill(made, 3)
        here = as_cuda_array(made)
        here[::2] = 4
        last = numba.from_interface(here)
    got = last.copy_to_host()
    assert (got[::2] == 4).all() and (got[1::2] == 3).all()
