// The work of a request. kernels.ptx has the same kernel, written by hand for the oldest target in use.

// out[i] = the number after `rounds` steps of a generator that starts at seed + i.
extern "C" __global__ void iterate(unsigned *out, unsigned n, unsigned seed, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = seed + i;
    for (unsigned round = 0; round < rounds; round++)
        value = value * 1664525 + 1013904223;
    out[i] = value;
}
