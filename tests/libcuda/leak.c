/* A program that leaks memory of two functions. With an argument, it frees memory twice. */

#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long address_t;

unsigned cuInit(unsigned flags);
unsigned cuDevicePrimaryCtxRetain(void **context, int device);
unsigned cuCtxSetCurrent(void *context);
unsigned cuMemAlloc_v2(address_t *address, size_t size);
unsigned cuMemFree_v2(address_t address);
unsigned cuMemAllocHost_v2(void **memory, size_t size);

static void check(unsigned code) {
    if (code != 0) {
        printf("code %u\n", code);
        exit(1);
    }
}

__attribute__((noinline)) address_t upload(size_t size) {
    address_t memory;
    check(cuMemAlloc_v2(&memory, size));
    return memory;
}

__attribute__((noinline)) unsigned release(address_t memory) {
    unsigned code = cuMemFree_v2(memory);
    return code == 1 ? 0 : code;
}

int main(int argc, char *argv[]) {
    void *context, *pinned;
    address_t memory;

    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    upload(1024);
    memory = upload(4096);
    check(cuMemFree_v2(memory));
    if (argc > 1 && argv[1] != NULL)
        check(release(memory));
    upload(2048);
    check(cuMemAllocHost_v2(&pinned, 64));
    return 0;
}
