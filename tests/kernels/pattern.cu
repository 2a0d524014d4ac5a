// Patterns in memory: written late, and looked for. pattern.ptx is this, written by hand for the oldest target
// in use.

// x[i] = tag ^ i * 0x9e3779b9, after a while: whoever uses the memory too early meets that.
extern "C" __global__ void write_pattern(unsigned int *x, unsigned int n, unsigned int tag,
                                         unsigned int cycles) {
    long long start = clock64();
    while (clock64() - start < (long long)cycles) { }
    unsigned int step = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = tag ^ i * 0x9e3779b9u;
}

// Counts in wrong[0] where that is not what there is; wrong[1] is the tag of one of these, wrong[2] what is there.
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
