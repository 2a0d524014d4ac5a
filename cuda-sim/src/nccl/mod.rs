//! A software NCCL: collective operations between devices of the software driver.
//!
//! ```
//! use core::ffi::CStr;
//!
//! // `cuda_nccl::sys::NCCL.install(cuda_sim::nccl::symbol)` makes cuda-nccl use it.
//! assert!(!cuda_sim::nccl::symbol(c"ncclAllReduce").is_null());
//! assert!(cuda_sim::nccl::symbol(c"ncclPutSignal").is_null());
//! ```
//!
//! # Rules
//! - **Ranks** are devices of this process. With [`Profile::with_nccl_folder`](crate::Profile::with_nccl_folder), ranks of
//!   several processes find each other through a folder.
//! - **Operations** are work on streams, in their order. An operation reads its source when its stream has reached it,
//!   waits until the streams of all ranks have reached theirs, and then writes its target. Operations belong together
//!   by the order in which the streams reach them. If a rank makes no call, the others wait until they are aborted, as
//!   with the real library: a call that waits for such work blocks.
//! - **Results** are combined in the type of the elements and in the order of the ranks.
//! - **Contexts**: the functions that make the primary context current on a real machine do so here.
//! - **Captured** operations are nodes of memory operations; the real library makes kernel nodes.
//! - **Failures**: [`fail_call`] makes a call fail, [`set_error`] sets the error that a communicator has in the
//!   background, and [`kill`] makes a rank disappear.
//! - **Growth**: every rank of the old communicator waits for the id, and then for the new ranks. What wrong ids and
//!   numbers do is unverified (from documentation).
//! - **Misuses** are reported like those of the driver: different operations of the ranks, a communicator that is used
//!   after its destruction, a graph that outlives its communicator, a group that a thread leaves
//!   open, memory that is freed while an operation needs it, ids of a growth in the wrong place, and
//!   registrations that are ended in the wrong way.
//!
//! [`symbol`] returns null for other functions, as a library that does not have them: those of one-sided operations,
//! parameters, encryption, suspension, and options of single operations.

mod communicators;
mod fault;
mod groups;
mod growth;
mod memory;
mod operations;
mod outcome;

pub use fault::{FailingCall, fail_call, kill, set_error};
pub use memory::registrations;

use core::ffi::{CStr, c_void};
use std::sync::{Mutex, PoisonError};

/// The version that `ncclGetVersion` returns: the first one whose communicators grow.
const VERSION: i32 = 22_902;

/// Functions that are hidden.
static HIDDEN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Returns the address of a function of NCCL, or null if it is not simulated.
///
/// A program installs it in the place of the library before the first call, for example with
/// `cuda_sys::Library::install`.
pub fn symbol(name: &CStr) -> *const c_void {
    let Ok(name) = name.to_str() else {
        return core::ptr::null();
    };
    if HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).contains(&name) {
        return core::ptr::null();
    }
    let tables = [
        communicators::FUNCTIONS,
        groups::FUNCTIONS,
        growth::FUNCTIONS,
        memory::FUNCTIONS,
        operations::FUNCTIONS,
    ];
    let mut all = tables.iter().copied().flatten();
    all.find(|(its, _)| *its == name).map_or(core::ptr::null(), |(_, function)| function.0)
}

/// Hides functions from [`symbol`], so that the library is like an older one.
pub fn hide(functions: &[&'static str]) {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).extend(functions);
}

/// The address of a function.
struct Function(*const c_void);

// SAFETY: the address of a function is never written through.
unsafe impl Sync for Function {}

/// The functions of a module by name.
type Functions = &'static [(&'static str, Function)];

/// Lists functions with their names in C.
macro_rules! table {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $crate::nccl::Function($name as *const core::ffi::c_void))),*]
    };
}
use table;
