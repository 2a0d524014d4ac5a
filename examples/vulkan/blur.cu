// A blur of a picture with four bytes for each pixel: the mean of a square around it. blur.ptx is the same code,
// written by hand for the oldest target in use.

extern "C" __global__ void blur(const uchar4 *from, uchar4 *to, int width, int height, int radius) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    unsigned sum[4] = {};
    for (int dy = -radius; dy <= radius; dy++)
        for (int dx = -radius; dx <= radius; dx++) {
            // At the border, the last pixel is repeated.
            int column = min(max(x + dx, 0), width - 1), row = min(max(y + dy, 0), height - 1);
            uchar4 pixel = from[row * width + column];
            sum[0] += pixel.x, sum[1] += pixel.y, sum[2] += pixel.z, sum[3] += pixel.w;
        }
    unsigned count = (2 * radius + 1) * (2 * radius + 1);
    to[y * width + x] = make_uchar4(sum[0] / count, sum[1] / count, sum[2] / count, sum[3] / count);
}
