"""Host types, values and arrays, with or without NumPy.

These functions are called by the extension module and are not part of the public interface.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

# A dtype as the extension module expects it: the type string, the fields of a record or None, and
# the shape of an element that is itself an array.
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

# The format characters of the struct module.
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

# The byte orders of buffer formats, and the kinds of their format characters.
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
    """Returns the NumPy module, or None."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _needs_numpy(what: str) -> Any:
    np = numpy()
    if np is None:
        raise ModuleNotFoundError(f"{what} requires NumPy, which is not installed", name="numpy")
    return np


def _native(code: str) -> str:
    """Returns the type string for a kind and a size."""
    order = "|" if code[1:] == "1" else _NATIVE
    return order + code


def describe(dtype: Any) -> Described:
    """Describes a dtype argument of any supported form."""
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
            raise TypeError(f"{dtype!r} is not a dtype that is supported without NumPy")
        dtype = np.dtype(dtype)
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape += inner
    return dtype.str, _fields(dtype), shape


def _fields(dtype: Any) -> list[Any] | None:
    """Returns the fields of a record, or None. Raises an exception if they do not describe the same
    dtype."""
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
            f"{dtype!r} cannot be described field by field: its fields overlap, or are not in the order "
            "of their offsets"
        )
    raise TypeError(
        f"{dtype!r} has no type string of its own in NumPy ({dtype.str!r} is another type): pass the "
        f"bytes of the array, for example view('u{dtype.itemsize}')"
    )


def _refuse_masked(source: Any) -> None:
    """Refuses a masked array, because its mask would be lost."""
    ma = sys.modules.get("numpy.ma")
    if ma is not None and isinstance(source, ma.MaskedArray):
        raise TypeError("masked arrays are not supported: pass filled() or compressed()")


def numpy_dtype(typestr: str, descr: list[Any] | None) -> Any:
    """Returns the numpy.dtype."""
    np = _needs_numpy("dtype")
    if descr is None:
        return np.dtype(typestr)
    return np.lib.format.descr_to_dtype(descr)


def empty(shape: tuple[int, ...], typestr: str, descr: list[Any] | None) -> Any:
    """Returns a new NumPy array."""
    np = _needs_numpy("copy_to_host")
    return np.empty(shape, numpy_dtype(typestr, descr))


def item_bytes(value: Any, typestr: str, descr: list[Any] | None) -> bytes:
    """Returns one value as the bytes of an element."""
    np = numpy()
    if np is not None:
        _refuse_masked(value)
        array = np.asarray(value, dtype=numpy_dtype(typestr, descr))
        if array.ndim:
            raise ValueError(f"one value is expected, not an array of shape {array.shape}")
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
    """Returns the interface of a host array in C order, and the object that keeps it alive."""
    np = numpy()
    if np is not None:
        _refuse_masked(source)
        if isinstance(source, bytes) and not isinstance(source, np.generic):
            # Treated like any other buffer, not as a string.
            source = memoryview(source)
        array = np.asarray(source)
        # Not ascontiguousarray, which does not return arrays without dimensions.
        array = np.require(array, requirements="C") if array.ndim else array.copy()
        # NumPy's interface omits fields that it cannot describe, so the dtype is checked here.
        _fields(array.dtype)
        return array.__array_interface__, array
    interface = getattr(source, "__array_interface__", None)
    if interface is not None and interface.get("strides") is None:
        return interface, source
    try:
        view = memoryview(source)
    except TypeError:
        _needs_numpy(f"the conversion of an object of type {type(source).__name__} to an array")
        raise
    data = view.tobytes()
    return {
        "version": 3,
        "shape": view.shape,
        "typestr": _typestr_of(view),
        "data": data,
    }, data


def _typestr_of(view: memoryview) -> str:
    """Returns the type string of a buffer's elements."""
    order, letter = _NATIVE, view.format
    if letter[:1] in _ORDERS:
        order, letter = _ORDERS[letter[0]], letter[1:]
    kind = _LETTERS.get(letter)
    if kind is None:
        raise TypeError(f"elements of the format {view.format!r} are not supported without NumPy")
    # The size is that of the buffer, either the native or the standard one.
    return f"{'|' if view.itemsize == 1 else order}{kind}{view.itemsize}"


def values(
    value: Any, typestr: str, descr: list[Any] | None, shape: tuple[int, ...]
) -> bytes | tuple[dict[str, Any], Any]:
    """Returns assigned values: the bytes of one value for all elements, or an array with one for each."""
    np = numpy()
    if np is None:
        if isinstance(value, (list, tuple)) or hasattr(value, "__array_interface__"):
            _needs_numpy("assigning more than one value")
        return item_bytes(value, typestr, descr)
    _refuse_masked(value)
    array = np.asarray(value, dtype=numpy_dtype(typestr, descr))
    if array.ndim == 0:
        return bytes(array.tobytes())
    return host_array(np.broadcast_to(array, shape))


def shared(source: Any) -> Any:
    """Returns a NumPy array on the memory of an object with an `__array_interface__`."""
    return _needs_numpy("numpy()").asarray(source)


def copy_into(target: Any, source: Any) -> None:
    """Copies a host array into one that is not contiguous."""
    target[...] = source
