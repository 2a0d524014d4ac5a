// Kernels that set conditional handles of graphs. conditional.ptx is the same code, written by hand for
// the oldest target in use. The driver resolves cudaGraphSetConditional when it loads the module.

// choose(handle, value)
extern "C" __global__ void choose(cudaGraphConditionalHandle handle, unsigned int value) {
    cudaGraphSetConditional(handle, value);
}

// count_down(handle, left): *left -= 1, and sets the handle to the result.
extern "C" __global__ void count_down(cudaGraphConditionalHandle handle, unsigned int *left) {
    *left -= 1;
    cudaGraphSetConditional(handle, *left);
}
