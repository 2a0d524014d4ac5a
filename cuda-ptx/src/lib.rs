//! PTX, the instruction set of CUDA's virtual machine: parsed, checked and run on the CPU.

#![forbid(unsafe_code)]

mod decode;
mod device;
mod engine;
pub mod number;
mod program;
pub mod syntax;

pub use device::{Access, Device, Region};
pub use engine::{Fault, FaultKind, Launch, run};
pub use program::{Kernel, LinkError, Param, Program, Relocation, Target, Variable};
