// Kernels whose blocks communicate without locks: a scan of tiles that look back, a bounded queue, and a barrier of the
// grid. lockfree.ptx is the same code, written by hand for the oldest target with these instructions.

#include <cuda/atomic>

typedef unsigned int u32;
typedef cuda::atomic_ref<u32, cuda::thread_scope_device> atomic;

// Writes the inclusive prefix sums of gridDim.x * blockDim.x elements, for blocks of at most 32 threads. Each block sums a
// tile, and then the sums of the tiles before it until it finds one whose prefix is known. A state is 1 if the sum of
// the tile is known, and 2 if its prefix is.
extern "C" __global__ void scan(
    const u32 *in, u32 *out, u32 *sums, u32 *prefixes, volatile u32 *states, u32 *next
) {
    __shared__ u32 elements[32], tile, before;
    u32 thread = threadIdx.x;
    if (thread == 0) {
        tile = atomicAdd(next, 1);
    }
    __syncthreads();
    u32 at = tile * blockDim.x + thread;
    elements[thread] = in[at];
    __syncthreads();
    if (thread == 0) {
        u32 sum = 0;
        for (u32 i = 0; i < blockDim.x; i++) {
            sum += elements[i];
        }
        sums[tile] = sum;
        __threadfence();
        states[tile] = 1;
        u32 exclusive = 0;
        for (u32 other = tile; other != 0;) {
            other--;
            u32 state;
            do {
                state = states[other];
            } while (state == 0);
            __threadfence();
            if (state == 2) {
                exclusive += prefixes[other];
                break;
            }
            exclusive += sums[other];
        }
        prefixes[tile] = exclusive + sum;
        __threadfence();
        states[tile] = 2;
        before = exclusive;
    }
    __syncthreads();
    u32 sum = before;
    for (u32 i = 0; i <= thread; i++) {
        sum += elements[i];
    }
    out[at] = sum;
}

// Even blocks put their number, halved, into a queue of two places, and odd blocks take a number and count it in `seen`.
// The sequence number of a place is the position that can be put there, and one more when it is there. It begins with
// the index of the place. `ends` has the next position to put, and the next one to take.
extern "C" __global__ void queue(u32 *sequences, u32 *values, u32 *ends, u32 *seen) {
    bool takes = blockIdx.x & 1;
    atomic end(ends[takes]);
    u32 at = end.load(cuda::memory_order_relaxed);
    for (;;) {
        if (atomic(sequences[at & 1]).load(cuda::memory_order_acquire) != at + takes) {
            at = end.load(cuda::memory_order_relaxed);
        } else if (end.compare_exchange_strong(at, at + 1, cuda::memory_order_relaxed)) {
            break;
        }
    }
    u32 next = at + 1;
    if (takes) {
        atomicAdd(&seen[values[at & 1]], 1);
        next++;
    } else {
        values[at & 1] = blockIdx.x / 2;
    }
    atomic(sequences[at & 1]).store(next, cuda::memory_order_release);
}

// In each of `rounds`, every thread writes a value, and adds that of the thread in the next block to its sum. A barrier
// of the grid follows the writes and the reads.
extern "C" __global__ void exchange(u32 *values, u32 *arrived, u32 *sums, u32 rounds) {
    u32 own = blockIdx.x * blockDim.x + threadIdx.x;
    u32 other = (blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x;
    u32 sum = 0, expected = 0;
    for (u32 phase = 0; phase < 2 * rounds; phase++) {
        if (phase & 1) {
            sum += values[other];
        } else {
            values[own] = phase + own;
        }
        expected += gridDim.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1);
            while (*(volatile u32 *)arrived < expected) { }
            __threadfence();
        }
        __syncthreads();
    }
    sums[own] = sum;
}
