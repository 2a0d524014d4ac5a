// The function of apply.cu. twice.ptx is this, written by hand for the oldest target in use.

extern "C" __device__ unsigned int twice(unsigned int x) { return x + x; }
