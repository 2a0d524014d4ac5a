"""A C++ library between PyTorch's stand-in and the allocator, which catches the allocator's exceptions."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

SOURCE = r"""
#include <cstddef>
#include <cstring>
#include <stdexcept>

extern "C" int allocate(void *(*function)(std::size_t, int, void *), std::size_t size, int device,
                        void *stream, void **memory, char *text, std::size_t bytes)
{
    try {
        *memory = function(size, device, stream);
        return 0;
    } catch (const std::runtime_error &why) {
        std::strncpy(text, why.what(), bytes - 1);
        return 1;
    }
}
"""


def build(folder):
    """Returns the library, or None without a C++ compiler that links the shared C++ library."""
    library = folder / "libcatcher.so"
    for compiler in filter(shutil.which, ("c++", "g++", "clang++", os.environ.get("CXX") or "c++")):
        command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c++", "-", "-o", str(library)]
        subprocess.run(command, input=SOURCE, text=True, check=True)
        if b"\0libstdc++.so.6\0" in library.read_bytes():
            return library
    return None


def load(path):
    """Returns a function that calls an allocator by its address, and raises the RuntimeError that PyTorch
    would."""
    function = ctypes.CDLL(path).allocate
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]

    def allocate(address, size, device, stream):
        memory, text = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
        if function(address, size, device, stream, ctypes.byref(memory), text, len(text)):
            raise RuntimeError(text.value.decode())
        return memory.value

    return allocate
