/* Functions of the software driver for tests of C programs. They are not functions of a driver: a program
 * that defines CUDA_SIM_WEAK as __attribute__((weak)) can be linked without them, and they are then NULL. */

#ifndef CUDA_SIM_H
#define CUDA_SIM_H

#include <stddef.h>

#ifndef CUDA_SIM_WEAK
#define CUDA_SIM_WEAK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a later call of a function of the driver return `code` without any effect: the call number `nth` from
 * now on, counted from 1, on any thread. `function` is the symbol, for example cuMemAlloc_v2.
 * Returns 0, or another number if no function has this symbol, or `nth` or `code` is 0. */
int cuda_sim_inject_fault(const char *function, unsigned long long nth, int code) CUDA_SIM_WEAK;

/* Removes all faults. Returns the number of calls that they have made fail. */
unsigned long long cuda_sim_clear_faults(void) CUDA_SIM_WEAK;

/* Runs all work, and returns the number of live objects: retains of primary contexts, contexts, streams, events,
 * allocations and others. The end of a context ends its objects, so a test that looks for leaks retains the
 * context itself, and compares the numbers before and after. */
size_t cuda_sim_live_objects(void) CUDA_SIM_WEAK;

/* Prints the number of live objects of each kind to stderr. */
void cuda_sim_print_live_objects(void) CUDA_SIM_WEAK;

/* Returns the number of misuses: incorrect calls that a real driver accepts or crashes on. Each one is printed to
 * stderr when it is detected. */
size_t cuda_sim_misuse_count(void) CUDA_SIM_WEAK;

#ifdef __cplusplus
}
#endif

#endif
