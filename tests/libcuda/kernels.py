# Registers a kernel in Python, and launches it.

import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")


class Launch(ctypes.Structure):  # CUsimLaunch of cuda_sim.h
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("argument_count", ctypes.c_size_t),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("argument_sizes", ctypes.POINTER(ctypes.c_size_t)),
    ]


Kernel = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch), ctypes.c_void_p)
memory = [ctypes.POINTER(Launch), ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
cuda.cuSimRead.argtypes = cuda.cuSimWrite.argtypes = memory
cuda.cuSimRegisterKernel.argtypes = [ctypes.c_char_p, Kernel, ctypes.c_void_p]


# Python must keep the function alive while it is registered.
@Kernel  # __global__ void scale(float *x, float factor, unsigned n)
def scale(launch, user):
    arguments = launch.contents.arguments
    x = ctypes.c_uint64.from_address(arguments[0]).value
    factor = ctypes.c_float.from_address(arguments[1]).value
    n = ctypes.c_uint32.from_address(arguments[2]).value
    values = (ctypes.c_float * n)()
    if cuda.cuSimRead(launch, x, values, ctypes.sizeof(values)) == 0:
        for i in range(n):
            values[i] *= factor
        cuda.cuSimWrite(launch, x, values, ctypes.sizeof(values))


cuda.cuSimRegisterKernel(b"scale", scale, None)


def check(code):
    assert code == 0, code


PTX = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 factor, .param .u32 n) { ret; }
"""
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"scale"))
values = (ctypes.c_float * 4)(1, 2, 3, 4)
size = ctypes.sizeof(values)
x = ctypes.c_uint64()
check(cuda.cuMemAlloc_v2(ctypes.byref(x), ctypes.c_size_t(size)))
check(cuda.cuMemcpyHtoD_v2(x, values, ctypes.c_size_t(size)))
arguments = (ctypes.c_void_p * 3)()
factor, n = ctypes.c_float(2.5), ctypes.c_uint32(4)
for at, argument in enumerate([x, factor, n]):
    arguments[at] = ctypes.addressof(argument)
check(cuda.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, None, arguments, None))
# The kernel runs here, or on the driver's thread while this one sleeps.
if len(sys.argv) > 1:
    time.sleep(0.1)
check(cuda.cuCtxSynchronize())
check(cuda.cuMemcpyDtoH_v2(values, x, ctypes.c_size_t(size)))
print(*values)
