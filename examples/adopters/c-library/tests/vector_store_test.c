/* Tests of the vector store. They run on a GPU, and on the software driver, where they also make each call
 * of the driver fail and check that nothing is leaked. */

#include "../src/vector_store.h"

#include <stdio.h>
#include <stdlib.h>

/* The functions of the software driver for tests: see cuda_sim.h. They are weak, so they are NULL with
 * another driver. */
#define CUDA_SIM_WEAK __attribute__((weak))
#include "cuda_sim.h"

enum { DIMENSION = 5, VECTORS = 50 };

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);               \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

static void fill(float *vector, size_t index) {
    for (size_t i = 0; i < DIMENSION; i++)
        vector[i] = (float)(100 * index + i);
}

/* Checks the contents of a store, of which each read may be tried twice. */
static void check_vectors(vector_store *store, size_t count) {
    float vector[DIMENSION], expected[DIMENSION];
    CHECK(vector_store_length(store) == count);
    for (size_t index = 0; index < count; index++) {
        CUresult code = vector_store_read(store, index, vector);
        if (code != CUDA_SUCCESS)
            code = vector_store_read(store, index, vector);
        CHECK(code == CUDA_SUCCESS);
        fill(expected, index);
        for (size_t i = 0; i < DIMENSION; i++)
            CHECK(vector[i] == expected[i]);
    }
}

static void vectors_are_read_as_they_were_appended(void) {
    float vector[DIMENSION];
    vector_store *store;
    CHECK(vector_store_open(&store, 0, DIMENSION) == CUDA_SUCCESS);
    /* More than the ring has slots, and more than the first memory holds. */
    for (size_t index = 0; index < VECTORS; index++) {
        fill(vector, index);
        CHECK(vector_store_append(store, vector) == CUDA_SUCCESS);
    }
    check_vectors(store, VECTORS);
    vector_store_close(store);
}

static void invalid_arguments_are_refused(void) {
    float vector[DIMENSION];
    vector_store *store;
    CHECK(vector_store_open(&store, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(vector_store_open(&store, 1000, DIMENSION) != CUDA_SUCCESS);
    CHECK(vector_store_open(&store, 0, DIMENSION) == CUDA_SUCCESS);
    CHECK(vector_store_read(store, 0, vector) == CUDA_ERROR_INVALID_VALUE);
    vector_store_close(store);
    vector_store_close(NULL);
}

/* Uses a store, and tries each step again after an error. Returns the number of errors. */
static int use_with_retries(void) {
    float vector[DIMENSION];
    vector_store *store;
    int errors = 0;
    while (vector_store_open(&store, 0, DIMENSION) != CUDA_SUCCESS)
        CHECK(++errors < 3);
    for (size_t index = 0; index < VECTORS; index++) {
        fill(vector, index);
        while (vector_store_append(store, vector) != CUDA_SUCCESS)
            CHECK(++errors < 3);
        CHECK(vector_store_length(store) == index + 1);
    }
    check_vectors(store, VECTORS);
    vector_store_close(store);
    return errors;
}

/* Makes each call of the functions that can fail return an error, one call in each run. */
static void an_error_of_each_call_leaves_the_store_as_it_was(void) {
    static const char *const functions[] = {
        "cuInit",           "cuDeviceGet",          "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
        "cuStreamCreate",   "cuMemHostAlloc",       "cuEventCreate",            "cuMemAlloc_v2",
        "cuEventRecord",    "cuEventSynchronize",   "cuMemcpyHtoDAsync_v2",     "cuMemcpyDtoDAsync_v2",
        "cuStreamSynchronize", "cuMemcpyDtoHAsync_v2",
    };
    /* The end of a primary context would end leaked objects too, so the test keeps the context. */
    CUcontext context;
    size_t runs = 0, live;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    live = cuSimLiveObjects();
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        for (unsigned long long nth = 1;; nth++) {
            unsigned long long hits;
            CHECK(cuSimInjectFault(functions[i], nth, CUDA_ERROR_OUT_OF_MEMORY) == 0);
            use_with_retries();
            hits = cuSimClearFaults();
            if (cuSimLiveObjects() != live) {
                cuSimPrintLiveObjects();
                printf("call %llu of %s failed, and then objects were leaked\n", nth, functions[i]);
                exit(1);
            }
            if (hits == 0)
                break;
            runs++;
        }
    }
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    CHECK(cuSimLiveObjects() == 0);
    printf("%zu calls failed, one in each run\n", runs);
    CHECK(runs > 100);
}

int main(void) {
    vectors_are_read_as_they_were_appended();
    invalid_arguments_are_refused();
    if (cuSimInjectFault != NULL) {
        CHECK(cuSimInjectFault("cuNothing", 1, CUDA_ERROR_OUT_OF_MEMORY) != 0);
        CHECK(use_with_retries() == 0);
        an_error_of_each_call_leaves_the_store_as_it_was();
        CHECK(cuSimMisuseCount() == 0);
    } else {
        printf("skipped: only the software driver makes calls fail\n");
    }
    printf("all tests passed\n");
    return 0;
}
