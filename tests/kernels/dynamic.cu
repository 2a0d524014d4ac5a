// A kernel that launches kernels. All of them record the SMs that they run on. There is no PTX
// file, because the code needs the device's runtime library; a test compiles it if nvcc is
// installed.

__device__ void record(unsigned int *out, unsigned int cycles) {
    long long start = clock64();
    // Long enough that the blocks of a launch spread over all SMs.
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

// parent(parents, children, blocks, cycles): writes one element of `parents` per block. Each block
// launches `blocks` blocks, each of which writes one element of `children`.
extern "C" __global__ void parent(
    unsigned int *parents, unsigned int *children, unsigned int blocks, unsigned int cycles
) {
    record(parents, cycles);
    if (threadIdx.x == 0) {
        child<<<blocks, 32>>>(children + blockIdx.x * blocks, cycles);
    }
}
