// A kernel that launches kernels, both of which record the multiprocessors that they run on. There is no
// PTX of it: it needs the device's runtime library, so that a test compiles it where there is nvcc.

__device__ void record(unsigned int *out, unsigned int cycles) {
    long long start = clock64();
    // Long enough that the blocks of a launch spread over all SMs there are.
    while (clock64() - start < (long long)cycles) { }
    if (threadIdx.x == 0) {
        unsigned int smid;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
        out[blockIdx.x] = smid;
    }
}

__global__ void child(unsigned int *out, unsigned int cycles) {
    record(out, cycles);
}

// parent(parents, children, blocks, cycles): one element of `parents` a block; each block launches
// `blocks` blocks, of which each has an element of `children`.
extern "C" __global__ void parent(
    unsigned int *parents, unsigned int *children, unsigned int blocks, unsigned int cycles
) {
    record(parents, cycles);
    if (threadIdx.x == 0) {
        child<<<blocks, 32>>>(children + blockIdx.x * blocks, cycles);
    }
}
