// Blocks that wait for each other, so all of them have to run at the same time: meet(arrived), with
// one thread per block. meet.ptx is the same code, written by hand for the oldest target in use.

extern "C" __global__ void meet(unsigned int *arrived) {
    atomicAdd(arrived, 1);
    while (*(volatile unsigned int *)arrived < gridDim.x) { }
}
