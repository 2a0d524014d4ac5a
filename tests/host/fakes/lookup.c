/* A driver of CUDA 12.4 that exports few names and hands out others by cuGetProcAddress_v2. It
   writes down what it is asked, and tells it through cuGetErrorString. */

#include <stdio.h>
#include <string.h>

static char asked[4096];

int cuDriverGetVersion(int *version) {
    *version = 12040;
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

int cuGetErrorString(int error, const char **text) {
    (void)error;
    *text = asked;
    return 0;
}

static int legacy(void *stream) {
    (void)stream;
    return 1001;
}

static int per_thread(void *stream) {
    (void)stream;
    return 1002;
}

int cuGetProcAddress_v2(const char *base, void **address, int version, unsigned long flags,
                        int *status) {
    size_t end = strlen(asked);
    snprintf(asked + end, sizeof asked - end, "%s %d %lu\n", base, version, flags);
    *address = (void *)(flags == 2 ? per_thread : legacy);
    *status = 0;
    if (!strcmp(base, "cuStreamQuery") || !strcmp(base, "cuMemcpyHtoD")) return 0;
    /* An older ABI and a status that says so. */
    if (!strcmp(base, "cuCtxSynchronize")) return *status = 2, 0;
    /* "Found", and nothing to call. */
    if (!strcmp(base, "cuEventSynchronize")) return *address = NULL, 0;
    /* A refusal that leaves both outputs as if all was well. */
    if (!strcmp(base, "cuStreamSynchronize")) return 1;
    *address = NULL;
    *status = 1;
    return 0;
}
