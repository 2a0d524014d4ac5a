"""Import and export with CuPy, PyTorch, Numba and JAX, on a GPU.

Each library is a producer and a consumer, with both protocols: types, layouts, sizes and owners. The
tests of stream order are in test_peers_in_order.py.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import peers
import pytest
from conftest import since
from peers import PROTOCOLS, every, give, theirs

import cuda_safe
from cuda_safe import DeviceArray, Stream, as_cuda_array, from_cuda_array_interface, from_dlpack

pytestmark = pytest.mark.filterwarnings("default")

N = 1 << 16


def values(dtype, shape):
    rng = np.random.default_rng(8)
    if np.dtype(dtype).kind in "fc":
        parts = rng.standard_normal((2, *shape))
        return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)
    return rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)


@every
def test_all_types(device, kind, protocol):
    peer = peers.get(kind)
    for dtype in peer.dtypes:
        if protocol == "dlpack" and peer.name == "jax" and dtype == "?":
            continue
        host = values(dtype, (3, 5))
        made = peer.make(host)
        imported = PROTOCOLS[protocol](made)
        assert imported.typestr == host.dtype.str and imported.device == device
        assert imported.copy_to_host().tobytes() == host.tobytes()
        array = DeviceArray.from_host(host)
        again = peer.host(give(peer, protocol, array))
        assert again.dtype == host.dtype and again.tobytes() == host.tobytes()


@every
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "part", "steps", "reversed", "repeated"])
def test_all_layouts(device, kind, protocol, layout):
    peer = peers.get(kind)
    if layout != "contiguous" and not peer.strided:
        pytest.skip(f"{peer.name} has contiguous arrays only")
    if layout in ("reversed",) and not peer.reversed:
        pytest.skip(f"{peer.name} has no negative strides")
    host = values("f4", (4, 6))

    def view(array):
        match layout:
            case "contiguous":
                return array
            case "transposed":
                return array.T
            case "part":
                return array[1:3, 2:5]
            case "steps":
                return array[::2, 1::3]
            case "reversed":
                return array[::-1, ::-2]
            case "repeated":
                return array[None, :1, :1]

    expected = view(host)
    again = peer.host(give(peer, protocol, view(DeviceArray.from_host(host))))
    assert again.tobytes() == expected.tobytes()
    made = theirs(peer, protocol, layout, lambda: view(peer.make(host)))
    if (peer.name, layout, protocol) == ("cupy", "reversed", "dlpack"):
        # Its tensors then have strides of about 2**62 elements, because it divides unsigned bytes.
        with pytest.raises(cuda_safe.ExchangeError, match="strides"):
            PROTOCOLS[protocol](made)
        return
    imported = PROTOCOLS[protocol](made)
    assert imported.shape == expected.shape
    assert imported.copy_to_host().tobytes() == expected.tobytes()


@every
def test_repeated_elements_are_one_element(device, kind, protocol):
    """Strides of 0."""
    peer = peers.get(kind)
    host = values("f4", (4, 6))
    expected = np.broadcast_to(host[1:2], (5, 6))
    if hasattr(peer, "broadcast"):
        imported = PROTOCOLS[protocol](peer.broadcast(peer.make(host)[1:2], (5, 6)))
        assert imported.shape == (5, 6) and imported.strides == (0, 4)
        assert imported.copy_to_host().tobytes() == expected.tobytes()
    if not peer.strided:
        pytest.skip(f"{peer.name} has contiguous arrays only")
    if peer.name == "numba":
        # It also reads beyond the memory.
        pytest.skip("numba takes a repeated array for a contiguous one")
    row = DeviceArray.from_host(host)[1:2]
    interface = {**row.__cuda_array_interface__, "shape": (5, 6), "strides": (0, 4)}
    array = from_cuda_array_interface(interface, row)
    again = peer.host(give(peer, protocol, array))
    assert again.shape == (5, 6) and again.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [peers.Torch, peers.Jax], ids=lambda kind: kind.name)
def test_bfloat16_round_trips_through_dlpack(device, kind):
    """Through the array interface, which has NumPy's types, it is exported as bytes, which are never read
    as numbers."""
    peer = peers.get(kind)
    bits = values("u2", (3, 5))
    if peer.name == "torch":
        made = peer.make(bits.view("i2")).view(peer.lib.bfloat16)
    else:
        made = peer.lib.lax.bitcast_convert_type(peer.make(bits), peer.lib.numpy.bfloat16).block_until_ready()
    imported = from_dlpack(made)
    assert (imported.typestr, imported.shape) == ("|V2", (3, 5))
    assert imported.to_bytes() == bits.tobytes()
    again = peer.from_dlpack(imported)
    assert again.dtype == made.dtype
    assert from_dlpack(again).to_bytes() == bits.tobytes()
    # As a producer with the interface, the library refuses the type or exports bytes.
    try:
        told = made.__cuda_array_interface__["typestr"]
    except Exception as why:
        print(f"{peer.name} gives no interface: {why!r:.200}")
    else:
        assert told[1:] == "V2", told
    # As a consumer, the library does not interpret the bytes as other numbers.
    assert imported.__cuda_array_interface__["typestr"] == "|V2"
    if peer.name == "torch":
        taken = theirs(peer, "interface", "void", lambda: peer.from_interface(imported))
        assert taken.dtype == made.dtype


def test_lazily_conjugated_or_negated_tensors_are_refused(device):
    torch = peers.get(peers.Torch)
    made = torch.make(values("c8", (4,)))
    for lazy, way in [(made.conj(), "resolve_conj"), (made.conj().imag, "resolve_neg")]:
        assert lazy.is_conj() or lazy.is_neg()
        for take in PROTOCOLS.values():
            with pytest.raises(ValueError, match=way):
                take(lazy)
            resolved = getattr(lazy, way)()
            assert take(resolved).copy_to_host().tobytes() == torch.host(resolved).tobytes()


@every
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()], ids=str)
def test_arrays_without_elements_or_dimensions(device, kind, protocol, shape):
    peer = peers.get(kind)
    host = values("f4", shape)
    what = "a number" if shape == () else "no elements"
    made = peer.make(host)
    imported = theirs(peer, protocol, what, lambda: PROTOCOLS[protocol](made))
    assert imported.shape == shape and imported.copy_to_host().tobytes() == host.tobytes()
    array = DeviceArray.from_host(host)
    again = theirs(peer, protocol, what, lambda: give(peer, protocol, array))
    assert peer.host(again).tobytes() == host.tobytes()


@every
def test_it_is_the_same_memory(device, kind, protocol):
    peer = peers.get(kind)
    if not peer.writes:
        pytest.skip(f"{peer.name} does not write into arrays")
    made = peer.make(values("i4", (N,)))
    imported = PROTOCOLS[protocol](made)
    imported.fill(3)
    imported.synchronize()
    assert (peer.host(made) == 3).all()
    peer.fill(made, 4)
    peer.synchronize()
    assert (imported.copy_to_host() == 4).all()
    array = DeviceArray.full(N, 5, "i4")
    given = give(peer, protocol, array)
    assert (peer.host(given) == 5).all()
    peer.fill(given, 6)
    peer.synchronize()
    assert (array.copy_to_host() == 6).all()


@every
def test_read_only_arrays_are_refused_or_stay_read_only(device, kind, protocol):
    """How other libraries treat the flag is up to them, and recorded here; this package keeps it."""
    peer = peers.get(kind)
    imported = PROTOCOLS[protocol](peer.make(values("f4", (8,))))
    if imported.read_only:
        with pytest.raises(cuda_safe.ReadOnlyError):
            imported.fill(1)
    host = values("f4", (8,))
    array = DeviceArray.from_host(host)
    try:
        given = give(peer, protocol, array.as_read_only())
    except peers.REFUSED.get((peer.name, protocol, "read-only"), ()) as why:
        print(f"{peer.name} refuses it: {why!r:.200}")
        return
    assert peer.host(given).tobytes() == host.tobytes()
    if not peer.writes:
        return
    peer.fill(given, 3)
    peer.synchronize()
    if array.to_bytes() != host.tobytes():
        assert peer.ignores_read_only
        pytest.skip(f"{peer.name} ignores that an array is read-only")


@every
def test_owners_are_kept(device, kind, protocol):
    peer = peers.get(kind)
    host = values("i4", (N,))
    imported = PROTOCOLS[protocol](peer.make(host))
    gc.collect()
    # This could reuse the memory if it were free.
    others = [peer.make(values("i4", (N,)) * 0) for _ in range(20)]
    assert imported.copy_to_host().tobytes() == host.tobytes()
    given = give(peer, protocol, DeviceArray.from_host(host))
    gc.collect()
    more = [DeviceArray.zeros(N, "i4") for _ in range(20)]
    assert peer.host(given).tobytes() == host.tobytes()
    del others, more


def test_the_stream_of_cupys_arrays_is_kept(device):
    """CuPy's arrays do not keep it alive."""
    cupy = peers.get(peers.CuPy)
    stream = cupy.stream()
    with cupy.on(stream):
        here = as_cuda_array(cupy.make(np.zeros(N, "i4")))
    gone, handle = weakref.ref(stream), stream.ptr
    del stream
    gc.collect()
    assert gone() is not None and here.stream.handle == handle
    here.fill(3)
    assert (here.copy_to_host() == 3).all()
    assert (here.copy().copy_to_host() == 3).all()


def test_a_numba_kernel_takes_an_array(device):
    numba = peers.get(peers.Numba)
    array = DeviceArray.zeros(N, "i4")
    numba.fill(array, 7)
    numba.synchronize()
    assert (array.copy_to_host() == 7).all()


@pytest.mark.parametrize("kind", [peers.CuPy, peers.Torch, peers.Numba], ids=lambda kind: kind.name)
def test_other_libraries_work_on_streams_of_green_contexts(device, kind):
    peer = peers.get(kind)
    since(12, 4)
    green = device.sm_resource().partition([device.sm_resource().min_group], label="peers", allow_overlap=True)[0]
    stream = green.stream()
    array = DeviceArray.zeros(N, "i4", stream=stream)
    with peer.on(peer.external(stream.handle)):
        peer.slow()
        given = peer.from_interface(array)
        peer.fill(given, 6)
    assert (array.copy_to_host() == 6).all()
    stream.synchronize()
    del given


@pytest.mark.parametrize("kind", [peers.CuPy, peers.Torch], ids=lambda kind: kind.name)
def test_streams_of_other_libraries(device, kind):
    peer = peers.get(kind)
    theirs = peer.stream()
    stream = Stream.from_object(theirs)
    array = DeviceArray.zeros(N, "i4", stream=stream)
    with peer.on(theirs):
        peer.slow()
        given = peer.from_interface(array)
        peer.fill(given, 2)
    assert (array.copy_to_host() == 2).all()
    del theirs
    gc.collect()
    array.fill(3)
    assert (array.copy_to_host() == 3).all()


def test_cuda_core_views(device):
    """With both protocols, ordered by events; and imported with the C exchange table of its type."""
    if peers.SIMULATED:
        pytest.skip("the other libraries need a GPU")
    core = pytest.importorskip("cuda.core")
    view = pytest.importorskip("cuda.core.utils").StridedMemoryView
    core.Device(device.ordinal).set_current()
    own, consumer = Stream(), Stream()
    array = DeviceArray.full((3, 4), 2, "i4", stream=own)
    for seen in (
        view.from_dlpack(array, stream_ptr=consumer.handle),
        view.from_cuda_array_interface(array, stream_ptr=consumer.handle),
        view.from_dlpack(array.as_read_only(), stream_ptr=consumer.handle),
    ):
        assert (seen.ptr, seen.shape) == (array.address, (3, 4))
        assert seen.is_device_accessible and seen.device_id == device.ordinal
    assert seen.readonly
    again = from_dlpack(view.from_dlpack(array, stream_ptr=-1))
    assert again.address == array.address and (again.copy_to_host() == 2).all()
    assert Stream.from_object(core.Stream.from_handle(own.handle)) == own


def test_pytorch_reads_an_array_on_another_device(devices):
    """Devices have no access to memory of another device's pool by default."""
    if peers.SIMULATED:
        pytest.skip("the other libraries need a GPU")
    torch = pytest.importorskip("torch")
    here, other = devices
    for export in ("interface", "dlpack"):
        array = DeviceArray.full(6, 2, "f4", stream=Stream(device=here))
        array.stream.synchronize()
        if export == "dlpack":
            given = torch.from_dlpack(array).to(f"cuda:{other.ordinal}")
        else:
            given = torch.as_tensor(array, device=f"cuda:{other.ordinal}")
        assert given.device.index == other.ordinal
        assert (given * 2).tolist() == [4] * 6
