"""CuPy and then PyTorch work on one array on a partition of the GPU, without a copy.

usage: green.py

The partition is a green context of at least SMS multiprocessors, and the array is allocated on one of its
streams. CuPy and PyTorch use the stream by its handle and the array by its address. A CuPy kernel records
the SMs on which it ran. The exit code is 77 if something that this example needs is missing.
"""

import sys

SMS, N, BLOCKS = 16, 1 << 20, 4096
MISSING = 77

# Each block records its multiprocessor and adds one to its part of the array. It then spins for some time,
# so that the blocks spread over all available SMs.
KERNEL = r"""
extern "C" __global__ void add_one(float *array, int count, unsigned int *sms) {
    long long start = clock64();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        array[i] += 1.0f;
    }
    while (clock64() - start < 50000) { }
    if (threadIdx.x == 0) {
        unsigned int sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        sms[blockIdx.x] = sm;
    }
}
"""


def missing(what):
    print(f"missing: {what}")
    sys.exit(MISSING)


try:
    import cupy
    import torch
except ImportError as why:
    missing(why)

import cuda_safe

try:
    device = cuda_safe.Device(0)
    partition = device.sm_resource().partition([SMS], label="the example")[0]
except (cuda_safe.DriverNotFoundError, cuda_safe.NoDeviceError, cuda_safe.MissingFunctionError) as why:
    missing(why)

stream = partition.stream()
array = cuda_safe.DeviceArray.full(N, 1.0, "float32", stream=stream)
where = cuda_safe.DeviceArray.zeros(BLOCKS, "uint32", stream=stream)
print(f"{array!r} at {array.address:#x}, on a partition of {partition.sm_count} SMs of {device.sm_count}")

# CuPy, on the partition.
with cupy.cuda.ExternalStream(stream.handle):
    theirs = cupy.asarray(array)
    assert theirs.data.ptr == array.address
    kernel = cupy.RawKernel(KERNEL, "add_one")
    kernel((BLOCKS,), (64,), (theirs, cupy.int32(N), cupy.asarray(where)))

# PyTorch, on the same stream of the partition, after CuPy and without a wait of the host.
with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == array.address
    tensor.mul_(2)

# This package.
result, sms = array.copy_to_host(), set(where.copy_to_host().tolist())
print(f"(1 + 1) * 2 = {result.min()} to {result.max()}; CuPy's kernel ran on {len(sms)} SMs: {sorted(sms)}")
good = bool((result == 4).all()) and len(sms) <= partition.sm_count
print("as expected" if good else "WRONG")
sys.exit(0 if good else 1)
