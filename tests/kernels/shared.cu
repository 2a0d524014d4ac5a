// Dynamic and static shared memory. shared.ptx is the same code, written by hand for the oldest
// target in use.

// Passes a value through the last word of `bytes` bytes of dynamic shared memory.
extern "C" __global__ void through_shared(unsigned int *out, unsigned int bytes) {
    extern __shared__ volatile unsigned int dynamic[];
    dynamic[bytes / 4 - 1] = bytes;
    out[0] = dynamic[bytes / 4 - 1];
}

// Blocks of at most 64 threads, with 1024 bytes of shared memory.
extern "C" __global__ void __launch_bounds__(64) bounded(unsigned int *out) {
    __shared__ volatile unsigned int own[256];
    own[threadIdx.x] = 7;
    if (threadIdx.x == 0) out[0] = own[0];
}
