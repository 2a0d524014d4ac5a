// Kernels that write patterns late and check them. pattern.ptx is the same code, written by hand
// for the oldest target in use.

// x[i] = tag ^ i * 0x9e3779b9, after a delay, so that a premature use of the memory meets the
// pattern.
extern "C" __global__ void write_pattern(unsigned int *x, unsigned int n, unsigned int tag,
                                         unsigned int cycles) {
    long long start = clock64();
    while (clock64() - start < (long long)cycles) { }
    unsigned int step = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = tag ^ i * 0x9e3779b9u;
}

// Counts the elements without the pattern in wrong[0]. wrong[1] is the tag of one of them, and
// wrong[2] its value.
extern "C" __global__ void check_pattern(const unsigned int *x, unsigned int n, unsigned int tag,
                                         unsigned int *wrong) {
    unsigned int step = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned int found = x[i];
        if (found != (tag ^ i * 0x9e3779b9u)) {
            atomicAdd(&wrong[0], 1u);
            wrong[1] = tag;
            wrong[2] = found;
        }
    }
}
