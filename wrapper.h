/*
 * The list of NVIDIA headers to bind. `cargo xtask regen-bindings` reads it with the pinned headers, and
 * build.rs with the feature `header-check` reads it with the installed cuda.h.
 *
 * NVIDIA's macro __CUDA_API_VERSION_INTERNAL declares every ABI of every function under the exact name
 * of its symbol. Without it, the macros of cuda.h select the ABI of an unsuffixed name.
 * The headers of other libraries (GL, EGL, VDPAU) are in xtask/include. They were written for this
 * project and contain only types.
 */
#ifndef CUDA_WORKBENCH_DEFAULT_API
#define __CUDA_API_VERSION_INTERNAL
#endif

#include <cuda.h>

#include <GL/gl.h>
#include <cudaGL.h>

#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <cudaEGL.h>

#include <vdpau/vdpau.h>
#include <cudaVDPAU.h>

/* This header is in a separate package, which is not always installed. */
#if __has_include(<cudaProfiler.h>)
#include <cudaProfiler.h>
#endif
