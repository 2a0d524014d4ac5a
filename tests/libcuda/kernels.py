# Launches the kernel that the README of cuda-sim registers in Python. The README's code precedes this file.


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
if len(__import__("sys").argv) > 1:
    __import__("time").sleep(0.1)
check(cuda.cuCtxSynchronize())
check(cuda.cuMemcpyDtoH_v2(values, x, ctypes.c_size_t(size)))
print(*values)
