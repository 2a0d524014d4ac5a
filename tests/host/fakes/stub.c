/* As the CUDA toolkit's stub for linking: every function is there, and none does anything. */

#define FUNCTION(name) int name(void) { return 34; } /* CUDA_ERROR_STUB_LIBRARY */
#include "functions.h"
