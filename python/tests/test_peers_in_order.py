"""The order of streams, with CuPy, PyTorch, Numba and JAX, on a GPU.

A slow kernel, then a write, and the hand-over at once. Where the other library does not keep its part of the
order, that is not asked of it. What a test would see without an order is a test as well, so that it can fail.
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
    """Has a stream of ours do nothing for a long time."""
    with peer.on(peer.external(stream.handle)):
        peer.slow()


def skip_unless_it_orders_its_work(peer, protocol):
    if not peer.writes:
        pytest.skip(f"{peer.name} does not write into arrays")
    if protocol == "interface" and not peer.exports_stream:
        pytest.skip(f"{peer.name} exports no stream")


@every
def test_a_producers_work_comes_first(device, kind, protocol):
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
    """An array of DLPack whose producer is told to put nothing in order."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **arguments):
        return self.array.__dlpack__(stream=-1, **arguments)


def seen(action):
    """The values that an action sees, of its second run: the first may compile, load and allocate."""
    action()
    return action()


@every
def test_without_an_order_a_producers_work_is_late(device, kind, protocol):
    """What `test_a_producers_work_comes_first` would see, if there were none: so that it can fail."""
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
def test_without_an_order_a_consumer_is_early(device, kind, protocol, monkeypatch):
    """The same of `test_a_consumers_work_comes_behind`."""
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


def test_jax_produces_with_its_work_under_way(device):
    """By DLPack: its array interface does not wait, and has no stream."""
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
    assert not is_ready, "the work was done before anybody looked: nothing was shown"


@every
def test_a_producer_goes_on_behind_the_work_here(device, kind, protocol):
    peer = peers.get(kind)
    skip_unless_it_orders_its_work(peer, protocol)
    stream = peer.stream()
    here = Stream()
    with peer.on(stream):
        made = peer.make(np.zeros(N, "i4"))
        peer.synchronize()
        with here:
            imported = PROTOCOLS[protocol](made)
            # A tensor is on this one; an array of the other protocol on neither.
            slow_on(peer, here)
            slow_on(peer, device.default_stream)
            imported.fill(9)
        # By DLPack the producer hears of the end.
        del imported
        assert (peer.host(made) == 9).all()


@every
def test_without_an_order_a_producer_goes_on_too_early(device, kind, protocol):
    """What that would see, if the array were on another stream, or a tensor's producer heard too early."""
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
def test_a_consumers_work_comes_behind(device, kind, protocol):
    peer = peers.get(kind)
    if not peer.writes:
        pytest.skip(f"{peer.name} makes no slow work here: see test_jax_comes_behind")
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


def test_jax_comes_behind(device):
    jax, other = peers.get(peers.Jax), peers.get(peers.Torch)
    own = Stream()
    array = DeviceArray.zeros(N, "i4", stream=own)
    own.synchronize()
    slow_on(other, own)
    array.fill(5)
    assert (jax.host(jax.from_dlpack(array) + 1) == 6).all()


def test_pytorch_on_its_default_stream_is_in_order_with_the_default_stream_here(device):
    """It does not look at streams of array interfaces, and need not."""
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
    """CuPy, here, Numba: all in the order of CuPy's stream."""
    cupy, numba = peers.get(peers.CuPy), peers.get(peers.Numba)
    # CuPy's arrays do not keep the stream that they export.
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
