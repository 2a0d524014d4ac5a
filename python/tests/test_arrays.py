"""Arrays, compared with NumPy."""

import numpy as np
import pytest

import cuda_safe
from cuda_safe import DeviceArray, Stream

DTYPES = [
    "?",
    "i1",
    "u2",
    "i4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    ">f8",
    ">i2",
    "M8[us]",
    "m8[25s]",
    "S5",
    "U3",
    "V7",
    [("x", "f4"), ("y", ">i2", (2,)), ("z", [("re", "f8"), ("im", "f8")])],
]


def values(rng, shape, dtype):
    """Returns random bits, except those that NumPy would print differently."""
    dtype = np.dtype(dtype)
    if dtype == bool:
        return rng.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape))
    if dtype.kind == "U":
        return rng.choice(["", "a", "bcd", "\u00e4\U0001f600"], shape).astype(dtype)
    bits = rng.integers(0, 256, size * dtype.itemsize, dtype="u1").tobytes()
    return np.frombuffer(bits, dtype).reshape(shape)


def same(array, expected):
    """Returns whether all bits are equal."""
    expected = np.asarray(expected)
    got = array.copy_to_host()
    assert got.dtype == expected.dtype and got.shape == expected.shape == array.shape
    assert got.tobytes() == expected.tobytes() == array.to_bytes()


def is_view_like(array, expected, base, host):
    """Returns whether a view has the same elements as NumPy's, by its flags, strides and bytes."""
    assert array.shape == expected.shape
    assert array.is_c_contiguous == expected.flags.c_contiguous
    assert array.is_f_contiguous == expected.flags.f_contiguous
    assert (array.size, array.ndim, array.itemsize) == (expected.size, expected.ndim, expected.itemsize)
    if expected.size:
        steps = [extent > 1 for extent in expected.shape]
        assert [s for s, k in zip(array.strides, steps) if k] == [
            s for s, k in zip(expected.strides, steps) if k
        ]
        assert array.address - base == expected.ctypes.data - host.ctypes.data
    same(array, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(device, dtype):
    rng = np.random.default_rng(1)
    for shape in [(), (1,), (7,), (3, 4), (2, 3, 4), (0,), (3, 0, 2)]:
        host = values(rng, shape, dtype)
        array = DeviceArray.from_host(host)
        assert array.dtype == host.dtype and array.typestr == host.dtype.str
        assert array.shape == host.shape and array.nbytes == host.nbytes
        same(array, host)
        same(array.copy(), host)
        out = np.zeros_like(host)
        assert array.copy_to_host(out) is out and out.tobytes() == host.tobytes()
    for order in (host.T, np.asfortranarray(host), host[::-1]):
        same(DeviceArray.from_host(order), order)


def random_index(rng, shape):
    """Returns a basic index, which is sometimes out of bounds."""
    key = []
    for extent in shape[: rng.integers(0, len(shape) + 1)]:
        kind = rng.integers(0, 6)
        if kind == 0:
            key.append(int(rng.integers(-extent - 1, extent + 1)))
        elif kind == 1:
            key.append(slice(None))
        else:
            bounds = [None if rng.integers(0, 3) == 0 else int(rng.integers(-9, 10)) for _ in range(2)]
            step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
            key.append(slice(*bounds, step))
    if rng.integers(0, 3) == 0:
        key.insert(int(rng.integers(0, len(key) + 1)), Ellipsis)
    while rng.integers(0, 4) == 0:
        key.insert(int(rng.integers(0, len(key) + 1)), None)
    return tuple(key) if len(key) != 1 or rng.integers(0, 2) else key[0]


def test_indexing_agrees_with_numpy(device):
    rng = np.random.default_rng(2)
    for _ in range(400):
        dtype = np.dtype(rng.choice(["u1", "i2", "f4", "f8", "c16", "S3"]))
        shape = tuple(rng.integers(0, 6, rng.integers(0, 5)))
        host = values(rng, shape, dtype)
        array = DeviceArray.from_host(host)
        base = array.address
        view, expected = array, host
        for _ in range(rng.integers(1, 4)):
            if rng.integers(0, 3) == 0:
                axes = tuple(int(axis) for axis in rng.permutation(expected.ndim))
                view, expected = view.transpose(axes), expected.transpose(axes)
                continue
            key = random_index(rng, expected.shape)
            try:
                after = expected[key]
            except IndexError:
                with pytest.raises(IndexError):
                    view[key]
                continue
            view = view[key]
            # If NumPy returns a scalar, this package returns a view without dimensions.
            expected = after if isinstance(after, np.ndarray) else np.ndarray((), dtype, after.tobytes())
            if not expected.size or expected.base is None or not np.shares_memory(expected, host):
                break
        if expected.ndim and np.shares_memory(expected, host):
            is_view_like(view, expected, base, host)
        else:
            same(view, expected)


def test_reshaping_agrees_with_numpy(device):
    rng = np.random.default_rng(3)
    for _ in range(300):
        shape = tuple(int(extent) for extent in rng.choice([1, 2, 3, 4, 6], rng.integers(1, 4)))
        host = values(rng, shape, "i4")
        expected = host[tuple(slice(None, None, int(rng.choice([1, 1, -1, 2]))) for _ in shape)]
        axes = tuple(int(axis) for axis in rng.permutation(expected.ndim))
        expected = expected.transpose(axes)
        array = DeviceArray.from_host(host)
        base = array.address
        view = cuda_safe.from_cuda_array_interface(
            {
                **array.__cuda_array_interface__,
                "shape": expected.shape,
                "strides": expected.strides,
                "data": (base + expected.ctypes.data - host.ctypes.data, False),
            },
            array,
        )
        factors = [f for f in rng.permutation([1, 2, 3, 4, 6]) if expected.size % f == 0]
        wanted = (int(factors[0]), -1) if rng.integers(0, 2) else (-1, 1, int(factors[0]))
        reshaped = expected.reshape(wanted)
        if not np.shares_memory(reshaped, host):
            with pytest.raises(cuda_safe.InvalidArgumentError, match="copy"):
                view.reshape(wanted)
            same(view.copy().reshape(*wanted), reshaped)
        else:
            is_view_like(view.reshape(wanted), reshaped, base, host)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fills_and_assignments_agree_with_numpy(device, dtype):
    rng = np.random.default_rng(4)
    dtype = np.dtype(dtype)
    for _ in range(25):
        shape = tuple(int(extent) for extent in rng.integers(1, 6, rng.integers(1, 4)))
        host = values(rng, shape, dtype).copy()
        array = DeviceArray.from_host(host)
        key = tuple(slice(None, None, int(rng.choice([1, 2, -1, -2]))) for _ in shape)
        value = values(rng, (), dtype)
        array[key] = value
        host[key] = value
        same(array, host)
        # Host and device sources, with broadcasting.
        row = values(rng, host[key].shape[-1:], dtype)
        array[key] = row
        host[key] = row
        same(array, host)
        other = DeviceArray.from_host(values(rng, host[key].shape, dtype))
        array[key] = other
        host[key] = other.copy_to_host()
        same(array, host)
        array[key] = array[key][::-1]
        host[key] = host[key][::-1].copy()
        same(array, host)


def test_python_values_fill(device):
    for dtype, value in [("f4", 1.5), ("i8", -3), ("?", True), ("c16", 1 + 2j), ("f2", 0.5), ("u1", 7)]:
        array = DeviceArray.full((2, 3), value, dtype)
        same(array, np.full((2, 3), value, dtype))
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(OverflowError):
            DeviceArray.full(3, 300, "u1")
    same(DeviceArray.zeros((2, 2)), np.zeros((2, 2)))
    assert DeviceArray.empty(3).dtype == np.float64


def test_fields_are_views(device):
    dtype = np.dtype([("x", "f8"), ("y", "i2", (2, 3)), ("z", [("a", "u1")])], align=True)
    host = values(np.random.default_rng(5), (3, 2), dtype).copy()
    array = DeviceArray.from_host(host)
    for name in dtype.names:
        same(array[name], np.ascontiguousarray(host[name]))
    same(array["z"]["a"][1:], host["z"]["a"][1:])
    array["x"][1] = 7
    host["x"][1] = 7
    array["y"] = 3
    host["y"] = 3
    same(array["x"], host["x"])
    same(array["y"], host["y"])
    assert array.descr == dtype.descr
    with pytest.raises(KeyError):
        array["no"]


def test_many_small_pieces(device):
    """Copies that need more than a few driver calls."""
    host = np.arange(60 * 70 * 3, dtype="i4").reshape(60, 70, 3)
    array = DeviceArray.from_host(host)
    for key in [np.s_[::2, ::3, ::-1], np.s_[::-1, ::-2], np.s_[:, :, 1]]:
        same(array[key], host[key])
        same(array[key].copy(), host[key])
    flat = DeviceArray.from_host(host.ravel())
    same(flat[::-1], host.ravel()[::-1])
    same(flat[::-1].copy(), host.ravel()[::-1])
    target = np.zeros(host.shape[::-1], "i4").T
    array.copy_to_host(target)
    assert (target == host).all()
    broadcast = DeviceArray.zeros((50, 70, 3), "i4")
    broadcast[:] = array[0]
    same(broadcast, np.broadcast_to(host[0], (50, 70, 3)))


def test_invalid_arguments_are_refused(device):
    array = DeviceArray.zeros((3, 4), "f4")
    for key in [True, 1.5, [1, 2], np.array([1]), slice(1.5)]:
        with pytest.raises(TypeError):
            array[key]
    with pytest.raises(IndexError):
        array[0, 0, 0]
    with pytest.raises(IndexError):
        array[..., ...]
    for wrong in [lambda: array.reshape(5), lambda: array.reshape(-1, -1), lambda: array.reshape(-2, -6)]:
        with pytest.raises(ValueError):
            wrong()
    for axes in [(0,), (0, 0), (0, 2)]:
        with pytest.raises(ValueError):
            array.transpose(axes)
    with pytest.raises(ValueError):
        array.copy_from(np.zeros((3, 4), "f8"))
    with pytest.raises(ValueError):
        array.copy_from(np.zeros((4, 4), "f4"))
    with pytest.raises(ValueError):
        array.copy_to_host(np.zeros((3, 4), "i4"))
    frozen = np.zeros((3, 4), "f4")
    frozen.flags.writeable = False
    with pytest.raises(cuda_safe.ReadOnlyError):
        array.copy_to_host(frozen)
    with pytest.raises(TypeError, match=r"copy_to_host\(\), or numpy.from_dlpack\(array, device=\"cpu\"\)"):
        np.asarray(array)
    with pytest.raises(TypeError):
        len(array[0, 0])
    assert len(array) == 3
    with pytest.raises(ValueError):
        DeviceArray.zeros(-1)
    with pytest.raises(ValueError):
        DeviceArray.zeros("33")
    with pytest.raises((cuda_safe.CudaError, TypeError)):
        DeviceArray.zeros(3, object)
    with pytest.raises(ValueError, match="more than can be addressed"):
        DeviceArray.zeros((1 << 40, 1 << 40))
    with pytest.raises(cuda_safe.OutOfMemoryError) as raised:
        DeviceArray.zeros(1 << 45, "u1")
    assert raised.value.name == "CUDA_ERROR_OUT_OF_MEMORY" and isinstance(raised.value, MemoryError)
    assert "bytes were requested" in str(raised.value)


def test_insufficient_host_memory_is_an_exception(device, produce):
    assert DeviceArray.zeros(0, f"|V{(1 << 61) - 1}").to_bytes() == b""
    one = DeviceArray.zeros(1, "u1")
    everywhere = cuda_safe.as_cuda_array(produce(one, shape=(1 << 61,), strides=(0,)))
    with pytest.raises(MemoryError):
        everywhere.to_bytes()
    four = DeviceArray.zeros(1, "u4")
    everywhere = cuda_safe.as_cuda_array(produce(four, shape=(1 << 61,), strides=(0,)))
    with pytest.raises(cuda_safe.InvalidArgumentError):
        everywhere.to_bytes()


def test_views_keep_the_memory(device):
    array = DeviceArray.from_host(np.arange(10))
    view = array[2:5]
    array.close()
    assert view.copy_to_host().tolist() == [2, 3, 4]


def test_read_only_arrays_are_not_written(device):
    array = DeviceArray.from_host(np.arange(6))
    frozen = array.as_read_only()
    assert frozen.read_only and not array.read_only and frozen[1:].read_only and frozen.T.read_only
    assert frozen.__cuda_array_interface__["data"] == (array.address, True)
    for write in (
        lambda: frozen.fill(1),
        lambda: frozen[1:].fill(1),
        lambda: frozen.copy_from(np.arange(6)),
        lambda: frozen.copy_from(array),
        lambda: frozen.__setitem__(0, 1),
    ):
        with pytest.raises(cuda_safe.ReadOnlyError):
            write()
    same(array, np.arange(6))
    assert not frozen.copy().read_only


def test_views_as_other_types_of_the_same_size(device):
    host = np.arange(6, dtype="f4")
    array = DeviceArray.from_host(host)
    same(array.view_as("u4"), host.view("u4"))
    same(array[::2].view_as(">i4"), host[::2].view(">i4"))
    with pytest.raises(ValueError):
        array.view_as("f8")


def test_arrays_of_two_streams_are_in_order(device):
    rng = np.random.default_rng(6)
    for _ in range(30):
        first, second = Stream(), Stream()
        a = DeviceArray.zeros(1000, "i4", stream=first)
        b = DeviceArray.zeros(1000, "i4", stream=second)
        number = int(rng.integers(1, 1000))
        a.fill(number)
        b.copy_from(a)
        # Only after it was read.
        a.fill(0)
        assert b.copy_to_host().tolist() == [number] * 1000
        assert a.copy_to_host().tolist() == [0] * 1000


# Types whose description could lose information.
TRICKY = [
    "?", "f2", "g", ">i4", ">c8", "G", "M8[ns]", "m8[25s]", ">M8[us]", "M8", "S5", "U3", ">U3", "V6",
    [("a", "u1"), ("b", "<f4")],
    np.dtype([("a", "u1"), ("b", "<f4")], align=True),
    [("a", [("x", ">i2"), ("y", "?")]), ("b", "M8[ns]", (2,)), ("c", ">c16")],
    {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 6], "itemsize": 16},
    [(("title", "a"), "i4")],
    [("", "i4"), ("", "i4")],
    np.dtype((np.record, [("a", "<i4")])),
]  # fmt: skip


@pytest.mark.parametrize("dtype", TRICKY, ids=str)
def test_types_round_trip(device, dtype):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(3)
    for shape in [(), (3,), (2, 3)]:
        size = int(np.prod(shape)) * dtype.itemsize
        host = np.frombuffer(rng.integers(0, 2, size, "u1").tobytes(), dtype).reshape(shape)
        array = DeviceArray.from_host(host)
        assert array.dtype == dtype and array.to_bytes() == host.tobytes()
        back = array.copy_to_host()
        assert back.dtype == dtype and back.tobytes() == host.tobytes()
        assert DeviceArray.empty(shape, dtype).dtype == dtype
        # A part of each, because any array can be a view.
        for name in dtype.names or ():
            field = array[name].copy_to_host()
            assert field.dtype == host[name].dtype and field.tobytes() == host[name].tobytes()


def test_lossy_types_and_values_are_refused(device):
    overlap = {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}
    backwards = {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [2, 0]}
    for dtype in (overlap, backwards, [("in", overlap)]):
        for use in (DeviceArray.from_host, lambda host: DeviceArray.empty(3, host.dtype)):
            with pytest.raises(TypeError, match="field by field"):
                use(np.zeros(3, dtype))
    for dtype in ("O", [("a", "O")]):
        with pytest.raises(ValueError, match="O"):
            DeviceArray.from_host(np.zeros(3, dtype))
    with pytest.raises(TypeError, match="no type string of its own"):
        DeviceArray.from_host(np.zeros(3, np.dtypes.StringDType()))
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    array = DeviceArray.zeros(3)
    for use in (
        lambda: DeviceArray.from_host(masked),
        lambda: array.copy_from(masked),
        lambda: array.__setitem__(slice(None), masked),
        lambda: array.fill(np.ma.masked),
    ):
        with pytest.raises(TypeError, match="masked arrays are not supported"):
            use()
    same(DeviceArray.from_host(masked.filled(0)), masked.filled(0))


def test_buffers_are_copied_by_element(device):
    import array

    for source, typestr in [
        (b"ab\0", "|u1"),
        (b"", "|u1"),
        (bytearray(b"ab\0"), "|u1"),
        (memoryview(b"ab\0"), "|u1"),
        (memoryview(b"ab\0").cast("c"), "|S1"),
        (memoryview(b"\0\1").cast("?"), "|b1"),
        (memoryview(bytes(range(16)))[::2], "|u1"),
        (array.array("l", [1, 2]), np.dtype("l").str),
        (array.array("d", [1, 2]), "<f8"),
        (memoryview(np.arange(3, dtype=">i4")), ">i4"),
        (memoryview(np.array([(1, 2)], "u1,>f4")), "|V5"),
    ]:
        copied = DeviceArray.from_host(source)
        assert copied.typestr == typestr
        assert copied.shape == memoryview(source).shape
        assert copied.to_bytes() == memoryview(source).tobytes()
    # A NumPy scalar keeps its type.
    assert DeviceArray.from_host(np.bytes_(b"ab")).typestr == "|S2"


def test_buffers_without_numpy(run_python, device):
    run_python(
        """
import array, ctypes, sys, warnings
warnings.simplefilter("ignore")
sys.modules["numpy"] = None
import cuda_safe
a = cuda_safe.DeviceArray.from_host(array.array("d", [1, 2, 3]))
assert (a.typestr, a.shape) == ("<f8", (3,))
assert a.to_bytes() == array.array("d", [1, 2, 3]).tobytes()
a[1:] = 7
assert array.array("d", a.to_bytes()).tolist() == [1, 7, 7]
b = cuda_safe.DeviceArray.from_host(memoryview(b"abcdef").cast("B", (2, 3)))
assert b.T.to_bytes() == b"adbecf" and b[::-1].to_bytes() == b"defabc"
for source, typestr in [
    (b"ab\\0", "|u1"),
    (bytearray(b"ab"), "|u1"),
    (memoryview(b"ab").cast("c"), "|S1"),
    (memoryview(b"\\0\\1").cast("?"), "|b1"),
    (array.array("l", [1, -2]), f"<i{array.array('l').itemsize}"),
    (array.array("H", [1, 2]), "<u2"),
    ((ctypes.c_int32.__ctype_be__ * 2)(1, 2), ">i4"),
]:
    made = cuda_safe.DeviceArray.from_host(source)
    assert made.typestr == typestr, (made.typestr, typestr)
    assert made.to_bytes() == memoryview(source).tobytes()
for source in (array.array("u", "ab"), (ctypes.c_void_p * 2)()):
    try:
        cuda_safe.DeviceArray.from_host(source)
    except TypeError as why:
        assert "not supported without NumPy" in str(why)
    else:
        raise AssertionError(source)
c = cuda_safe.DeviceArray.full((2, 2), 1.5 + 2j, "complex64")
assert array.array("f", c.to_bytes()).tolist() == [1.5, 2] * 4
def assign():
    a[...] = [1, 2, 3]
for use in (
    lambda: a.dtype,
    lambda: a.copy_to_host(),
    lambda: a.view_as("M8[s]").fill(3),
    lambda: cuda_safe.DeviceArray.from_host([1, 2]),
    assign,
):
    try:
        use()
    except (ModuleNotFoundError, TypeError) as why:
        assert "NumPy" in str(why), why
    else:
        raise AssertionError(use)
print("done")
"""
    )


def test_bytes_created_for_each_access_are_kept(run_python, device):
    run_python(
        """
import sys
sys.modules["numpy"] = None
import threading
import cuda_safe

SIZE = 4 << 20

class Image:
    # Like an image of PIL.
    @property
    def __array_interface__(self):
        return {"version": 3, "shape": (SIZE,), "typestr": "|u1", "data": b"\\7" * SIZE}

class Other:
    # The dictionary changes while it is read.
    said = dict(Image().__array_interface__)

    @property
    def __array_interface__(self):
        return self.said

array = cuda_safe.DeviceArray.from_host(Image())
assert array.to_bytes() == b"\\7" * SIZE

def change():
    while not done:
        Other.said["data"] = b"\\7" * SIZE

done = False
thread = threading.Thread(target=change)
thread.start()
try:
    for _ in range(20):
        assert set(cuda_safe.DeviceArray.from_host(Other()).to_bytes()) == {7}
finally:
    done = True
    thread.join()
print("done")
"""
    )
