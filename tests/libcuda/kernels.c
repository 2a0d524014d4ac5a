/* Registers kernels in C, and launches them. The kernel `scale` and `register_kernels` come from the README of
 * cuda-sim, which the compiler includes before this file. Prints what it finds; the test knows what that has to
 * be. */

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        unsigned code = (call);                                                                              \
        if (code != 0) {                                                                                     \
            printf("%s: %u\n", #call, code);                                                                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static const char *ptx = ".version 6.0\n.target sm_50\n.address_size 64\n"
                         ".visible .global .align 4 .u32 counter = 7;\n"
                         ".visible .entry scale(.param .u64 x, .param .f32 factor, .param .u32 n) { ret; }\n"
                         ".visible .entry look(.param .u64 x, .param .u8 small) { ret; }\n"
                         ".visible .entry stray(.param .u64 x) { ret; }\n"
                         ".visible .entry fails() { ret; }\n";

static CUsimLaunch *seen;

static void *from_another_thread(void *launch) {
    unsigned long long address = 0;
    return (void *)(intptr_t)cuSimVariable(launch, "counter", &address, NULL);
}

static void look(CUsimLaunch *launch, void *user) {
    unsigned long long address = 0;
    size_t size = 0;
    unsigned counter = 0;
    pthread_t thread;
    void *code = NULL;
    seen = launch;
    printf("%s: grid %u %u %u, block %u %u %u, cluster %u, shared %u, user %s\n", launch->name,
           launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
           launch->block[2], launch->cluster[0], launch->shared_bytes, (const char *)user);
    printf("arguments: %zu of %zu and %zu bytes, the second is %u\n", launch->argument_count,
           launch->argument_sizes[0], launch->argument_sizes[1],
           *(const unsigned char *)launch->arguments[1]);
    printf("no variable %d\n", cuSimVariable(launch, "other", &address, &size));
    cuSimVariable(launch, "counter", &address, &size);
    cuSimRead(launch, address, &counter, size);
    printf("counter %u of %zu bytes\n", counter, size);
    counter++;
    cuSimWrite(launch, address, &counter, size);
    pthread_create(&thread, NULL, from_another_thread, launch);
    pthread_join(thread, &code);
    printf("from another thread %d\n", (int)(intptr_t)code);
}

static void stray(CUsimLaunch *launch, void *user) {
    char bytes[64];
    (void)user;
    /* The allocation has 16 bytes. */
    printf("stray read %d\n", cuSimRead(launch, *(const unsigned long long *)launch->arguments[0], bytes, 64));
}

static void fails(CUsimLaunch *launch, void *user) {
    (void)user;
    cuSimFail(launch, "out of paper");
}

int main(int count, char **words) {
    void *context, *module, *function, *address = NULL;
    unsigned long long x;
    float factor = 2.5f, values[4] = {1, 2, 3, 4};
    unsigned n = 4, counter = 0;
    unsigned char small = 200;
    int status = -1;
    const char *what = count > 1 ? words[1] : "";

    setbuf(stdout, NULL);
    CHECK(cuSimRegisterKernel(NULL, scale, NULL) != 1);
    CHECK(cuSimRegisterKernel("scale", NULL, NULL) != 1);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuMemAlloc(&x, sizeof values));
    CHECK(cuMemcpyHtoD(x, values, sizeof values));
    if (strcmp(what, "unregistered") != 0) {
        register_kernels();
        CHECK(cuSimRegisterKernel("look", look, "me"));
        CHECK(cuSimRegisterKernel("stray", stray, NULL));
        CHECK(cuSimRegisterKernel("fails", fails, NULL));
    }
    CHECK(cuModuleGetFunction(&function, module, "scale"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, NULL, (void *[]){&x, &factor, &n}, NULL));
    printf("scale %u\n", cuCtxSynchronize());
    if (strcmp(what, "unregistered") == 0)
        return 0;
    CHECK(cuMemcpyDtoH(values, x, sizeof values));
    printf("%g %g %g %g\n", values[0], values[1], values[2], values[3]);

    CHECK(cuModuleGetFunction(&function, module, "look"));
    CHECK(cuLaunchKernel(function, 2, 3, 4, 5, 6, 7, 80, NULL, (void *[]){&x, &small}, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&x, &small}, NULL));
    CHECK(cuCtxSynchronize());
    printf("after the launch %d %d\n", cuSimRead(seen, x, &counter, 4), cuSimFail(seen, "late"));

    CHECK(cuGetProcAddress_v2("cuSimRegisterKernel", &address, 13000, 0, &status));
    printf("cuGetProcAddress %d %d, dlsym %d\n", address != NULL, status,
           dlsym(RTLD_DEFAULT, "cuSimRegisterKernel") != NULL);

    if (strcmp(what, "poison") == 0) {
        printf("beyond the memory %d\n", cuSimPoison(x + 12, 8, CU_SIM_AT_ONCE));
        CHECK(cuSimPoison(x + 12, 4, NULL));
        CHECK(cuMemcpyDtoH(values, x, 12));
        printf("poisoned %u\n", cuMemcpyDtoH(values, x, 13));
        CHECK(cuSimUnpoison(x + 12, 4, CU_SIM_AT_ONCE));
        CHECK(cuMemcpyDtoH(values, x, 16));
        return 0;
    }
    CHECK(cuModuleGetFunction(&function, module, what));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&x, &factor, &n}, NULL));
    printf("%s %u\n", what, cuCtxSynchronize());
    return 0;
}
