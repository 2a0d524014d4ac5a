//! Tests of `cuda-nccl`, on the machine's GPUs with its NCCL, or on the software driver with four devices and the
//! software NCCL. A test that needs more GPUs than there are is skipped with its reason.
//!
//! The module `software` needs the software NCCL.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod abort;
mod arguments;
mod capture;
mod collectives;
mod contexts;
mod derive;
mod growth;
mod life;
mod machine;
mod processes;
mod raw;
mod registered;
mod software;
mod version;
