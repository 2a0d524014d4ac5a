// A kernel whose function is elsewhere: in twice.cu. apply.ptx is this, written by hand for the
// oldest target in use.

extern "C" __device__ unsigned int twice(unsigned int x);

extern "C" __global__ void apply(unsigned int *x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
