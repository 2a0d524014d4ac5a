//! PTX, the instruction set of CUDA's virtual machine: parsed, checked and run on the CPU.
//!
//! | step | function | result |
//! |---|---|---|
//! | parse a text | [`syntax::parse`] | a [`syntax::Module`], the syntax tree; it prints as PTX |
//! | link modules | [`Program::link`] | a [`Program`]: kernels, variables, and decoded instructions |
//! | run a kernel | [`run`] | changed memory of a [`Device`], or a [`Fault`] with its place |
//!
//! The crate has no unsafe code, needs no GPU and no toolkit, and gives the same results on every host. No input
//! makes it panic. [`fidelity`] lists the instructions, and says which results are exact.
//!
//! # Parsing
//! ```
//! use cuda_ptx::syntax::{self, Item};
//!
//! let module = syntax::parse(
//!     ".version 8.0
//!      .target sm_80
//!      .address_size 64
//!      .visible .entry scale(.param .u64 data, .param .f32 factor) { ret; }",
//! )?;
//! let kernels = module.items.iter().filter_map(|item| match item {
//!     Item::Function(function) if function.is_entry => Some(function.name),
//!     _ => None,
//! });
//! assert_eq!(kernels.collect::<Vec<_>>(), ["scale"]);
//!
//! let error = syntax::parse(".version 8.0 .target sm_80 .entry k() { add.s32 %r1 %r2; }").unwrap_err();
//! assert_eq!(error.position.column, 53);
//! # Ok::<_, cuda_ptx::syntax::ParseError>(())
//! ```
//!
//! # Running
//! A [`Device`] supplies the memory that a kernel accesses, and services such as the output of `vprintf`. This device
//! has one allocation:
//!
//! ```
//! use cuda_ptx::check::SiteId;
//! use cuda_ptx::{Access, Device, Launch, Program, Region, run, syntax};
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// The address of the allocation.
//! const BASE: u64 = 0x7000_0000;
//!
//! struct Memory(Vec<AtomicU64>);
//!
//! impl Device for Memory {
//!     fn region(&self, _address: u64, _len: u64, _access: Access, _: SiteId) -> Result<Region<'_>, String> {
//!         // The engine checks that the access is in the region.
//!         Ok(Region::new(BASE, &self.0))
//!     }
//!     fn print(&self, text: &str) {
//!         print!("{text}");
//!     }
//!     fn allocate(&self, _size: u64) -> Option<u64> {
//!         None
//!     }
//!     fn free(&self, _address: u64) -> Result<(), String> {
//!         Err("there is no heap".to_owned())
//!     }
//!     fn set_conditional(&self, _handle: u64, _value: u32) -> Result<(), String> {
//!         Err("there is no graph".to_owned())
//!     }
//! }
//!
//! // Each thread writes the square of its index.
//! let module = syntax::parse(
//!     ".version 8.0
//!      .target sm_80
//!      .address_size 64
//!      .visible .entry squares(.param .u64 out) {
//!          .reg .b32 %r<2>; .reg .b64 %d<4>;
//!          ld.param.u64 %d0, [out];
//!          mov.u32 %r0, %tid.x;
//!          mul.wide.u32 %d1, %r0, %r0;
//!          mul.wide.u32 %d2, %r0, 8;
//!          add.u64 %d3, %d0, %d2;
//!          st.global.u64 [%d3], %d1;
//!          ret;
//!      }",
//! )?;
//! let program = Program::link(&[module])?;
//! let kernel = program.kernel("squares").expect("the module has it");
//! assert_eq!(program.kernels()[kernel].unsupported().count(), 0);
//!
//! let memory = Memory((0..4).map(|_| AtomicU64::new(0)).collect());
//! let params = BASE.to_le_bytes();
//! let mut launch = Launch::new(&program, kernel);
//! launch.block = [4, 1, 1];
//! launch.params = &params;
//! run(&launch, &memory)?;
//! let squares: Vec<u64> = memory.0.iter().map(|word| word.load(Ordering::Relaxed)).collect();
//! assert_eq!(squares, [0, 1, 4, 9]);
//!
//! // A fifth thread writes beyond the allocation.
//! launch.block = [5, 1, 1];
//! let fault = run(&launch, &memory).unwrap_err();
//! assert_eq!(fault.thread, [4, 0, 0]);
//! assert_eq!(fault.instruction, "st.global.u64");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # Execution
//! A warp runs in lockstep with a mask of active lanes. Lanes that diverge take turns, so lanes of one warp may wait
//! for each other. [`Launch::seed`] chooses the order of blocks and warps, and [`Launch::threads`] the number of host
//! threads. [`Launch::interleaving`] has warps give way at any access to memory, and delays stores. A kernel whose threads wait for each other without end is a [deadlock](FaultKind::Deadlock), and
//! [`Launch::steps`] limits a kernel that does not end. [`Launch::checks`] turns on [checks](check) for uses of memory
//! that was never written, races between threads, incorrect barriers and masks, and copies that are read too early.
//! [`Launch::counts`] counts the executions of each [instruction](Program::instructions).

#![forbid(unsafe_code)]

pub mod check;
// For cuda-sim, which has the same version.
#[doc(hidden)]
pub mod clock;
mod debug_text;
mod decode;
mod device;
mod engine;
#[doc = include_str!("../FIDELITY.md")]
pub mod fidelity {}
mod map;
pub mod number;
mod program;
/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
pub mod syntax;
pub mod tensor_map;
pub mod texture;

pub use decode::is_device_function;
pub use device::{Access, Device, Edge, Region, Validity};
pub use engine::{Fault, FaultKind, Launch, run};
pub use program::{Instruction, Kernel, LinkError, Param, Program, Relocation, Target, Variable};
