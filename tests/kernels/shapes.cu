// Reads of textures of other shapes, and accesses of surfaces. shapes.ptx is the same code, written by hand
// for the oldest target in use. Every kernel runs one thread for each result or texel.

__device__ unsigned index() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The coordinates are a direction from the center of the cube.
extern "C" __global__ void sample_cube(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                       unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = texCubemap<float4>(texture, at[i].x, at[i].y, at[i].z);
}

// The fourth coordinate is the number of the cube.
extern "C" __global__ void sample_cubes(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                        unsigned n)
{
    unsigned i = index();
    if (i < n)
        results[i] = texCubemapLayered<float4>(texture, at[i].x, at[i].y, at[i].z, (int)at[i].w);
}

// The second coordinate is the number of the layer.
extern "C" __global__ void sample_lines(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                        unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex1DLayered<float4>(texture, at[i].x, (int)at[i].y);
}

// The third coordinate is the level, which may be between two.
extern "C" __global__ void sample_level(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                        unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex2DLod<float4>(texture, at[i].x, at[i].y, at[i].z);
}

// Reads the first channel of four texels.
extern "C" __global__ void gather(cudaTextureObject_t texture, const float4 *at, float4 *results,
                                  unsigned n)
{
    unsigned i = index();
    if (i < n) results[i] = tex2Dgather<float4>(texture, at[i].x, at[i].y, 0);
}

// Writes the number of each texel of a volume.
extern "C" __global__ void number_volume(cudaSurfaceObject_t surface, unsigned width, unsigned height,
                                         unsigned n)
{
    unsigned i = index(), row = i / width;
    if (i < n) surf3Dwrite(i, surface, i % width * 4, row % height, row / height);
}

// Writes the number of each texel of layers.
extern "C" __global__ void number_layers(cudaSurfaceObject_t surface, unsigned width, unsigned height,
                                         unsigned n)
{
    unsigned i = index(), row = i / width;
    if (i < n) surf2DLayeredwrite(i, surface, i % width * 4, row % height, row / height);
}

// Reverses the channels of texels of four bytes.
extern "C" __global__ void reverse_bytes(cudaSurfaceObject_t surface, unsigned width, unsigned height,
                                         unsigned n)
{
    unsigned i = index();
    if (i >= n) return;
    int x = i % width * 4, y = i / width % height;
    uchar4 texel = surf2Dread<uchar4>(surface, x, y);
    surf2Dwrite(make_uchar4(texel.w, texel.z, texel.y, texel.x), surface, x, y);
}

// Doubles texels of four floats.
extern "C" __global__ void double_floats(cudaSurfaceObject_t surface, unsigned width, unsigned height,
                                         unsigned n)
{
    unsigned i = index();
    if (i >= n) return;
    int x = i % width * 16, y = i / width % height;
    float4 texel = surf2Dread<float4>(surface, x, y);
    texel = make_float4(2 * texel.x, 2 * texel.y, 2 * texel.z, 2 * texel.w);
    surf2Dwrite(texel, surface, x, y);
}

// Reads n texels of a line from the one before the first on, as zeros or as the nearest ones outside.
extern "C" __global__ void read_beyond(cudaSurfaceObject_t surface, uint2 *results, unsigned n)
{
    unsigned i = threadIdx.x;
    if (i >= n) return;
    int x = 4 * (int)i - 4;
    results[i] = make_uint2(surf1Dread<unsigned>(surface, x, cudaBoundaryModeZero),
                            surf1Dread<unsigned>(surface, x, cudaBoundaryModeClamp));
}
