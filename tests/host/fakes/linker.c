/* nvJitLink that uses the names of its inputs until it is destroyed. */

#include <stdlib.h>
#include <string.h>

static const char *names[8];
static char *copies[8];
static int count;

int nvJitLinkCreate(void **handle, unsigned options, const char **texts) {
    (void)options;
    (void)texts;
    *handle = names;
    return 0;
}

static int add(const char *name) {
    names[count] = name;
    copies[count++] = strdup(name);
    return 0;
}

int nvJitLinkAddData(void *handle, unsigned kind, const void *data, size_t size, const char *name) {
    (void)handle;
    (void)kind;
    (void)data;
    (void)size;
    return add(name);
}

int nvJitLinkAddFile(void *handle, unsigned kind, const char *name) {
    (void)handle;
    (void)kind;
    return add(name);
}

/* An input with the name "broken" cannot be linked. */
int nvJitLinkComplete(void *handle) {
    (void)handle;
    for (int i = 0; i < count; i++)
        if (strcmp(copies[i], "broken") == 0)
            return 6; /* NVJITLINK_ERROR_INTERNAL */
    return 0;
}

static int size_of_text(void *handle, size_t *size) {
    (void)handle;
    *size = 1;
    return 0;
}

static int text(void *handle, char *text) {
    (void)handle;
    *text = 0;
    return 0;
}

int nvJitLinkGetErrorLogSize(void *handle, size_t *size) { return size_of_text(handle, size); }
int nvJitLinkGetErrorLog(void *handle, char *log) { return text(handle, log); }
int nvJitLinkGetInfoLogSize(void *handle, size_t *size) { return size_of_text(handle, size); }
int nvJitLinkGetInfoLog(void *handle, char *log) { return text(handle, log); }
int nvJitLinkGetLinkedCubinSize(void *handle, size_t *size) { return size_of_text(handle, size); }
int nvJitLinkGetLinkedCubin(void *handle, char *cubin) { return text(handle, cubin); }

int nvJitLinkDestroy(void **handle) {
    while (count > 0) {
        count--;
        /* Freed memory has other contents, or is used again. */
        if (strcmp(names[count], copies[count]) != 0)
            abort();
        free(copies[count]);
    }
    *handle = 0;
    return 0;
}
