/* A program with a missing event: a copy on one stream reads what a fill on another one writes. */

#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long address_t;

unsigned cuInit(unsigned flags);
unsigned cuDevicePrimaryCtxRetain(void **context, int device);
unsigned cuCtxSetCurrent(void *context);
unsigned cuStreamCreate(void **stream, unsigned flags);
unsigned cuStreamSynchronize(void *stream);
unsigned cuMemAlloc_v2(address_t *address, size_t size);
unsigned cuMemsetD8Async(address_t at, unsigned char value, size_t size, void *stream);
unsigned cuMemcpyDtoDAsync_v2(address_t to, address_t from, size_t size, void *stream);

static void check(unsigned code) {
    if (code != 0) {
        printf("code %u\n", code);
        exit(1);
    }
}

int main(void) {
    enum { SIZE = 64, NON_BLOCKING = 1 };
    void *context, *first, *second;
    address_t data, copy;

    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    check(cuStreamCreate(&first, NON_BLOCKING));
    check(cuStreamCreate(&second, NON_BLOCKING));
    check(cuMemAlloc_v2(&data, SIZE));
    check(cuMemAlloc_v2(&copy, SIZE));

    check(cuMemsetD8Async(data, 1, SIZE, first));
    check(cuMemcpyDtoDAsync_v2(copy, data, SIZE, second));

    check(cuStreamSynchronize(second));
    check(cuStreamSynchronize(first));
    return 0;
}
