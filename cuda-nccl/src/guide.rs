//! Pages for readers who begin: how to use several GPUs, and how this crate compares with others.

/// Several GPUs with NCCL: processes or threads, streams, failures.
///
#[doc = include_str!("guide/several_gpus.md")]
pub mod several_gpus {}

/// How this crate compares with the module of cudarc and with nccl4py, and the functions that it leaves out.
///
#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}

/// The safe item of each function of NCCL, or the reason for its absence.
///
#[doc = include_str!("guide/functions.md")]
pub mod functions {}
