// Bulk copies through tensor maps. tensor.ptx is the same code, written by hand.

#include <cuda.h>
#include <cuda/barrier>

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

// Loads a box of 4 rows of 8 floats, whose first element is (x, y), and writes it to `out`. For one block
// of 32 threads. x is a multiple of 4, so that the box starts at a multiple of 16 bytes: other copies are
// illegal instructions.
extern "C" __global__ void load_box(const __grid_constant__ CUtensorMap map, float *out, int x, int y) {
    __shared__ alignas(128) float box[32];
    __shared__ barrier loaded;
    if (threadIdx.x == 0) {
        init(&loaded, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(box, &map, x, y, loaded);
        token = cuda::device::barrier_arrive_tx(loaded, 1, sizeof(box));
    } else {
        token = loaded.arrive();
    }
    loaded.wait(std::move(token));
    out[threadIdx.x] = box[threadIdx.x];
}

// Stores the numbers 100, 101, ... to such a box.
extern "C" __global__ void store_box(const __grid_constant__ CUtensorMap map, int x, int y) {
    __shared__ alignas(128) float box[32];
    box[threadIdx.x] = 100 + threadIdx.x;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_shared_to_global(&map, x, y, box);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}
