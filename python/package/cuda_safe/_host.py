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
    if not (hasattr(dtype, "str") and hasattr(dtype, "descr") and hasattr(dtype, "subdtype")):
        np = numpy()
        if np is None:
            raise TypeError(f"{dtype!r} is no dtype that is known without NumPy")
        dtype = np.dtype(dtype)
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape += inner
    if dtype.names is None:
        return dtype.str, None, shape
    return dtype.str, dtype.descr, shape


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
        array = np.asarray(source)
        # Not ascontiguousarray, which has no arrays without a dimension.
        array = np.require(array, requirements="C") if array.ndim else array.copy()
        return array.__array_interface__, array
    interface = getattr(source, "__array_interface__", None)
    if interface is not None and interface.get("strides") is None:
        return interface, source
    view = memoryview(source)
    code = {letter: code for code, letter in _FORMATS.items() if len(letter) == 1}
    # As the C compiler of this machine has them.
    code |= {"l": f"i{view.itemsize}", "L": f"u{view.itemsize}", "c": "u1"}
    letter = view.format.lstrip("@=")
    if letter not in code:
        raise TypeError(f"elements of the format {view.format!r} are not known without NumPy")
    data = view.tobytes()
    return {
        "version": 3,
        "shape": view.shape,
        "typestr": _native(code[letter]),
        "data": data,
    }, data


def values(
    value: Any, typestr: str, descr: list[Any] | None, shape: tuple[int, ...]
) -> bytes | tuple[dict[str, Any], Any]:
    """What is assigned to elements: the bytes of one, or an array with one for each."""
    np = numpy()
    if np is None:
        return item_bytes(value, typestr, descr)
    array = np.asarray(value, dtype=numpy_dtype(typestr, descr))
    if array.ndim == 0:
        return bytes(array.tobytes())
    return host_array(np.broadcast_to(array, shape))


def copy_into(target: Any, source: Any) -> None:
    """Copies an array of the host into another that is not contiguous."""
    target[...] = source
