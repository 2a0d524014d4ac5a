/* A CUDA program as others write them: linked with -lcuda, ends with work left to its exit.
 * Prints what it finds; the test knows what that has to be. */

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of each function the newest ABI, by the name of its symbol. */
typedef struct context *context_t;
typedef unsigned long long address_t;

enum { SM = 1, SMS = 16, MAJOR = 75, MINOR = 76 };

typedef struct {
    unsigned type;
    unsigned char opaque[92];
    unsigned sms;
    unsigned char rest[36];
    void *next;
} resource_t;

_Static_assert(sizeof(resource_t) == 144, "as large as the driver's");

unsigned cuInit(unsigned flags);
unsigned cuDriverGetVersion(int *version);
unsigned cuGetErrorName(unsigned code, const char **name);
unsigned cuGetErrorString(unsigned code, const char **text);
unsigned cuDeviceGetCount(int *count);
unsigned cuDeviceGet(int *device, int ordinal);
unsigned cuDeviceGetName(char *name, int room, int device);
unsigned cuDeviceGetAttribute(int *value, int attribute, int device);
unsigned cuDevicePrimaryCtxRetain(context_t *context, int device);
unsigned cuDevicePrimaryCtxRelease_v2(int device);
unsigned cuCtxCreate_v2(context_t *context, unsigned flags, int device);
unsigned cuCtxDestroy_v2(context_t context);
unsigned cuCtxGetCurrent(context_t *context);
unsigned cuCtxPushCurrent_v2(context_t context);
unsigned cuCtxPopCurrent_v2(context_t *context);
unsigned cuMemAlloc_v2(address_t *address, size_t size);
unsigned cuMemFree_v2(address_t address);
unsigned cuMemcpyHtoD_v2(address_t to, const void *from, size_t size);
unsigned cuMemcpyDtoH_v2(void *to, address_t from, size_t size);
unsigned cuDeviceGetDevResource(int device, resource_t *resource, unsigned type);
unsigned cuDevSmResourceSplitByCount(resource_t *groups, unsigned *count, const resource_t *input,
                                     resource_t *rest, unsigned flags, unsigned min);
unsigned cuLaunchHostFunc(void *stream, void (*function)(void *), void *data);
unsigned cuTexRefDestroy(void *resource);
unsigned cuDevSmResourceSplit(resource_t *groups, unsigned count, const resource_t *input,
                              resource_t *rest, unsigned flags, void *params);

static void check(unsigned code, const char *call) {
    const char *name = "a code without a name", *text = "";
    if (code == 0)
        return;
    cuGetErrorName(code, &name);
    cuGetErrorString(code, &text);
    printf("%s: %s (%u): %s\n", call, name, code, text);
    exit(1);
}

#define CHECK(call) check(call, #call)

static context_t primary;
static address_t kept;

/* After main, when the thread locals of the main thread are gone. */
static void last_words(void) {
    context_t popped = NULL;
    int well = cuCtxPopCurrent_v2(&popped) == 0 && popped == primary;
    well &= cuCtxPushCurrent_v2(primary) == 0 && cuMemFree_v2(kept) == 0;
    well &= cuCtxPopCurrent_v2(NULL) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0;
    printf("at exit: %s\n", well ? "well" : "wrong");
}

/* At the end of a thread, when its thread locals may be gone. */
static void end_of_thread(void *result) {
    context_t popped = NULL;
    *(int *)result = cuCtxPopCurrent_v2(&popped) == 0 && popped == primary;
}

static pthread_key_t early, late;

static void *thread(void *results) {
    if (cuCtxPushCurrent_v2(primary) != 0 || cuCtxPushCurrent_v2(primary) != 0)
        return NULL;
    pthread_setspecific(early, &((int *)results)[0]);
    pthread_setspecific(late, &((int *)results)[1]);
    return NULL;
}

static void devices(void) {
    int version, count, sms, major, minor;
    char name[100];
    CHECK(cuDriverGetVersion(&version));
    CHECK(cuDeviceGetCount(&count));
    for (int ordinal = 0; ordinal < count; ordinal++) {
        int device;
        CHECK(cuDeviceGet(&device, ordinal));
        CHECK(cuDeviceGetName(name, sizeof name, device));
        CHECK(cuDeviceGetAttribute(&sms, SMS, device));
        CHECK(cuDeviceGetAttribute(&major, MAJOR, device));
        CHECK(cuDeviceGetAttribute(&minor, MINOR, device));
        printf("device %d: %s, %d SMs, %d.%d, driver %d\n", ordinal, name, sms, major, minor, version);
    }
}

/* MINIMUM:GROUPSxSIZE+REMAINDER of each minimum. */
static void splits(unsigned flags, int count, char **minima) {
    static resource_t groups[200];
    resource_t all, rest;
    CHECK(cuDeviceGetDevResource(0, &all, SM));
    printf("split flags=%u:", flags);
    for (int index = 0; index < count; index++) {
        unsigned number = 200, min = (unsigned)atoi(minima[index]);
        CHECK(cuDevSmResourceSplitByCount(groups, &number, &all, &rest, flags, min));
        for (unsigned group = 1; group < number; group++)
            if (groups[group].sms != groups[0].sms)
                printf(" unequal");
        printf(" %u:%ux%u+%u", min, number, groups[0].sms, rest.type == SM ? rest.sms : 0);
    }
    printf("\n");
}

static void memory(void) {
    static unsigned char there[4096], back[4096];
    address_t address;
    for (size_t index = 0; index < sizeof there; index++)
        there[index] = (unsigned char)(index * 7);
    CHECK(cuMemAlloc_v2(&address, sizeof there));
    CHECK(cuMemcpyHtoD_v2(address, there, sizeof there));
    CHECK(cuMemcpyDtoH_v2(back, address, sizeof back));
    CHECK(cuMemFree_v2(address));
    printf("memory: %s\n", memcmp(there, back, sizeof there) == 0 ? "as it was" : "changed");
}

static void stack(void) {
    context_t own, current, popped;
    CHECK(cuCtxCreate_v2(&own, 0, 0));
    CHECK(cuCtxGetCurrent(&current));
    printf("stack: created %s", current == own ? "current" : "elsewhere");
    CHECK(cuCtxPushCurrent_v2(primary));
    CHECK(cuCtxPopCurrent_v2(&popped));
    printf(", popped %s", popped == primary ? "what was pushed" : "something else");
    CHECK(cuCtxDestroy_v2(own));
    CHECK(cuCtxGetCurrent(&current));
    printf(", then %s", current == primary ? "as before" : "otherwise");
    CHECK(cuCtxPopCurrent_v2(NULL));
    printf(", empty %u\n", cuCtxPopCurrent_v2(NULL));
    CHECK(cuCtxPushCurrent_v2(primary));
}

static void threads(void) {
    int results[2] = {0, 0};
    pthread_t other;
    /* After the first call: the driver may have keys of its own between the two. */
    pthread_key_create(&late, end_of_thread);
    pthread_create(&other, NULL, thread, results);
    pthread_join(other, NULL);
    printf("end of thread: %s\n", results[0] && results[1] ? "well" : "wrong");
}

static void post(void *semaphore) {
    sem_post(semaphore);
}

/* The program waits for the host function without calling the driver. */
static void host_function(void) {
    static sem_t ran;
    struct timespec limit;
    sem_init(&ran, 0, 0);
    CHECK(cuLaunchHostFunc(NULL, post, &ran));
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    printf("host function: %s\n", sem_timedwait(&ran, &limit) == 0 ? "ran by itself" : "did not run");
}

int main(int count, char **arguments) {
    int device;
    const char *name = "";
    pthread_key_create(&early, end_of_thread);
    printf("before cuInit: %u\n", cuDeviceGet(&device, 0));
    unsigned code = cuInit(0);
    if (code != 0) {
        CHECK(cuGetErrorName(code, &name));
        printf("no device: %s\n", name);
        return 0;
    }
    devices();
    splits(0, count - 1, arguments + 1);
    splits(1, count - 1, arguments + 1);

    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuCtxPushCurrent_v2(primary));
    memory();
    stack();
    threads();
    host_function();
    printf("not simulated %u %u, newer %u, no code %u\n", cuTexRefDestroy(NULL),
           cuTexRefDestroy(NULL),
           cuDevSmResourceSplit(NULL, 0, NULL, NULL, 0, NULL), cuGetErrorName(12345, &name));

    CHECK(cuMemAlloc_v2(&kept, 16));
    atexit(last_words);
    return 0;
}
