// On which multiprocessor each block runs, one u32 a block; each stays for `cycles` clock cycles, so
// that the blocks of a launch spread over all multiprocessors there are.
// record.ptx is this, written by hand for the oldest target that has green contexts or is near it.

extern "C" __global__ void cuda_safe_record_sm(unsigned int *sms, unsigned int cycles) {
    long long start = clock64();
    while (clock64() - start < (long long)cycles) { }
    if (threadIdx.x == 0) {
        unsigned int sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        sms[blockIdx.x] = sm;
    }
}
