// The kernels of one element type. The backend compiles this file once for each type, with a line that
// defines `T` and `NAME`. kernels.ptx has the same kernels for float and int, for machines without NVRTC.
//
// All kernels have the same parameters, so an executor needs only one function that launches a kernel.

// out[i] = a[i] op b[i], for n elements. With a step of 0, b is a single number.
#define BINARY(op, expression)                                                                  \
    extern "C" __global__ void NAME(op)(const T *a, const T *b, T *out, unsigned n, unsigned step, unsigned) { \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                     \
        if (i >= n) return;                                                                     \
        T x = a[i], y = b[i * step];                                                            \
        out[i] = expression;                                                                    \
    }

BINARY(add, x + y)
BINARY(mul, x * y)
BINARY(max, x > y ? x : y)

// out[row] = the sum of a row of a. One block of 256 threads for each row; b is not used.
extern "C" __global__ void NAME(sum)(const T *a, const T *, T *out, unsigned, unsigned columns, unsigned) {
    __shared__ T partial[256];
    T sum = 0;
    for (unsigned column = threadIdx.x; column < columns; column += blockDim.x)
        sum += a[blockIdx.x * columns + column];
    partial[threadIdx.x] = sum;
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

// The product of the matrices a (rows by inner) and b (inner by columns). One thread for each element.
extern "C" __global__ void NAME(matmul)(const T *a, const T *b, T *out, unsigned rows, unsigned inner, unsigned columns) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    unsigned row = i / columns, column = i % columns;
    T sum = 0;
    for (unsigned k = 0; k < inner; k++)
        sum += a[row * inner + k] * b[k * columns + column];
    out[i] = sum;
}
