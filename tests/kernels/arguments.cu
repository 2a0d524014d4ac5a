// Many parameters, and parameters that are passed by value. arguments.ptx is the same code, written by
// hand for the oldest target in use.

extern "C" __global__ void sum_of_nineteen(unsigned int *out, unsigned int a1, unsigned int a2,
    unsigned int a3, unsigned int a4, unsigned int a5, unsigned int a6, unsigned int a7, unsigned
    int a8, unsigned int a9, unsigned int a10, unsigned int a11, unsigned int a12, unsigned int
    a13, unsigned int a14, unsigned int a15, unsigned int a16, unsigned int a17, unsigned int a18,
    unsigned int a19) {
    out[0] = a1 + 2 * a2 + 3 * a3 + 4 * a4 + 5 * a5 + 6 * a6 + 7 * a7 + 8 * a8 + 9 * a9 + 10 * a10
        + 11 * a11 + 12 * a12 + 13 * a13 + 14 * a14 + 15 * a15 + 16 * a16 + 17 * a17 + 18 * a18 +
        19 * a19;
}

// A struct with three bytes of padding.
struct Options {
    bool transposed;
    float scale;
};

// 128 bytes, like CUtensorMap.
struct alignas(64) Map {
    unsigned long long words[16];
};

struct Wide {
    unsigned long long words[3];
};

extern "C" __global__ void by_value(unsigned int *out, bool flag, Options options,
                                    const __grid_constant__ Map map, Wide wide) {
    out[0] = flag;
    out[1] = options.transposed;
    out[2] = __float_as_uint(options.scale);
    out[3] = (unsigned int)map.words[0];
    out[4] = (unsigned int)map.words[15];
    out[5] = (unsigned int)wide.words[0];
    out[6] = (unsigned int)wide.words[2];
}
