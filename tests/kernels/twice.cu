// The function that apply.cu calls. twice.ptx is the same code, written by hand for the oldest
// target in use.

extern "C" __device__ unsigned int twice(unsigned int x) { return x + x; }
