/*
 * The one list of NVIDIA headers that are bound. Two read it: `cargo xtask regen-bindings`, for the
 * pinned headers, and build.rs with the feature `header-check`, for the cuda.h of this machine.
 *
 * __CUDA_API_VERSION_INTERNAL is NVIDIA's switch that declares every ABI of every function under the
 * exact name of its symbol; without it the macros of cuda.h decide what a plain name means.
 * The headers of other libraries (GL, EGL, VDPAU) come from xtask/include: types only, our own.
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

/* In a package of its own, and not part of every installation. */
#if __has_include(<cudaProfiler.h>)
#include <cudaProfiler.h>
#endif
