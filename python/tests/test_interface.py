"""Import and export through the CUDA Array Interface."""

import numpy as np
import pytest

import cuda_safe
from cuda_safe import DeviceArray, Stream, as_cuda_array, from_cuda_array_interface


def test_the_exported_description(device):
    stream = Stream()
    array = DeviceArray.zeros((3, 4), "f4", stream=stream)
    assert array.__cuda_array_interface__ == {
        "shape": (3, 4),
        "typestr": "<f4",
        "data": (array.address, False),
        "strides": None,
        "version": 3,
        "stream": stream.handle,
    }
    # The consumer gets its own copy, which it may change.
    array.__cuda_array_interface__.clear()
    assert array.__cuda_array_interface__["shape"] == (3, 4)
    assert array.T.__cuda_array_interface__["strides"] == (4, 16)
    assert array[1:, 2:].__cuda_array_interface__["data"] == (array.address + 24, False)


def test_the_default_streams_are_exported_by_their_numbers(device, produce):
    array = DeviceArray.zeros(3)
    legacy = as_cuda_array(produce(array, stream=1))
    assert legacy.__cuda_array_interface__["stream"] == 1 == Stream.legacy().handle
    assert legacy[1:].__cuda_array_interface__["stream"] == 1
    assert legacy.stream == Stream.legacy()
    # The import waits for the per-thread stream, which is another one on other threads, so the array has
    # no stream.
    per_thread = as_cuda_array(produce(array, stream=2))
    assert per_thread.__cuda_array_interface__["stream"] is None
    assert per_thread.stream is None
    assert Stream.per_thread().handle == 2


def test_redundant_strides_are_exported_as_none(device):
    array = DeviceArray.zeros((2, 3, 4), "f8")
    for view in (array, array[1:], array[:, :1][:1], array[None], array[0, 0, :1], array[0, 0, 0]):
        assert view.__cuda_array_interface__["strides"] is None
    for view in (array.T, array[::-1], array[..., ::2], array[:, :2]):
        assert view.__cuda_array_interface__["strides"] == view.strides


def test_empty_arrays_have_address_0(device, produce):
    array = DeviceArray.zeros((3, 0, 2), "f4")
    assert array.address == 0
    for empty in (array, DeviceArray.zeros(4)[4:], DeviceArray.zeros(4)[2:2]):
        assert empty.__cuda_array_interface__["data"] == (0, False)
        assert empty.__cuda_array_interface__["strides"] is None
        again = as_cuda_array(empty)
        assert again.shape == empty.shape and again.address == 0
        again.fill(1)
        assert again.copy_to_host().shape == empty.shape
        assert again.copy().shape == empty.shape
    # Other libraries have an address for empty arrays, or strides.
    for data in ((0, False), (0x1234, False)):
        again = as_cuda_array(produce(array, data=data, strides=(1, 2, 3)))
        assert again.__cuda_array_interface__["data"][0] == 0


def test_records_always_have_their_fields(device, produce):
    dtype = np.dtype([(("the title", "x"), "f4"), ("y", [("z", ">i2", (2,))])], align=True)
    array = DeviceArray.zeros(3, dtype)
    interface = array.__cuda_array_interface__
    assert (interface["typestr"], interface["descr"]) == (dtype.str, dtype.descr)
    assert as_cuda_array(produce(array)).dtype == dtype
    interface["descr"].clear()
    assert array.__cuda_array_interface__["descr"] == dtype.descr
    plain = as_cuda_array(produce(array, descr=...))
    assert plain.typestr == "|V8" and plain.descr is None
    assert "descr" not in plain.__cuda_array_interface__
    # For other types, `descr` contains no more information.
    floats = DeviceArray.zeros(3, "f4")
    assert as_cuda_array(produce(floats, descr=[("", "<f4")])).typestr == "<f4"
    assert as_cuda_array(produce(floats, descr=object())).typestr == "<f4"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_all_versions_are_read(device, produce, version):
    array = DeviceArray.from_host(np.arange(12, dtype="i4").reshape(3, 4))
    again = as_cuda_array(produce(array, version=version))
    assert again.copy_to_host().tolist() == array.copy_to_host().tolist()
    # The stream has a meaning since version 3, and a mask since version 1.
    assert (again.stream == array.stream) == (version >= 3)
    assert version >= 3 or again.stream is None
    if version >= 3:
        assert again.__cuda_array_interface__["stream"] == array.stream.handle
    else:
        assert as_cuda_array(produce(array, version=version, stream=0)).stream is None
        assert again.__cuda_array_interface__["stream"] is None
    masked = produce(array, version=version, mask=array)
    if version == 0:
        as_cuda_array(masked)
    else:
        with pytest.raises(cuda_safe.MaskedArrayError, match="array interface, mask:") as raised:
            as_cuda_array(masked)
        assert isinstance(raised.value, NotImplementedError)
        assert isinstance(raised.value, cuda_safe.ArrayInterfaceError)
    assert as_cuda_array(produce(array, version=version, mask=None, strides=...)).shape == (3, 4)


WRONG = [
    ("version", ...),
    ("version", None),
    ("version", -1),
    ("version", "3"),
    ("version", 1 << 200),
    ("shape", ...),
    ("shape", 12),
    ("shape", (-1, 4)),
    ("shape", ("3", 4)),
    ("shape", (1 << 62, 1 << 62)),
    ("shape", (1 << 300,)),
    ("typestr", ...),
    ("typestr", "f4"),
    ("typestr", "<q4"),
    ("typestr", "<f3"),
    ("typestr", "|O8"),
    ("typestr", "<f4 "),
    ("typestr", 4),
    ("typestr", np.dtype("f4")),
    ("data", ...),
    ("data", 4096),
    ("data", (4096,)),
    ("data", (None, False)),
    ("data", (0, False)),
    ("data", (-1, False)),
    ("data", (4096, False)),
    ("data", (1 << 64, False)),
    ("strides", (4,)),
    ("strides", (16, 4, 4)),
    ("strides", 4),
    ("strides", ("16", 4)),
    ("strides", (1 << 62, 4)),
    ("strides", (-(1 << 44), 4)),
    ("strides", (1 << 44, 4)),
    ("mask", True),
    ("stream", 0),
    ("stream", -1),
    ("stream", "1"),
    ("stream", 1 << 70),
]


@pytest.mark.parametrize(("key", "value"), WRONG, ids=lambda value: str(value)[:20])
def test_invalid_values_are_refused_with_the_key(device, produce, key, value):
    array = DeviceArray.zeros((3, 4), "f4")
    with pytest.raises(cuda_safe.ArrayInterfaceError) as raised:
        as_cuda_array(produce(array, **{key: value}))
    # For a contradiction, the message names one of the two keys.
    names = {"shape": "shape|data", "strides": "strides|data"}.get(key, key)
    assert any(f"array interface, {name}:" in str(raised.value) for name in names.split("|"))


def test_unreadable_values_are_refused_with_the_key(device, produce):
    class Neither:
        def __bool__(self):
            raise RuntimeError("neither")

    array = DeviceArray.zeros(3, "|V4")
    for key, value in [
        ("typestr", "\ud800"),
        ("descr", [("\ud800", "<f4")]),
        ("descr", [("x", "\ud800")]),
        ("data", (array.address, Neither())),
    ]:
        with pytest.raises(cuda_safe.ArrayInterfaceError, match=f"array interface, {key}:"):
            as_cuda_array(produce(array, **{key: value}))


def test_a_stream_is_ignored_before_version_3(device, produce):
    array = DeviceArray.zeros(3)
    for version in (0, 1, 2):
        for stream in (0, -1, "1", object()):
            assert as_cuda_array(produce(array, version=version, stream=stream)).stream is None


@pytest.mark.parametrize("version", [3, 4])
def test_the_stream_0_is_accepted_only_without_synchronization(device, produce, version):
    """Numba exports it for arrays on its default stream."""
    array = DeviceArray.full(3, 5, "i4")
    array.synchronize()
    theirs = produce(array, stream=0, version=version)
    for use in (
        lambda: as_cuda_array(theirs),
        lambda: from_cuda_array_interface(theirs.__cuda_array_interface__, theirs),
    ):
        with pytest.raises(cuda_safe.ArrayInterfaceError, match="forbids 0.*Numba.*sync=False"):
            use()
    again = as_cuda_array(theirs, sync=False)
    assert again.stream is None and again.copy_to_host().tolist() == [5] * 3
    again = from_cuda_array_interface(theirs.__cuda_array_interface__, theirs, sync=False)
    assert again.__cuda_array_interface__["stream"] is None
    # Other invalid values are still errors.
    with pytest.raises(cuda_safe.ArrayInterfaceError, match="stream"):
        as_cuda_array(produce(array, stream=-1), sync=False)


@pytest.mark.parametrize("version", [4, 99])
def test_a_newer_version_is_read_as_version_3(device, produce, version):
    array = DeviceArray.full(3, 5, "i4", stream=Stream())
    again = as_cuda_array(produce(array, version=version, something_new=object()))
    assert again.stream == array.stream and again.copy_to_host().tolist() == [5] * 3
    assert again.__cuda_array_interface__["version"] == 3
    with pytest.raises(cuda_safe.MaskedArrayError):
        as_cuda_array(produce(array, version=version, mask=array))


@pytest.mark.parametrize(
    "descr",
    [
        4,
        [4],
        [("x",)],
        [("x", "<f4", 2, 3)],
        [(4, "<f4")],
        [("x", 4)],
        [("x", "|O8")],
        [("x", "<f4")],
        [("x", "<f4"), ("x", "<f4")],
        [("x", "<f4"), ("y", "<f4", (-1,))],
        [("x", "<f4"), ("y", "<f4", "1")],
    ],
    ids=str,
)
def test_invalid_fields_are_refused(device, produce, descr):
    array = DeviceArray.zeros(3, [("x", "f4"), ("y", "f4")])
    with pytest.raises(cuda_safe.ArrayInterfaceError, match="descr"):
        as_cuda_array(produce(array, descr=descr))


def test_endlessly_nested_fields_are_refused(device, produce):
    array = DeviceArray.zeros(3, "V8")
    endless = []
    endless.append(("x", endless))
    deep = "<f8"
    for _ in range(100_000):
        deep = [("x", deep)]
    for descr in (endless, deep):
        with pytest.raises(cuda_safe.ArrayInterfaceError, match="descr"):
            as_cuda_array(produce(array, descr=descr))
    while isinstance(deep, list):
        deep = deep.pop()[1]


def test_interfaces_of_other_libraries_are_read(device, produce):
    array = DeviceArray.zeros((3, 4), "f4")

    class Sub(dict):
        pass

    again = as_cuda_array(produce(array, shape=[3, 4], strides=[16, 4], data=[array.address, 0]))
    assert again.shape == (3, 4) and again.__cuda_array_interface__["strides"] is None
    assert from_cuda_array_interface(Sub(array.__cuda_array_interface__)).shape == (3, 4)
    assert as_cuda_array(produce(array, typestr="=f4")).typestr == "<f4"
    assert as_cuda_array(produce(array, typestr=">f4")).typestr == ">f4"
    assert as_cuda_array(produce(array, shape=(np.int64(3), np.uint8(4)))).shape == (3, 4)
    # Repeated elements stay repeated, also for the next consumer.
    repeated = as_cuda_array(produce(array, shape=(5, 4), strides=(0, 4)))
    assert repeated.__cuda_array_interface__["strides"] == (0, 4)
    scalar = as_cuda_array(produce(array, shape=(), strides=()))
    assert scalar.shape == () and scalar.copy_to_host().shape == ()
    odd = as_cuda_array(produce(array, shape=(4,), strides=(6,), typestr="<i2"))
    assert odd.copy_to_host().tolist() == [0] * 4
    for host in (object(), np.zeros(3)):
        with pytest.raises(TypeError, match="no __cuda_array_interface__: DeviceArray.from_host"):
            as_cuda_array(host)
    with pytest.raises(cuda_safe.InvalidArgumentError, match="must be a dict, not a list"):
        from_cuda_array_interface([])

    class Refuses:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("requires grad")

    with pytest.raises(RuntimeError, match="requires grad"):
        as_cuda_array(Refuses())


def test_the_read_only_flag_is_kept(device, produce):
    array = DeviceArray.zeros(3)
    again = as_cuda_array(produce(array, data=(array.address, True)))
    assert again.read_only and as_cuda_array(again).read_only
    assert again.__cuda_array_interface__["data"] == (array.address, True)
    with pytest.raises(cuda_safe.ReadOnlyError, match="read-only"):
        again.fill(1)


def test_random_arrays_round_trip(device, produce):
    """Types, layouts and strides, compared with NumPy."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        dtype = np.dtype(rng.choice(["?", "i2", ">u4", "f8", "c8", "M8[s]", "U2", "V3"]))
        shape = tuple(rng.integers(0, 5, rng.integers(0, 4)))
        host = np.frombuffer(
            rng.integers(0, 2, int(np.prod(shape)) * dtype.itemsize, dtype="u1").tobytes(), dtype
        ).reshape(shape)
        key = tuple(slice(None, None, int(rng.choice([1, 2, -1, -2]))) for _ in shape)
        expected = host[key].transpose(rng.permutation(host.ndim)) if host.ndim else host
        array = DeviceArray.from_host(host)
        mine = array[key].T
        theirs = dict(expected.__array_interface__)
        offset = theirs["data"][0] - host.__array_interface__["data"][0]
        theirs["data"] = (array.address + offset if host.size else 0, False)
        imported = as_cuda_array(produce(array, **theirs))
        assert imported.copy_to_host().tobytes() == expected.tobytes()
        assert imported.is_c_contiguous == expected.flags.c_contiguous
        exported = imported.__cuda_array_interface__
        assert exported["typestr"] == theirs["typestr"] and exported["shape"] == theirs["shape"]
        if expected.size:
            assert exported["strides"] in (theirs["strides"], None) or expected.flags.c_contiguous
        assert as_cuda_array(mine).to_bytes() == mine.to_bytes()


def test_work_on_an_import_is_in_order_with_its_producer(device, produce):
    """With the software driver, work runs as late as possible, so a missing wait would be detected."""
    for stream in (Stream(), Stream.legacy(), Stream.per_thread()):
        source = Stream() if stream.handle <= 2 else stream
        array = DeviceArray.zeros(1000, "i4", stream=source)
        for number in range(1, 20):
            array.fill(number)
            if stream != source:
                stream.wait_stream(source)
            imported = as_cuda_array(produce(array, stream=stream.handle))
            assert (imported.copy_to_host() == number).all()
            imported.fill(-number)
            if stream != source:
                source.wait_stream(stream)
            assert (array.copy_to_host() == -number).all()


def test_the_default_stream_of_a_device_is_in_order_with_the_legacy_one(device, produce):
    """Code that works on the legacy default stream can therefore ignore streams."""
    array, elsewhere = DeviceArray.zeros(1000, "i4"), DeviceArray.zeros(1000, "i4")
    legacy = as_cuda_array(produce(array, stream=1))
    theirs = as_cuda_array(produce(elsewhere, stream=1))
    for number in range(1, 20):
        array.fill(number)
        # This work is on the legacy default stream.
        theirs.copy_from(legacy)
        array.fill(0)
        assert (theirs.copy_to_host() == number).all()
        legacy.fill(-number)
        assert (array.copy().copy_to_host() == -number).all()


def test_calls_with_an_array_without_a_stream_wait(device, produce):
    array = DeviceArray.zeros(1000, "i4")
    array.synchronize()
    imported = as_cuda_array(produce(array, stream=None))
    assert imported.stream is None
    other = Stream()
    for number in range(1, 20):
        imported.fill(number)
        # This copy does not wait for the other stream.
        assert (DeviceArray.zeros(1000, "i4", stream=other).copy_to_host() == 0).all()
        reader = as_cuda_array(produce(array, stream=other.handle))
        assert (reader.copy_to_host() == number).all()
    imported.synchronize()


def test_a_chain_keeps_its_order(device):
    """A → B → C: all three use the stream of the first one."""
    stream = Stream()
    a = DeviceArray.zeros(100, "f4", stream=stream)
    b = as_cuda_array(a)
    c = as_cuda_array(b[::2])
    assert c.stream == stream and c.__cuda_array_interface__["stream"] == stream.handle
    c.fill(3)
    assert a.copy_to_host().tolist() == [3, 0] * 50


def test_work_on_another_stream_is_joined_before_an_export(device):
    home, other = Stream(), Stream()
    array = DeviceArray.zeros(1000, "i4", stream=home)
    for number in range(1, 10):
        other.wait_stream(home)
        elsewhere = cuda_safe.from_cuda_array_interface(
            {**array.__cuda_array_interface__, "stream": other.handle}, (array, other)
        )
        elsewhere.fill(number)
        array.join(other)
        assert (as_cuda_array(array).copy_to_host() == number).all()


def test_stream_order_can_be_turned_off(device, produce):
    array = DeviceArray.zeros(3, stream=Stream())
    assert as_cuda_array(array, sync=False).stream is None
    assert from_cuda_array_interface(array.__cuda_array_interface__, array, sync=False).stream is None
    config = cuda_safe.config
    assert config.array_interface_sync and config.array_interface_export_stream
    config.array_interface_sync = False
    assert as_cuda_array(array).stream is None
    # Other invalid values are still refused, except the stream 0.
    with pytest.raises(cuda_safe.ArrayInterfaceError, match="stream"):
        as_cuda_array(produce(array, stream=-1))
    assert as_cuda_array(produce(array, stream=0)).stream is None
    config.array_interface_sync = True
    assert as_cuda_array(array).stream == array.stream
    config.array_interface_export_stream = False
    assert array.__cuda_array_interface__["stream"] is None
    config.array_interface_export_stream = True
    assert array.__cuda_array_interface__["stream"] == array.stream.handle


def test_the_environment_can_turn_stream_order_off(device, run_python):
    program = """
import cuda_safe
config = cuda_safe.config
assert (config.array_interface_sync, config.array_interface_export_stream) == {expected}
array = cuda_safe.DeviceArray.zeros(3)
assert (array.__cuda_array_interface__["stream"] is not None) == {expected}[1]
print("done")
"""
    for sync in ("0", "1"):
        for export in ("0", "1"):
            run_python(
                program.format(expected=(sync == "1", export == "1")),
                CUDA_SAFE_ARRAY_INTERFACE_SYNC=sync,
                CUDA_SAFE_ARRAY_INTERFACE_EXPORT_STREAM=export,
            )


@pytest.mark.parametrize(
    ("ours", "numbas", "sync"),
    [
        (None, "0", False),
        (None, " 00 ", False),
        (None, "1", True),
        (None, "2", True),
        (None, "no", True),
        (None, None, True),
        ("1", "0", True),
        ("0", "1", False),
    ],
)
def test_numbas_variable_is_read_if_ours_is_not_set(run_python, monkeypatch, ours, numbas, sync):
    names = {"CUDA_SAFE_ARRAY_INTERFACE_SYNC": ours, "NUMBA_CUDA_ARRAY_INTERFACE_SYNC": numbas}
    for name in names:
        monkeypatch.delenv(name, raising=False)
    run_python(
        f"import cuda_safe; assert cuda_safe.config.array_interface_sync == {sync}; print('done')",
        **{name: value for name, value in names.items() if value is not None},
    )


LAZY = """
import sys, types
import cuda_safe

class Tensor:
    conj = neg = False
    def __init__(self, array):
        self.array = array
    def is_conj(self):
        return self.conj
    def is_neg(self):
        return self.neg
    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

class Parameter(Tensor):
    pass

sys.modules["torch"] = types.SimpleNamespace(Tensor=Tensor)
takes = [
    cuda_safe.as_cuda_array,
    cuda_safe.from_dlpack,
    lambda tensor: cuda_safe.from_dlpack(tensor, copy=True),
    lambda tensor: cuda_safe.from_cuda_array_interface(tensor.__cuda_array_interface__, tensor),
    lambda tensor: cuda_safe.DeviceArray.zeros(3, tensor.array.typestr).copy_from(tensor),
]
for kind in (Tensor, Parameter):
    for dtype in ("c8", "f4"):
        tensor = kind(cuda_safe.DeviceArray.zeros(3, dtype))
        for take in takes:
            for conj, neg, way in [(1, 0, "resolve_conj()"), (0, 1, "resolve_neg()"), (1, 1, "resolve_")]:
                tensor.conj, tensor.neg = conj, neg
                try:
                    take(tensor)
                except (cuda_safe.ArrayInterfaceError, cuda_safe.ExchangeError) as why:
                    assert way in str(why), why
                else:
                    raise AssertionError(take)
            tensor.conj = tensor.neg = False
            take(tensor)
print("done")
"""


def test_conjugated_and_negated_tensors_are_refused(device, run_python):
    """PyTorch conjugates and negates when it reads a tensor, which neither protocol can express."""
    run_python(LAZY)
