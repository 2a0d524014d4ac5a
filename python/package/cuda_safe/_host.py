"""What lies on the host: types, values and arrays, with NumPy where it is there, and without.

The extension module calls these; they are no part of the interface.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

# A dtype as the extension takes it: the type string, the fields of a record or None, and the shape of
# an element that is an array itself.
Described = tuple[str, "list[Any] | None", tuple[int, ...]]

_NATIVE = "<" if sys.byteorder == "little" else ">"

_NAMES = {
    "bool": "b1",
    "float16": "f2",
    "float32": "f4",
    "float64": "f8",
    "complex64": "c8",
    "complex128": "c16",
    **{f"int{8 * size}": f"i{size}" for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": f"u{size}" for size in (1, 2, 4, 8)},
}

_TYPES = {bool: "b1", int: "i8", float: "f8", complex: "c16"}

# The letters of the module struct.
_FORMATS = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
    "c8": "ff",
    "c16": "dd",
}

# The byte orders of buffers, and the kinds of their letters.
_ORDERS = {"@": _NATIVE, "=": _NATIVE, "<": "<", ">": ">", "!": ">"}
_LETTERS = {
    "?": "b",
    "c": "S",
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
    "Zf": "c",
    "Zd": "c",
}


def numpy() -> Any:
    """NumPy, or None."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _needs_numpy(what: str) -> Any:
    np = numpy()
    if np is None:
        raise ModuleNotFoundError(f"{what} needs NumPy, which is not installed", name="numpy")
    return np


def _native(code: str) -> str:
    """The type string of a kind and a size."""
    order = "|" if code[1:] == "1" else _NATIVE
    return order + code


def describe(dtype: Any) -> Described:
    """A dtype, in whichever way it is said."""
    if isinstance(dtype, str):
        if dtype[:1] in ("<", ">", "=", "|"):
            return dtype, None, ()
        if dtype in _NAMES:
            return _native(_NAMES[dtype]), None, ()
        if dtype in _FORMATS:
            return _native(dtype), None, ()
    if isinstance(dtype, type) and dtype in _TYPES:
        return _native(_TYPES[dtype]), None, ()
    if not (hasattr(dtype, "str") and hasattr(dtype, "names") and hasattr(dtype, "subdtype")):
        np = numpy()
        if np is None:
            raise TypeError(f"{dtype!r} is no dtype that is known without NumPy")
        dtype = np.dtype(dtype)
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape += inner
    return dtype.str, _fields(dtype), shape


def _fields(dtype: Any) -> list[Any] | None:
    """The fields of a record, or None; what it describes is the same dtype, or there is none."""
    descr = None
    try:
        if dtype.names is not None:
            descr = dtype.descr
        same = bool(numpy_dtype(dtype.str, descr) == dtype)
    except (TypeError, ValueError):
        same = False
    if same:
        return descr
    if dtype.names is not None:
        raise TypeError(
            f"{dtype!r} cannot be described field by field: fields overlap, or are not in the order "
            "in which they lie"
        )
    raise TypeError(
        f"{dtype!r} has no description in NumPy's terms ({dtype.str!r} is another type): give an array's "
        f"bytes, as view('u{dtype.itemsize}')"
    )


def _refuse_masked(source: Any) -> None:
    """A mask would be lost."""
    ma = sys.modules.get("numpy.ma")
    if ma is not None and isinstance(source, ma.MaskedArray):
        raise TypeError("masked arrays are not taken: give filled() or compressed()")


def numpy_dtype(typestr: str, descr: list[Any] | None) -> Any:
    """The numpy.dtype."""
    np = _needs_numpy("dtype")
    if descr is None:
        return np.dtype(typestr)
    return np.lib.format.descr_to_dtype(descr)


def empty(shape: tuple[int, ...], typestr: str, descr: list[Any] | None) -> Any:
    """A new array of NumPy's."""
    np = _needs_numpy("copy_to_host")
    return np.empty(shape, numpy_dtype(typestr, descr))


def item_bytes(value: Any, typestr: str, descr: list[Any] | None) -> bytes:
    """One value as the bytes of an element."""
    np = numpy()
    if np is not None:
        _refuse_masked(value)
        array = np.asarray(value, dtype=numpy_dtype(typestr, descr))
        if array.ndim:
            raise ValueError(f"one value is expected, and not an array of shape {array.shape}")
        return bytes(array.tobytes())
    letters = _FORMATS.get(typestr[1:])
    if descr is not None or letters is None:
        _needs_numpy(f"a value of type {typestr}")
        raise AssertionError
    order = ">" if typestr[0] == ">" else "<" if typestr[0] == "<" else "="
    if typestr[1] == "c":
        number = complex(value)
        return struct.pack(order + letters, number.real, number.imag)
    return struct.pack(order + letters, value)


def host_array(source: Any) -> tuple[dict[str, Any], Any]:
    """An array of the host in C order: its interface, and what keeps it alive."""
    np = numpy()
    if np is not None:
        _refuse_masked(source)
        if isinstance(source, bytes) and not isinstance(source, np.generic):
            # A buffer as any other, and no text.
            source = memoryview(source)
        array = np.asarray(source)
        # Not ascontiguousarray, which has no arrays without a dimension.
        array = np.require(array, requirements="C") if array.ndim else array.copy()
        # What the interface says of fields that it cannot describe is that there are none.
        _fields(array.dtype)
        return array.__array_interface__, array
    interface = getattr(source, "__array_interface__", None)
    if interface is not None and interface.get("strides") is None:
        return interface, source
    view = memoryview(source)
    data = view.tobytes()
    return {
        "version": 3,
        "shape": view.shape,
        "typestr": _typestr_of(view),
        "data": data,
    }, data


def _typestr_of(view: memoryview) -> str:
    """The type string of a buffer's elements."""
    order, letter = _NATIVE, view.format
    if letter[:1] in _ORDERS:
        order, letter = _ORDERS[letter[0]], letter[1:]
    kind = _LETTERS.get(letter)
    if kind is None:
        raise TypeError(f"elements of the format {view.format!r} are not known without NumPy")
    # The size is the buffer's: that of the C compiler of this machine, or the standard one.
    return f"{'|' if view.itemsize == 1 else order}{kind}{view.itemsize}"


def values(
    value: Any, typestr: str, descr: list[Any] | None, shape: tuple[int, ...]
) -> bytes | tuple[dict[str, Any], Any]:
    """What is assigned to elements: the bytes of one, or an array with one for each."""
    np = numpy()
    if np is None:
        return item_bytes(value, typestr, descr)
    _refuse_masked(value)
    array = np.asarray(value, dtype=numpy_dtype(typestr, descr))
    if array.ndim == 0:
        return bytes(array.tobytes())
    return host_array(np.broadcast_to(array, shape))


def copy_into(target: Any, source: Any) -> None:
    """Copies an array of the host into another that is not contiguous."""
    target[...] = source
