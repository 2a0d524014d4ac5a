/* Functions of the software CUDA driver (`libcuda.so.1` of cuda-sim) that a real driver does not have.
 *
 * The software driver runs kernels by their PTX. A program can register a host function for a kernel, for
 * example if the kernel has only machine code. The function then runs when the kernel is launched:
 *
 *     // __global__ void scale(float *x, float factor, unsigned n)
 *     static void scale(CUsimLaunch *launch, void *user) {
 *         unsigned long long x = *(const unsigned long long *)launch->arguments[0];
 *         float factor = *(const float *)launch->arguments[1];
 *         unsigned n = *(const unsigned *)launch->arguments[2];
 *         float *values = malloc(n * sizeof(float));
 *         if (cuSimRead(launch, x, values, n * sizeof(float)) == 0) {
 *             for (unsigned i = 0; i < n; i++)
 *                 values[i] *= factor;
 *             cuSimWrite(launch, x, values, n * sizeof(float));
 *         }
 *         free(values);
 *     }
 *
 *     cuSimRegisterKernel("scale", scale, NULL);
 *
 * A program that also runs on real drivers looks the functions up with `dlsym`, and does not register
 * kernels if they are missing. `cuGetProcAddress` does not find them.
 *
 * The functions return 0 (`CUDA_SUCCESS`) or 1 (`CUDA_ERROR_INVALID_VALUE`), unless they say otherwise.
 */
#ifndef CUDA_SIM_H
#define CUDA_SIM_H

#include <stddef.h>

/* A program that defines this as __attribute__((weak)) can be linked without the functions. They are then NULL
 * with another driver. */
#ifndef CUDA_SIM_WEAK
#define CUDA_SIM_WEAK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A launch of a kernel, with all of its blocks and threads. It is valid until the kernel's function returns,
 * and only on the thread that called the function. The driver creates it; later versions may add fields at
 * the end. */
typedef struct CUsimLaunch {
    /* The name of the kernel, as it was registered. */
    const char *name;
    /* The number of blocks along x, y and z. */
    unsigned grid[3];
    /* The number of threads in a block along x, y and z. */
    unsigned block[3];
    /* The number of blocks in a cluster along x, y and z; 1 for a launch without clusters. */
    unsigned cluster[3];
    /* The size of a block's dynamic shared memory in bytes. */
    unsigned shared_bytes;
    /* The number of arguments. */
    size_t argument_count;
    /* Pointers to the values of the arguments, each aligned to 16 bytes. */
    const void *const *arguments;
    /* The sizes of the arguments in bytes. */
    const size_t *argument_sizes;
} CUsimLaunch;

/* The function of a kernel. It runs once per launch, on a thread that calls the driver or on the driver's own
 * thread. It must not call the driver, except for cuSimRead, cuSimWrite, cuSimVariable and cuSimFail. It must return:
 * a C++ exception ends the process, and the effect of longjmp is undefined. */
typedef void (*CUsimKernel)(CUsimLaunch *launch, void *user);

/* Registers `kernel` as the kernel `name`, which is the symbol in the image: the mangled name of a C++
 * function. It runs when a kernel of that name is launched from any module. A later registration of the same
 * name replaces it. `user` is passed to each call. */
int cuSimRegisterKernel(const char *name, CUsimKernel kernel, void *user) CUDA_SIM_WEAK;

/* Copies `size` bytes at a device address to host memory.
 *
 * Device addresses are not host pointers. If the bytes are not all in one allocation that the kernel may use,
 * this returns 1, and the launch fails as an access to an illegal address (700). */
int cuSimRead(CUsimLaunch *launch, unsigned long long address, void *to, size_t size) CUDA_SIM_WEAK;

/* Copies `size` bytes from host memory to a device address. The errors are those of `cuSimRead`. */
int cuSimWrite(CUsimLaunch *launch, unsigned long long address, const void *from, size_t size) CUDA_SIM_WEAK;

/* Returns the address and the size in bytes of a variable of the kernel's module. Both pointers may be null.
 * Returns 500 (`CUDA_ERROR_NOT_FOUND`) if there is no such variable. */
int cuSimVariable(CUsimLaunch *launch, const char *name, unsigned long long *address, size_t *size) CUDA_SIM_WEAK;

/* Makes the launch fail as an access to an illegal address. The driver prints the message on stderr. */
int cuSimFail(CUsimLaunch *launch, const char *message) CUDA_SIM_WEAK;

/* Makes a later call of a function of the driver return `code` without any effect: the call number `nth` from
 * now on, counted from 1, on any thread. `function` is the name, for example "cuMemAlloc", which means all
 * versions of the function, or the symbol of one version, for example "cuMemAlloc_v2".
 * Returns 0, or another number if there is no such function, or `nth` or `code` is 0. */
int cuSimInjectFault(const char *function, unsigned long long nth, int code) CUDA_SIM_WEAK;

/* The same for a fault in the form of the variable CUDA_SIM_FAULTS, for example
 * "cuMemAlloc:3=CUDA_ERROR_OUT_OF_MEMORY", or "cuStreamCreate:1+" for all calls. Returns 0, or 1 for a text that is no
 * fault, and prints the reason to stderr. */
int cuSimInject(const char *fault) CUDA_SIM_WEAK;

/* Removes all faults. Returns the number of calls that they have made fail. */
unsigned long long cuSimClearFaults(void) CUDA_SIM_WEAK;

/* Runs all work, and returns the number of live objects: retains of primary contexts, contexts, streams, events,
 * allocations and others. The end of a context ends its objects, so a test that looks for leaks retains the
 * context itself, and compares the numbers before and after. */
size_t cuSimLiveObjects(void) CUDA_SIM_WEAK;

/* Prints the number of live objects of each kind to stderr. */
void cuSimPrintLiveObjects(void) CUDA_SIM_WEAK;

/* The same as `cuSimLiveObjects`, and describes the number of each kind: "1 retains, 0 contexts, 2 streams, ...". The
 * text is cut off after `size` - 1 bytes, and ends with a zero byte if `size` is not 0. Returns the length of the whole
 * text. */
size_t cuSimDescribeLiveObjects(char *text, size_t size) CUDA_SIM_WEAK;

/* Returns the number of misuses: incorrect calls that a real driver accepts or crashes on. Each one is printed to
 * stderr when it is detected. */
size_t cuSimMisuseCount(void) CUDA_SIM_WEAK;

/* Copies the text of the misuse number `index`, counted from 0 in the order of detection, as `cuSimDescribeLiveObjects`
 * does. Returns the length of the whole text, or 0 if there are not so many misuses. */
size_t cuSimMisuseText(size_t index, char *text, size_t size) CUDA_SIM_WEAK;

/* The argument of the next two functions for a change that waits for no work. */
#define CU_SIM_AT_ONCE ((struct CUstream_st *)-1)

struct CUstream_st;

/* Makes `size` bytes at a device address inaccessible, from now on in the order of `stream`. A library that allocates
 * blocks from a larger allocation calls this for the bytes that no block contains, and for a block that it has freed.
 * An access by a kernel, a copy or a fill then fails as one beyond an allocation does. Freeing or unmapping the
 * memory makes the bytes forgotten.
 *
 * A stream without work stays without work. On a stream that is being captured, the call has no effect. A default
 * stream is that of the context which owns the memory; for mapped memory it is that of the current context.
 *
 * Returns 0, 1 if the bytes are not all in one allocation of device memory or in mapped memory, or another error of
 * the driver. */
int cuSimPoison(unsigned long long address, size_t size, struct CUstream_st *stream) CUDA_SIM_WEAK;

/* Makes `size` bytes at a device address accessible again, from now on in the order of `stream`. With CU_SIM_AT_ONCE,
 * poisons that were enqueued before and have not taken effect are undone too. On a stream that is being captured, the
 * bytes become accessible at once. The results are those of cuSimPoison. */
int cuSimUnpoison(unsigned long long address, size_t size, struct CUstream_st *stream) CUDA_SIM_WEAK;

#ifdef __cplusplus
}
#endif

#endif
