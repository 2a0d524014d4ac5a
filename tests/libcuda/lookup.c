/* Opens the driver as programs do that are not linked with it, asks it for each name on stdin, and
 * closes it again, with a thread still running that has used it. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct context *context_t;

static unsigned (*retain)(context_t *context, int device);
static unsigned (*push)(context_t context);
static pthread_barrier_t used, closed;

static void *thread(void *code) {
    context_t context;
    *(unsigned *)code = retain(&context, 0) | push(context);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL;
}

int main(void) {
    char name[200];
    int asked = 0, there = 0;
    unsigned code = 1, (*init)(unsigned flags);
    pthread_t other;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        asked++;
        if (dlsym(driver, name) != NULL)
            there++;
        else
            printf("missing: %s\n", name);
    }
    /* By way of data pointers, as POSIX has it. */
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&push = dlsym(driver, "cuCtxPushCurrent_v2");
    if (init == NULL || retain == NULL || push == NULL || init(0) != 0)
        return 1;
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    pthread_create(&other, NULL, thread, &code);
    pthread_barrier_wait(&used);
    dlclose(driver);
    pthread_barrier_wait(&closed);
    pthread_join(other, NULL);
    printf("%d of %d, thread %u\n", there, asked, code);
    return 0;
}
