// Features of compute capability 9.0: clusters, and kernels that start before earlier ones have
// ended. hopper.ptx is the same code, written by hand.

#include <cooperative_groups.h>

// Writes the size of each block's cluster, times 65536, plus the block's rank in it.
extern "C" __global__ void cluster_ranks(unsigned int *out) {
    auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) out[blockIdx.x] = cluster.num_blocks() << 16 | cluster.block_rank();
}

// Lets the next kernel start, and then continues for a while.
extern "C" __global__ void pdl_first(unsigned int *x, unsigned int cycles) {
    cudaTriggerProgrammaticLaunchCompletion();
    long long start = clock64();
    while (clock64() - start < (long long)cycles) { }
    x[0] = 41;
}

extern "C" __global__ void pdl_second(unsigned int *x) {
    cudaGridDependencySynchronize();
    x[0] += 1;
}
