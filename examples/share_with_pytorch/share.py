"""Runs PyTorch and CuPy on a partition of a GPU that cuda-safe created.

usage: share.py [LIBRARY]

LIBRARY is libshare_with_pytorch.so. The default is the file next to this script, or the one built by
`cargo build --release --example share_with_pytorch`. The exit code is 77 if a requirement is missing:
a driver, or PyTorch or CuPy.
"""

import ctypes
import os
import sys

DEVICE, SMS = 0, 16
MISSING = 77

# Records where each block runs. The blocks run for a while, so that they spread over all available SMs.
WHERE = r"""
extern "C" __global__ void where_am_i(unsigned int *sms) {
    long long start = clock64();
    while (clock64() - start < 50000) { }
    if (threadIdx.x == 0) {
        unsigned int sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        sms[blockIdx.x] = sm;
    }
}
"""
BLOCKS, THREADS = 4096, 32


def missing(what):
    print("missing: " + what)
    sys.exit(MISSING)


class Partition:
    """A partition of at least SMS multiprocessors, with the handle of its stream."""

    def __init__(self, library):
        self.library = library
        library.share_open.restype = ctypes.c_void_p
        library.share_open.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p]
        library.share_sms.restype = ctypes.c_ssize_t
        library.share_sms.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        library.share_close.restype = None
        library.share_close.argtypes = [ctypes.c_void_p]
        stream = ctypes.c_size_t()
        self.shared = library.share_open(DEVICE, SMS, ctypes.byref(stream))
        if not self.shared:
            missing("a GPU with a driver for CUDA 12.4 or later (the reason is above)")
        self.stream = stream.value

    def sms(self):
        numbers = (ctypes.c_uint32 * 1024)()
        count = self.library.share_sms(self.shared, numbers, len(numbers))
        if count < 0:
            sys.exit("the probe failed (the reason is above)")
        return set(numbers[:count])

    def close(self):
        self.library.share_close(self.shared)


def find_library():
    here = os.path.dirname(os.path.abspath(__file__))
    name = "libshare_with_pytorch.so"
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(here, "..", "..", "target"))
    places = sys.argv[1:] or [
        os.path.join(here, name),
        os.path.join(target, "release", "examples", name),
        os.path.join(target, "debug", "examples", name),
    ]
    for place in places:
        if os.path.exists(place):
            return ctypes.CDLL(os.path.abspath(place))
    missing("the library: cargo build --release --example share_with_pytorch")


def check(name, seen, allowed):
    """Returns whether work stayed on the partition."""
    stayed = seen <= allowed
    verdict = "stayed there" if stayed else "LEFT IT: " + str(sorted(seen - allowed))
    print(f"{name}: ran on {len(seen)} SMs of the partition's {len(allowed)}: {verdict}")
    return stayed


def with_pytorch(torch, partition, sms):
    stream = torch.cuda.ExternalStream(partition.stream, device=torch.device("cuda", DEVICE))
    good = True

    def seconds():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a = torch.ones(4096, 4096, device="cuda")
        right = bool((a @ a == 4096).all())
        start.record()
        for _ in range(10):
            a @ a
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 10, right

    whole, _ = seconds()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream().cuda_stream == partition.stream
        part, right = seconds()
        good &= right
        print(
            f"PyTorch: a matrix product takes {whole:.2f} ms on the whole device and {part:.2f} ms "
            f"on the partition, and is {'correct' if right else 'WRONG'} there"
        )
        try:
            where = torch.cuda._compile_kernel(WHERE, "where_am_i")
            seen = torch.zeros(BLOCKS, dtype=torch.int32, device="cuda")
            where(grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1), args=(seen,))
            good &= check("PyTorch, a compiled kernel", set(seen.tolist()), sms)
            del seen
        except (AttributeError, RuntimeError, OSError) as why:
            print(f"PyTorch cannot compile a kernel that records where it runs: {why}")
    stream.synchronize()
    # Release the memory that PyTorch has allocated on the stream, before the stream is destroyed.
    torch.cuda.empty_cache()
    return good


def with_cupy(cupy, partition, sms):
    with cupy.cuda.Device(DEVICE), cupy.cuda.ExternalStream(partition.stream) as stream:
        seen = cupy.zeros(BLOCKS, dtype=cupy.uint32)
        cupy.RawKernel(WHERE, "where_am_i")((BLOCKS,), (THREADS,), (seen,))
        good = check("CuPy, a compiled kernel", set(seen.tolist()), sms)
        x = cupy.arange(1000, dtype=cupy.int64)
        good &= int(x.sum()) == 499500
        stream.synchronize()
    del seen, x
    cupy.get_default_memory_pool().free_all_blocks()
    return good


def main():
    partition = Partition(find_library())
    sms = partition.sms()
    print(f"the partition's stream {partition.stream:#x} runs on {len(sms)} SMs:", sorted(sms))
    good, shared = True, 0
    try:
        import torch

        if torch.cuda.is_available():
            good &= with_pytorch(torch, partition, sms)
            shared += 1
        else:
            print("PyTorch finds no GPU")
    except ImportError as why:
        print(f"no PyTorch: {why}")
    try:
        import cupy

        good &= with_cupy(cupy, partition, sms)
        shared += 1
    except ImportError as why:
        print(f"no CuPy: {why}")

    good &= check("the probe again", partition.sms(), sms)
    partition.close()
    if not shared:
        missing("PyTorch or CuPy, to share the stream with")
    sys.exit(0 if good else 1)


main()
