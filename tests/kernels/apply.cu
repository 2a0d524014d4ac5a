// A kernel that calls a function in another file, twice.cu. apply.ptx is the same code, written by
// hand for the oldest target in use.

extern "C" __device__ unsigned int twice(unsigned int x);

extern "C" __global__ void apply(unsigned int *x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
