"""DLPack's C structures, and a consumer of tensors."""

import ctypes

LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
is_valid = ctypes.pythonapi.PyCapsule_IsValid
is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def tensor_of(capsule):
    """Returns the contents of a capsule: the structure around the tensor."""
    if is_valid(capsule, VERSIONED):
        return ManagedVersioned.from_address(pointer_of(capsule, VERSIONED))
    return Managed.from_address(pointer_of(capsule, LEGACY))


class Consumer:
    """Consumes a tensor as a library does: renames the capsule, and calls the deleter later."""

    USED = {LEGACY: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}

    def __init__(self, capsule):
        name = VERSIONED if is_valid(capsule, VERSIONED) else LEGACY
        self.managed = tensor_of(capsule)
        assert rename(capsule, self.USED[name]) == 0

    def delete(self):
        DELETER(self.managed.deleter)(ctypes.addressof(self.managed))
