// Shared memory, dynamic and static. shared.ptx is this, written by hand for the oldest target in use.

// Through the last word of the dynamic shared memory, of which there are `bytes`.
extern "C" __global__ void through_shared(unsigned int *out, unsigned int bytes) {
    extern __shared__ volatile unsigned int dynamic[];
    dynamic[bytes / 4 - 1] = bytes;
    out[0] = dynamic[bytes / 4 - 1];
}

// Blocks of at most 64 threads, with 1024 bytes of shared memory.
extern "C" __global__ void __launch_bounds__(64) bounded(unsigned int *out) {
    __shared__ volatile unsigned int own[256];
    own[threadIdx.x] = 7;
    out[0] = own[threadIdx.x];
}
