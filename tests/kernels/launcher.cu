// A kernel that launches a graph. There is no PTX file, because the code needs the device's runtime
// library; a test compiles it if nvcc is installed.

extern "C" __global__ void start(cudaGraphExec_t graph) {
    cudaGraphLaunch(graph, cudaStreamGraphFireAndForget);
}
