/* A driver that does nothing: every function returns success at once, and writes only the outputs
 * that its callers need. It has one context, which may be current. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef void *handle;

static char context, other, stream, event, module, green, description, graph, node, executable;
static handle current;

#define SUCCEEDS(name) EXPORT int name(void) { return 0; }
SUCCEEDS(cuInit)
SUCCEEDS(cuDevicePrimaryCtxRelease_v2)
SUCCEEDS(cuCtxSynchronize)
SUCCEEDS(cuCtxSynchronize_v2)
SUCCEEDS(cuStreamDestroy_v2)
SUCCEEDS(cuStreamSynchronize)
SUCCEEDS(cuStreamWaitEvent)
SUCCEEDS(cuStreamQuery)
SUCCEEDS(cuEventDestroy_v2)
SUCCEEDS(cuEventRecord)
SUCCEEDS(cuEventQuery)
SUCCEEDS(cuEventSynchronize)
SUCCEEDS(cuMemFree_v2)
SUCCEEDS(cuMemFreeAsync)
SUCCEEDS(cuMemMap)
SUCCEEDS(cuMemSetAccess)
SUCCEEDS(cuMemUnmap)
SUCCEEDS(cuMemRelease)
SUCCEEDS(cuMemAddressFree)
SUCCEEDS(cuMemcpyHtoDAsync_v2)
SUCCEEDS(cuMemcpyDtoHAsync_v2)
SUCCEEDS(cuMemcpyDtoDAsync_v2)
SUCCEEDS(cuMemcpyBatchAsync_v2)
SUCCEEDS(cuTensorMapEncodeTiled)
SUCCEEDS(cuTensorMapReplaceAddress)
SUCCEEDS(cuMemsetD8Async)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuStreamBeginCapture_v2)
SUCCEEDS(cuGraphDestroy)
SUCCEEDS(cuGraphLaunch)
SUCCEEDS(cuGraphExecKernelNodeSetParams_v2)
SUCCEEDS(cuGraphExecUpdate_v2)
SUCCEEDS(cuGraphExecDestroy)
SUCCEEDS(cuGreenCtxDestroy)
SUCCEEDS(cuThreadExchangeStreamCaptureMode)

EXPORT int cuDriverGetVersion(int *version) { *version = 13050; return 0; }
EXPORT int cuDeviceGetCount(int *count) { *count = 1; return 0; }
EXPORT int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)attribute;
    (void)device;
    *value = 1;
    return 0;
}

#define GIVES(name, what, ...) EXPORT int name(handle *out, ##__VA_ARGS__) { *out = what; return 0; }
GIVES(cuDevicePrimaryCtxRetain, &context)
GIVES(cuCtxGetCurrent, current)
GIVES(cuStreamCreateWithPriority, &stream)
GIVES(cuStreamCreate, &stream)
GIVES(cuGreenCtxStreamCreate, &stream)
GIVES(cuEventCreate, &event)
GIVES(cuModuleLoadData, &module)
GIVES(cuModuleLoadDataEx, &module)
GIVES(cuMemAlloc_v2, (handle)0x7f0000000000)
GIVES(cuMemAllocAsync, (handle)0x7f0000000000)
GIVES(cuMemAddressReserve, (handle)0x7e0000000000)
GIVES(cuMemCreate, (handle)0x1000)
GIVES(cuMemGetAllocationGranularity, (handle)0x200000)
GIVES(cuGraphCreate, &graph)
GIVES(cuGraphAddKernelNode_v2, &node)
GIVES(cuGraphInstantiateWithParams, &executable)
GIVES(cuGraphInstantiateWithFlags, &executable)
GIVES(cuDevResourceGenerateDesc, &description)
GIVES(cuGreenCtxCreate, &green)

EXPORT int cuCtxCreate_v4(handle *out, void *params, unsigned flags, int device) {
    (void)params;
    (void)flags;
    (void)device;
    *out = current = &other;
    return 0;
}
EXPORT int cuCtxGetId(handle which, uint64_t *id) { *id = which == &other ? 2 : 1; return 0; }
EXPORT int cuCtxGetDevice_v2(int *device, handle which) { (void)which; *device = 0; return 0; }
EXPORT int cuCtxGetDevice(int *device) { *device = 0; return 0; }
EXPORT int cuCtxSetCurrent(handle which) { current = which; return 0; }
EXPORT int cuCtxPushCurrent_v2(handle which) { current = which; return 0; }
EXPORT int cuCtxPopCurrent_v2(handle *which) { *which = current; current = NULL; return 0; }

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)1 << 37; return 0; }
EXPORT int cuStreamEndCapture(handle which, handle *out) { (void)which; *out = &graph; return 0; }
EXPORT int cuStreamIsCapturing(handle which, int *status) { (void)which; *status = 0; return 0; }

EXPORT int cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    (void)flags;
    *start = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *start ? 0 : 2;
}
EXPORT int cuMemFreeHost(void *start) { free(start); return 0; }

/* The kernels are named none, three and sixteen. A handle is the number of parameters. */
EXPORT int cuModuleGetFunction(handle *function, handle which, const char *name) {
    (void)which;
    *function = (handle)(uintptr_t)(name[0] == 't' ? 3 : name[0] == 's' ? 16 : 0x100);
    return 0;
}
EXPORT int cuFuncGetParamCount(handle function, size_t *count) {
    *count = (uintptr_t)function & 0xff;
    return 0;
}
EXPORT int cuFuncGetParamInfo(handle function, size_t index, size_t *offset, size_t *size) {
    *offset = 0;
    *size = index < ((uintptr_t)function == 3 ? 2 : 8) ? 8 : 4;
    return 0;
}

/* A resource has 144 bytes: its type at the start, and the number of SMs at byte 96. */
static void sms(void *resource, unsigned count) {
    ((unsigned *)resource)[0] = 1;
    ((unsigned *)resource)[24] = count;
}
EXPORT int cuDeviceGetDevResource(int device, void *resource, int kind) {
    (void)device;
    (void)kind;
    sms(resource, 132);
    return 0;
}
EXPORT int cuGreenCtxGetDevResource(handle which, void *resource, int kind) {
    (void)which;
    (void)kind;
    sms(resource, 16);
    return 0;
}
EXPORT int cuDevSmResourceSplitByCount(char *groups, unsigned *count, const void *whole, void *rest,
                                       unsigned flags, unsigned least) {
    (void)whole;
    (void)flags;
    (void)least;
    if (groups == NULL) {
        *count = 8;
        return 0;
    }
    for (unsigned group = 0; group < *count; ++group)
        sms(groups + 144 * group, 16);
    if (rest)
        sms(rest, 4);
    return 0;
}
