// Small kernels with known results. vector.ptx is the same code, written by hand for the oldest
// target in use.

// sum[i] = a[i] + b[i]
extern "C" __global__ void add(const float *a, const float *b, float *sum, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

// x[i] = x[i] * factor + offset
extern "C" __global__ void scale(int *x, int factor, int offset, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * factor + offset;
}

extern "C" __global__ void nothing() {}
