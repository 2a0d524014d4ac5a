//! Run-time compilation of CUDA C++ with NVRTC, and linking with nvJitLink.

pub mod sys;
