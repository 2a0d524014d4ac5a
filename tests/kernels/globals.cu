// Variables of a module. globals.ptx is the same code, written by hand for the oldest target in
// use.

extern "C" {

__device__ unsigned int counter = 5;
__constant__ float factors[4] = {1, 2, 3, 4};
__managed__ unsigned int everywhere = 3;

__global__ void bump(unsigned int by) { counter += by; }

__global__ void factor(float *out, unsigned int index) { out[0] = factors[index]; }

__global__ void copy_everywhere(unsigned int *out) { out[0] = everywhere; }

}
