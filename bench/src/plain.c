/* The operations as a C program implements them: functions are resolved with dlsym and called through
 * pointers, and every result is checked. The prototypes are written for this file, so NVIDIA's header is
 * not needed. */

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *handle;
typedef uint64_t address;

struct attribute {
    int id;
    char pad[4];
    union {
        int number;
        char room[64];
    } value;
};

struct launch {
    unsigned grid[3], block[3], shared;
    handle stream;
    struct attribute *attributes;
    unsigned count;
};

struct resource {
    unsigned kind;
    char room[92];
    unsigned sms;
    char more[44];
};

struct kernel_node {
    handle function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
    handle kernel, context;
};

struct instantiation {
    uint64_t flags;
    handle upload, failed;
    int result;
};

struct update {
    int result;
    handle node, from;
};

struct copy_attributes {
    unsigned order;
    struct { int type, id; } source, target;
    unsigned flags;
};

struct tensor_map {
    _Alignas(128) uint64_t words[16];
};
struct physical {
    unsigned type, handle_types, location;
    int device;
    void *of_windows;
    unsigned char flags[8];
};

struct access {
    unsigned location;
    int device;
    unsigned flags;
};
_Static_assert(sizeof(struct physical) == 32, "must match the driver's layout");
_Static_assert(sizeof(struct access) == 12, "must match the driver's layout");
_Static_assert(sizeof(struct attribute) == 72, "must match the driver's layout");
_Static_assert(sizeof(struct launch) == 56, "must match the driver's layout");
_Static_assert(sizeof(struct resource) == 144, "must match the driver's layout");
_Static_assert(sizeof(struct kernel_node) == 72, "must match the driver's layout");
_Static_assert(sizeof(struct instantiation) == 32, "must match the driver's layout");
_Static_assert(sizeof(struct update) == 24, "must match the driver's layout");
_Static_assert(sizeof(struct copy_attributes) == 24, "must match the driver's layout");
_Static_assert(sizeof(struct tensor_map) == 128, "must match the driver's layout");

#define FUNCTIONS(X) \
    X(cuInit, (unsigned)) \
    X(cuDevicePrimaryCtxRetain, (handle *, int)) \
    X(cuCtxGetCurrent, (handle *)) \
    X(cuCtxSetCurrent, (handle)) \
    X(cuCtxPushCurrent_v2, (handle)) \
    X(cuCtxPopCurrent_v2, (handle *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuStreamSynchronize, (handle)) \
    X(cuStreamCreateWithPriority, (handle *, unsigned, int)) \
    X(cuStreamDestroy_v2, (handle)) \
    X(cuEventCreate, (handle *, unsigned)) \
    X(cuEventDestroy_v2, (handle)) \
    X(cuEventRecord, (handle, handle)) \
    X(cuStreamWaitEvent, (handle, handle, unsigned)) \
    X(cuEventQuery, (handle)) \
    X(cuMemAllocAsync, (address *, size_t, handle)) \
    X(cuMemFreeAsync, (address, handle)) \
    X(cuThreadExchangeStreamCaptureMode, (int *)) \
    X(cuMemHostAlloc, (void **, size_t, unsigned)) \
    X(cuMemcpyHtoDAsync_v2, (address, const void *, size_t, handle)) \
    X(cuMemcpyDtoHAsync_v2, (void *, address, size_t, handle)) \
    X(cuMemcpyDtoDAsync_v2, (address, address, size_t, handle)) \
    X(cuMemsetD8Async, (address, unsigned char, size_t, handle)) \
    X(cuMemcpyBatchAsync_v2, (address *, address *, size_t *, size_t, struct copy_attributes *, size_t *, \
                              size_t, handle)) \
    X(cuTensorMapEncodeTiled, (struct tensor_map *, int, unsigned, void *, const uint64_t *, \
                               const uint64_t *, const unsigned *, const unsigned *, int, int, int, int)) \
    X(cuTensorMapReplaceAddress, (struct tensor_map *, void *)) \
    X(cuMemAddressReserve, (address *, size_t, size_t, address, unsigned long long)) \
    X(cuMemCreate, (address *, size_t, const struct physical *, unsigned long long)) \
    X(cuMemMap, (address, size_t, size_t, address, unsigned long long)) \
    X(cuMemSetAccess, (address, size_t, const struct access *, size_t)) \
    X(cuStreamQuery, (handle)) \
    X(cuMemUnmap, (address, size_t)) \
    X(cuMemRelease, (address)) \
    X(cuModuleLoadData, (handle *, const void *)) \
    X(cuModuleGetFunction, (handle *, handle, const char *)) \
    X(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                       handle, void **, void **)) \
    X(cuLaunchKernelEx, (const struct launch *, handle, void **, void **)) \
    X(cuGraphCreate, (handle *, unsigned)) \
    X(cuGraphDestroy, (handle)) \
    X(cuGraphAddKernelNode_v2, (handle *, handle, const handle *, size_t, const struct kernel_node *)) \
    X(cuGraphInstantiateWithParams, (handle *, handle, struct instantiation *)) \
    X(cuGraphLaunch, (handle, handle)) \
    X(cuGraphExecKernelNodeSetParams_v2, (handle, handle, const struct kernel_node *)) \
    X(cuGraphExecUpdate_v2, (handle, handle, struct update *)) \
    X(cuGraphExecDestroy, (handle)) \
    X(cuDeviceGetDevResource, (int, struct resource *, int)) \
    X(cuDevSmResourceSplitByCount, (struct resource *, unsigned *, const struct resource *, \
                                    struct resource *, unsigned, unsigned)) \
    X(cuDevResourceGenerateDesc, (handle *, struct resource *, unsigned)) \
    X(cuGreenCtxCreate, (handle *, handle, int, unsigned)) \
    X(cuGreenCtxDestroy, (handle)) \
    X(cuGreenCtxStreamCreate, (handle *, handle, unsigned, int))

#define POINTER(name, parameters) int (*name) parameters;
static struct { FUNCTIONS(POINTER) } driver;

enum { STREAMS = 4, KIB4 = 4096, MIB = 1 << 20, GRANULE = 2 << 20, HOSTS = 64, RELAXED = 2 };

static handle context, streams[STREAMS], event, waited, none, three, sixteen, green;
static address buffers[STREAMS];
static void *hosts[HOSTS];
static struct resource group;

static __attribute__((cold, noreturn)) void fail(int code, const char *call) {
    fprintf(stderr, "plain C: %s returned %d\n", call, code);
    exit(3);
}

#define CALL(name, ...) \
    do { \
        int code_ = driver.name(__VA_ARGS__); \
        if (__builtin_expect(code_ != 0, 0)) \
            fail(code_, #name); \
    } while (0)

#define FIND(name, parameters) *(void **)&driver.name = dlsym(library, #name);

void plain_first(void *library, const char *ptx) {
    FUNCTIONS(FIND)
    handle module;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuStreamCreateWithPriority, &streams[0], 1, 0);
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &none, module, "none");
    CALL(cuLaunchKernel, none, 1, 1, 1, 32, 1, 1, 0, streams[0], NULL, NULL);
    CALL(cuCtxSynchronize);
}

/* Returns whether the driver supports green contexts, which older drivers do not. */
int plain_setup(void *library, const char *ptx) {
    FUNCTIONS(FIND)
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    for (int i = 0; i < STREAMS; ++i) {
        CALL(cuStreamCreateWithPriority, &streams[i], 1, 0);
        CALL(cuMemAllocAsync, &buffers[i], KIB4, streams[i]);
    }
    for (int i = 0; i < HOSTS; ++i)
        CALL(cuMemHostAlloc, &hosts[i], KIB4, 1);
    CALL(cuEventCreate, &event, 2);
    CALL(cuEventCreate, &waited, 2);
    CALL(cuEventRecord, waited, streams[0]);
    handle module;
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &none, module, "none");
    CALL(cuModuleGetFunction, &three, module, "three");
    CALL(cuModuleGetFunction, &sixteen, module, "sixteen");
    CALL(cuCtxSynchronize);
    if (!driver.cuGreenCtxStreamCreate)
        return 0;
    struct resource whole, groups[1], rest;
    unsigned count = 1;
    CALL(cuDeviceGetDevResource, 0, &whole, 1);
    CALL(cuDevSmResourceSplitByCount, groups, &count, &whole, &rest, 0, 16);
    group = groups[0];
    handle description;
    CALL(cuDevResourceGenerateDesc, &description, &group, 1);
    CALL(cuGreenCtxCreate, &green, description, 0, 1);
    return 1;
}

/* Passes the streams and the events to cuda-sys, so that it differs only in its calls: events and streams
 * are not all equally fast. */
void plain_lend(handle to_streams[STREAMS], handle to_events[2]) {
    for (int i = 0; i < STREAMS; ++i)
        to_streams[i] = streams[i];
    to_events[0] = event;
    to_events[1] = waited;
}

/* Called for all layers between batches. */
void plain_wait(void) { CALL(cuCtxSynchronize); }
void plain_make_current(int yes) { CALL(cuCtxSetCurrent, yes ? context : NULL); }

#define WORK(name) void plain_##name(size_t n)
#define TIMES for (size_t i = 0; i < n; ++i)

WORK(current) {
    TIMES {
        handle now;
        CALL(cuCtxGetCurrent, &now);
        if (now != context)
            CALL(cuCtxSetCurrent, context);
    }
}

/* Pushes the context, checks that it is current, and restores the previous one. */
WORK(guard) {
    TIMES {
        handle now;
        CALL(cuCtxGetCurrent, &now);
        if (now == context)
            continue;
        CALL(cuCtxPushCurrent_v2, context);
        CALL(cuCtxGetCurrent, &now);
        if (now != context)
            fail(-1, "the check of the current context");
        CALL(cuCtxPopCurrent_v2, &now);
    }
}

WORK(event_record) { TIMES CALL(cuEventRecord, event, streams[0]); }
WORK(event_wait) { TIMES CALL(cuStreamWaitEvent, streams[0], waited, 0); }

WORK(event_query) {
    TIMES {
        int code = driver.cuEventQuery(event);
        if (__builtin_expect(code != 0 && code != 600, 0))
            fail(code, "cuEventQuery");
    }
}

WORK(event_create) {
    TIMES {
        handle made;
        CALL(cuEventCreate, &made, 2);
        CALL(cuEventDestroy_v2, made);
    }
}

/* Creates an event with the guard of `plain_guard`. */
WORK(event_create_bare) {
    TIMES {
        handle now, made;
        CALL(cuCtxGetCurrent, &now);
        if (now == context)
            continue;
        CALL(cuCtxPushCurrent_v2, context);
        CALL(cuEventCreate, &made, 2);
        CALL(cuCtxGetCurrent, &now);
        if (now != context)
            fail(-1, "the check of the current context");
        CALL(cuCtxPopCurrent_v2, &now);
        CALL(cuEventDestroy_v2, made);
    }
}

WORK(stream_create) {
    TIMES {
        handle made;
        CALL(cuStreamCreateWithPriority, &made, 1, 0);
        CALL(cuStreamDestroy_v2, made);
    }
}

WORK(launch_none) {
    TIMES CALL(cuLaunchKernel, none, 1, 1, 1, 32, 1, 1, 0, streams[0], NULL, NULL);
}

/* Hides a pointer from the optimizer, so that the argument pointers are stored for each launch, as in a
 * program whose launches are not all in one loop. */
#define UNKNOWN(place) __asm__ volatile("" : "+r"(place))

WORK(launch_three) {
    TIMES {
        struct { address a, b; unsigned c; } room, *at = &room;
        UNKNOWN(at);
        at->a = buffers[0], at->b = buffers[1], at->c = 8;
        void *arguments[] = {&at->a, &at->b, &at->c};
        CALL(cuLaunchKernel, three, 1, 1, 1, 32, 1, 1, 0, streams[0], arguments, NULL);
    }
}

WORK(launch_sixteen) {
    TIMES {
        struct { address a[8]; unsigned n[8]; } room, *at = &room;
        UNKNOWN(at);
        address b = buffers[0];
        at->a[0] = b, at->a[1] = b, at->a[2] = b, at->a[3] = b;
        at->a[4] = b, at->a[5] = b, at->a[6] = b, at->a[7] = b;
        at->n[0] = 1, at->n[1] = 2, at->n[2] = 3, at->n[3] = 4;
        at->n[4] = 5, at->n[5] = 6, at->n[6] = 7, at->n[7] = 8;
        void *arguments[] = {
            &at->a[0], &at->a[1], &at->a[2], &at->a[3], &at->a[4], &at->a[5], &at->a[6], &at->a[7],
            &at->n[0], &at->n[1], &at->n[2], &at->n[3], &at->n[4], &at->n[5], &at->n[6], &at->n[7],
        };
        CALL(cuLaunchKernel, sixteen, 1, 1, 1, 32, 1, 1, 0, streams[0], arguments, NULL);
    }
}

WORK(launch_attributes) {
    TIMES {
        struct attribute attributes[2];
        attributes[0].id = 6;
        attributes[0].value.number = 1;
        attributes[1].id = 8;
        attributes[1].value.number = 0;
        struct launch launch = {{1, 1, 1}, {32, 1, 1}, 0, streams[0], attributes, 2};
        CALL(cuLaunchKernelEx, &launch, none, NULL, NULL);
    }
}

WORK(allocate) {
    TIMES {
        address made;
        CALL(cuMemAllocAsync, &made, MIB, streams[0]);
        CALL(cuMemFreeAsync, made, streams[0]);
    }
}

WORK(allocate_beside_captures) {
    TIMES {
        address made;
        int mode = RELAXED;
        CALL(cuMemAllocAsync, &made, MIB, streams[0]);
        CALL(cuThreadExchangeStreamCaptureMode, &mode);
        CALL(cuMemFreeAsync, made, streams[0]);
        CALL(cuThreadExchangeStreamCaptureMode, &mode);
    }
}

WORK(to_device) {
    TIMES CALL(cuMemcpyHtoDAsync_v2, buffers[0], hosts[i % HOSTS], KIB4, streams[0]);
}

WORK(from_device) {
    TIMES CALL(cuMemcpyDtoHAsync_v2, hosts[i % HOSTS], buffers[0], KIB4, streams[0]);
}

WORK(to_device_several) {
    TIMES CALL(cuMemcpyHtoDAsync_v2, buffers[i % STREAMS], hosts[i % HOSTS], KIB4, streams[i % STREAMS]);
}

WORK(from_device_several) {
    TIMES CALL(cuMemcpyDtoHAsync_v2, hosts[i % HOSTS], buffers[i % STREAMS], KIB4, streams[i % STREAMS]);
}

WORK(on_device) { TIMES CALL(cuMemcpyDtoDAsync_v2, buffers[0], buffers[1], KIB4, streams[0]); }

WORK(memset) { TIMES CALL(cuMemsetD8Async, buffers[0], 0, KIB4, streams[0]); }

WORK(grow) {
    static const struct physical pinned = { 1, 0, 1, 0, NULL, { 0 } };
    static const struct access both = { 1, 0, 3 };
    static address space;
    if (space == 0)
        CALL(cuMemAddressReserve, &space, 4 * GRANULE, 0, 0, 0);
    TIMES {
        address memory;
        CALL(cuMemCreate, &memory, GRANULE, &pinned, 0);
        CALL(cuMemMap, space, GRANULE, 0, memory, 0);
        CALL(cuMemSetAccess, space, GRANULE, &both, 1);
        CALL(cuStreamQuery, streams[0]);
        CALL(cuMemUnmap, space, GRANULE);
        CALL(cuMemRelease, memory);
    }
}

WORK(green_split) {
    TIMES {
        struct resource whole, groups[2], rest;
        unsigned count = 2;
        CALL(cuDeviceGetDevResource, 0, &whole, 1);
        CALL(cuDevSmResourceSplitByCount, groups, &count, &whole, &rest, 0, 16);
    }
}

WORK(green_create) {
    TIMES {
        handle description, made;
        CALL(cuDevResourceGenerateDesc, &description, &group, 1);
        CALL(cuGreenCtxCreate, &made, description, 0, 1);
        CALL(cuGreenCtxDestroy, made);
    }
}

WORK(green_way) {
    TIMES {
        struct resource whole, groups[2], rest;
        unsigned count = 2;
        handle description, made, stream;
        CALL(cuDeviceGetDevResource, 0, &whole, 1);
        CALL(cuDevSmResourceSplitByCount, groups, &count, &whole, &rest, 0, 16);
        CALL(cuDevResourceGenerateDesc, &description, groups, 1);
        CALL(cuGreenCtxCreate, &made, description, 0, 1);
        CALL(cuGreenCtxStreamCreate, &stream, made, 1, 0);
        CALL(cuStreamDestroy_v2, stream);
        CALL(cuGreenCtxDestroy, made);
    }
}

WORK(green_stream) {
    TIMES {
        handle made;
        CALL(cuGreenCtxStreamCreate, &made, green, 1, 0);
        CALL(cuStreamDestroy_v2, made);
    }
}

#include "transfers/plain.c"
#include "graphs/plain.c"
