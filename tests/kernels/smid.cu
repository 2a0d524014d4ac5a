// Records the SM of each block: record_smid(out, cycles), with one u32 per block. smid.ptx is the
// same code, written by hand for the oldest target in use.

extern "C" __global__ void record_smid(unsigned int *out, unsigned int cycles) {
    long long start = clock64();
    // Long enough that the blocks of a launch spread over all SMs.
    while (clock64() - start < (long long)cycles) { }
    if (threadIdx.x == 0) {
        unsigned int smid;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
        out[blockIdx.x] = smid;
    }
}
