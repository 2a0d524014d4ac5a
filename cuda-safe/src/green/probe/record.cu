// Records the multiprocessor on which each block runs, one u32 per block. Each block runs for `cycles`
// clock cycles, so that the blocks of a launch spread over all available multiprocessors.
// record.ptx is the same kernel, written by hand for a target at or below the oldest one with green
// contexts.

extern "C" __global__ void cuda_safe_record_sm(unsigned int *sms, unsigned int cycles) {
    long long start = clock64();
    while (clock64() - start < (long long)cycles) { }
    if (threadIdx.x == 0) {
        unsigned int sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        sms[blockIdx.x] = sm;
    }
}
