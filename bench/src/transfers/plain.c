/* The works on batches of copies and on tensor maps. `plain.c` includes this file, which uses its table of
 * functions and its objects. */

enum { PARTS = 16, PART = KIB4 / PARTS };

static char slices[KIB4];
static struct tensor_map replaced;

static void encode(struct tensor_map *map) {
    uint64_t dims[2] = {32, 32}, strides[1] = {128};
    unsigned box[2] = {8, 8}, steps[2] = {1, 1};
    CALL(cuTensorMapEncodeTiled, map, 7, 2, (void *)(uintptr_t)buffers[0], dims, strides, box, steps, 0, 0,
         0, 0);
}

/* Returns whether the driver has the functions that the works call. */
int plain_transfers_setup(void) {
    if (!driver.cuMemcpyBatchAsync_v2 || !driver.cuTensorMapEncodeTiled)
        return 0;
    encode(&replaced);
    return 1;
}

static inline void copy_parts(address source, unsigned order) {
    address to[PARTS], from[PARTS];
    size_t sizes[PARTS], first = 0;
    for (size_t part = 0; part < PARTS; ++part) {
        to[part] = buffers[0] + part * PART;
        from[part] = source + part * PART;
        sizes[part] = PART;
    }
    struct copy_attributes attributes = {order, {0, 0}, {0, 0}, 0};
    CALL(cuMemcpyBatchAsync_v2, to, from, sizes, PARTS, &attributes, &first, 1, streams[0]);
}

WORK(batch_on_device) { TIMES copy_parts(buffers[1], 1); }

WORK(batch_of_slices) { TIMES copy_parts((uintptr_t)slices, 2); }

WORK(tensor_map) {
    TIMES {
        struct tensor_map map;
        encode(&map);
    }
}

WORK(tensor_map_replace) {
    TIMES CALL(cuTensorMapReplaceAddress, &replaced, (void *)(uintptr_t)buffers[i % 2]);
}
