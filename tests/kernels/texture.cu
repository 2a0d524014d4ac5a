// Reads of textures at coordinates, and reads and writes of surfaces. texture.ptx is the same code,
// written by hand for the oldest target in use. Every kernel runs one thread for each result.

__device__ unsigned index() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Reads fractions or numbers of a one-, two- or three-dimensional texture.
extern "C" __global__ void sample_1d(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                     unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex1D<float4>(texture, at[i].x);
}

extern "C" __global__ void sample_2d(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                     unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex2D<float4>(texture, at[i].x, at[i].y);
}

extern "C" __global__ void sample_3d(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                     unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex3D<float4>(texture, at[i].x, at[i].y, at[i].z);
}

// The third coordinate is the number of the layer.
extern "C" __global__ void sample_layers(cudaTextureObject_t texture, const float4 *at,
                                         float4 *results, unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex2DLayered<float4>(texture, at[i].x, at[i].y, (int)at[i].z);
}

// Reads integers of a two-dimensional texture.
extern "C" __global__ void sample_integers(cudaTextureObject_t texture, const float4 *at,
                                           uint4 *results, unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex2D<uint4>(texture, at[i].x, at[i].y);
}

// Reads the elements of linear memory from the index `first` on.
extern "C" __global__ void fetch(cudaTextureObject_t texture, int first, float4 *results, unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex1Dfetch<float4>(texture, first + (int)i);
}

// Adds a number to the first `width` x `height` texels of a two-dimensional surface.
extern "C" __global__ void add_to_surface(cudaSurfaceObject_t surface, unsigned width,
                                          unsigned height, unsigned by)
{
    unsigned i = index();
    if (i >= width * height) return;
    int x = i % width * 4, y = i / width;
    surf2Dwrite(surf2Dread<unsigned>(surface, x, y) + by, surface, x, y);
}
