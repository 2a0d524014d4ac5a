/* A program that sums on two devices with NCCL, whose functions the software driver has, too. */

#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long address_t;

unsigned cuInit(unsigned flags);
unsigned cuDevicePrimaryCtxRetain(void **context, int device);
unsigned cuCtxSetCurrent(void *context);
unsigned cuMemAlloc_v2(address_t *address, size_t size);
unsigned cuMemcpyHtoD_v2(address_t to, const void *from, size_t size);
unsigned cuMemcpyDtoH_v2(void *to, address_t from, size_t size);
unsigned cuStreamCreate(void **stream, unsigned flags);
unsigned cuStreamSynchronize(void *stream);

int ncclGetVersion(int *version);
int ncclCommInitAll(void **communicators, int count, const int *devices);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, void *communicator, void *stream);
int ncclCommDestroy(void *communicator);
const char *ncclGetErrorString(int code);

enum { COUNT = 5, FLOAT = 7, SUM = 0 };

static void check(unsigned code, const char *what) {
    if (code != 0) {
        printf("%s: code %u\n", what, code);
        exit(1);
    }
}

int main(void) {
    void *contexts[2], *streams[2], *communicators[2];
    address_t buffers[2];
    int version;

    check(ncclGetVersion(&version), "ncclGetVersion");
    printf("version %d, %s\n", version, ncclGetErrorString(4));
    check(cuInit(0), "cuInit");
    for (int rank = 0; rank < 2; rank++) {
        float values[COUNT];
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)(10 * rank + i);
        check(cuDevicePrimaryCtxRetain(&contexts[rank], rank), "cuDevicePrimaryCtxRetain");
        check(cuCtxSetCurrent(contexts[rank]), "cuCtxSetCurrent");
        check(cuStreamCreate(&streams[rank], 1), "cuStreamCreate");
        check(cuMemAlloc_v2(&buffers[rank], sizeof values), "cuMemAlloc");
        check(cuMemcpyHtoD_v2(buffers[rank], values, sizeof values), "cuMemcpyHtoD");
    }
    check(ncclCommInitAll(communicators, 2, NULL), "ncclCommInitAll");
    check(ncclGroupStart(), "ncclGroupStart");
    for (int rank = 0; rank < 2; rank++) {
        void *buffer = (void *)buffers[rank];
        check(ncclAllReduce(buffer, buffer, COUNT, FLOAT, SUM, communicators[rank], streams[rank]), "ncclAllReduce");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
    for (int rank = 0; rank < 2; rank++) {
        float sums[COUNT];
        check(cuStreamSynchronize(streams[rank]), "cuStreamSynchronize");
        check(cuMemcpyDtoH_v2(sums, buffers[rank], sizeof sums), "cuMemcpyDtoH");
        for (int i = 0; i < COUNT; i++)
            printf("%g%s", sums[i], i + 1 < COUNT ? " " : "\n");
        check(ncclCommDestroy(communicators[rank]), "ncclCommDestroy");
    }
    return 0;
}
