// A kernel whose latency is measured, and two neighbors.
// kernels.ptx contains the same kernels, written by hand for the oldest target in use.

// Reads and computes for some microseconds. Each thread reads `steps` elements.
extern "C" __global__ void respond(const float *data, float *out, unsigned int steps) {
    unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int threads = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (unsigned int step = 0; step < steps; step++) {
        float x = data[(size_t)step * threads + thread];
        for (int i = 0; i < 512; i++) sum = fmaf(sum, 0.999f, x);
    }
    out[thread] = sum;
}

// Does only arithmetic for `cycles` clock cycles.
extern "C" __global__ void compute(float *out, unsigned int cycles) {
    long long start = clock64();
    float a = 1.0f, b = 2.0f, c = 3.0f, d = 4.0f;
    do {
        for (int i = 0; i < 4; i++) {
            a = fmaf(a, 0.999f, 1.0f); b = fmaf(b, 0.999f, 1.0f);
            c = fmaf(c, 0.999f, 1.0f); d = fmaf(d, 0.999f, 1.0f);
        }
    } while (clock64() - start < (long long)cycles);
    out[blockIdx.x * blockDim.x + threadIdx.x] = (a + b) + (c + d);
}

// Each block reads and writes `words` words of 16 bytes, sequentially.
extern "C" __global__ void sweep(uint4 *data, unsigned int words) {
    uint4 *mine = data + (size_t)blockIdx.x * words;
    for (unsigned int i = threadIdx.x; i < words; i += blockDim.x) {
        uint4 x = mine[i];
        x.x += 1; x.y += 1; x.z += 1; x.w += 1;
        mine[i] = x;
    }
}
