/* The EGL types in CUDA's signatures (Khronos: EGLint is 32 bits wide, the handles are pointers). */
#pragma once
#include <stdint.h>
typedef int32_t EGLint;
