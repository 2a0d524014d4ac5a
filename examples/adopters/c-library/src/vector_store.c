#include "vector_store.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, FIRST_CAPACITY = 8 };

/* A vector of pinned memory, and the event after its last copy. */
typedef struct {
    float *memory;
    CUevent copied;
} slot;

struct vector_store {
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr vectors;
    slot slots[SLOTS];
    size_t bytes, capacity, length;
};

/* The first error of a sequence of calls, which ends there. */
#define TRY(call)                          \
    do {                                   \
        CUresult code_ = (call);           \
        if (code_ != CUDA_SUCCESS)         \
            return code_;                  \
    } while (0)

/* Creates the objects of a store whose context is current. The caller destroys them after an error. */
static CUresult create(vector_store *store) {
    TRY(cuStreamCreate(&store->stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SLOTS; i++) {
        TRY(cuMemHostAlloc((void **)&store->slots[i].memory, store->bytes, 0));
        TRY(cuEventCreate(&store->slots[i].copied, CU_EVENT_DISABLE_TIMING));
    }
    TRY(cuMemAlloc_v2(&store->vectors, store->capacity * store->bytes));
    return CUDA_SUCCESS;
}

/* Destroys the objects that exist. An error of these calls is one of earlier work. */
static void destroy(vector_store *store) {
    if (store->stream != NULL) {
        cuStreamSynchronize(store->stream);
        cuStreamDestroy_v2(store->stream);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (store->slots[i].copied != NULL)
            cuEventDestroy_v2(store->slots[i].copied);
        if (store->slots[i].memory != NULL)
            cuMemFreeHost(store->slots[i].memory);
    }
    if (store->vectors != 0)
        cuMemFree_v2(store->vectors);
}

CUresult vector_store_open(vector_store **result, int ordinal, size_t dimension) {
    CUresult code;
    vector_store *store;
    if (dimension == 0 || dimension > ((size_t)1 << 40) / sizeof(float))
        return CUDA_ERROR_INVALID_VALUE;
    store = calloc(1, sizeof *store);
    if (store == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    store->bytes = dimension * sizeof(float);
    store->capacity = FIRST_CAPACITY;
    code = cuInit(0);
    if (code == CUDA_SUCCESS)
        code = cuDeviceGet(&store->device, ordinal);
    if (code == CUDA_SUCCESS)
        code = cuDevicePrimaryCtxRetain(&store->context, store->device);
    if (code != CUDA_SUCCESS) {
        free(store);
        return code;
    }
    code = cuCtxPushCurrent_v2(store->context);
    if (code == CUDA_SUCCESS) {
        code = create(store);
        if (code != CUDA_SUCCESS)
            destroy(store);
        cuCtxPopCurrent_v2(NULL);
    }
    if (code != CUDA_SUCCESS) {
        cuDevicePrimaryCtxRelease_v2(store->device);
        free(store);
        return code;
    }
    *result = store;
    return CUDA_SUCCESS;
}

void vector_store_close(vector_store *store) {
    int is_current;
    if (store == NULL)
        return;
    /* These calls name what they destroy, so they do not depend on the current context. */
    is_current = cuCtxPushCurrent_v2(store->context) == CUDA_SUCCESS;
    destroy(store);
    if (is_current)
        cuCtxPopCurrent_v2(NULL);
    cuDevicePrimaryCtxRelease_v2(store->device);
    free(store);
}

size_t vector_store_length(const vector_store *store) {
    return store->length;
}

/* Moves the vectors to memory of twice the size. */
static CUresult grow(vector_store *store) {
    CUdeviceptr larger;
    CUresult code;
    TRY(cuMemAlloc_v2(&larger, 2 * store->capacity * store->bytes));
    code = cuMemcpyDtoDAsync_v2(larger, store->vectors, store->length * store->bytes, store->stream);
    /* Copies to the old memory, and from it, must be complete before it is freed. */
    if (code == CUDA_SUCCESS)
        code = cuStreamSynchronize(store->stream);
    if (code != CUDA_SUCCESS) {
        cuStreamSynchronize(store->stream);
        cuMemFree_v2(larger);
        return code;
    }
    cuMemFree_v2(store->vectors);
    store->vectors = larger;
    store->capacity *= 2;
    return CUDA_SUCCESS;
}

static CUresult append(vector_store *store, const float *vector) {
    slot *next = &store->slots[store->length % SLOTS];
    CUresult code;
    if (store->length == store->capacity)
        TRY(grow(store));
    /* An event that was never recorded is complete. */
    TRY(cuEventSynchronize(next->copied));
    memcpy(next->memory, vector, store->bytes);
    TRY(cuMemcpyHtoDAsync_v2(store->vectors + store->length * store->bytes, next->memory, store->bytes,
                             store->stream));
    code = cuEventRecord(next->copied, store->stream);
    if (code != CUDA_SUCCESS) {
        /* The event does not tell when the copy is complete, so the slot must not be used before. */
        cuStreamSynchronize(store->stream);
        return code;
    }
    store->length++;
    return CUDA_SUCCESS;
}

CUresult vector_store_append(vector_store *store, const float *vector) {
    CUresult code;
    TRY(cuCtxPushCurrent_v2(store->context));
    code = append(store, vector);
    cuCtxPopCurrent_v2(NULL);
    return code;
}

static CUresult read(vector_store *store, size_t index, float *vector) {
    TRY(cuMemcpyDtoHAsync_v2(vector, store->vectors + index * store->bytes, store->bytes, store->stream));
    return cuStreamSynchronize(store->stream);
}

CUresult vector_store_read(vector_store *store, size_t index, float *vector) {
    CUresult code;
    if (index >= store->length)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(cuCtxPushCurrent_v2(store->context));
    code = read(store, index, vector);
    cuCtxPopCurrent_v2(NULL);
    return code;
}
