//! PTX, the instruction set of CUDA's virtual machine: parsed, checked and run on the CPU.

#![forbid(unsafe_code)]

pub mod number;
pub mod syntax;
