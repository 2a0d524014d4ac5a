//! The engine: it runs a kernel, a warp at a time.

mod access;
mod atomic;
mod block;
mod bulk;
mod compute;
mod fault;
mod grid;
mod interleave;
mod matrix;
mod mbarrier;
mod multimem;
mod print;
mod registers;
mod tensor;
mod texture;
mod together;
mod warp;
mod watch;

pub use fault::{Fault, FaultKind};
pub use grid::run;

use crate::check::{Checks, Site, SiteId};
use crate::program::Program;
use std::sync::atomic::AtomicU64;

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program with the kernel.
    pub program: &'a Program,
    /// The index of the kernel.
    pub kernel: usize,
    /// The number of blocks along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads of a block along x, y and z.
    pub block: [u32; 3],
    /// The number of blocks of a cluster along x, y and z. `[1, 1, 1]` without clusters.
    pub cluster: [u32; 3],
    /// Whether the launch names a cluster.
    pub is_clustered: bool,
    /// The bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameters.
    pub params: &'a [u8],
    /// The address of each variable of the program.
    pub variables: &'a [u64],
    /// The bytes of local memory that a thread may use.
    pub stack: u32,
    /// Whether all blocks are resident at once.
    pub is_cooperative: bool,
    /// The SMs that the blocks run on, in turn.
    pub sms: &'a [u32],
    /// The number of SMs of the device.
    pub sm_count: u32,
    /// Chooses the order of blocks and warps. Zero is the ascending order.
    pub seed: u64,
    /// Chooses an interleaving of the warps of all blocks, and delays stores as the memory model of PTX allows. `None`
    /// lets a warp run as long as it can, and all threads see a store at once. One host thread runs all blocks of an
    /// interleaving.
    pub interleaving: Option<u64>,
    /// The number of host threads that run blocks.
    pub threads: usize,
    /// The number of operations that all warps may run together, or zero for no limit.
    pub steps: u64,
    /// Counters to which the run adds the executions of each instruction, in the order of
    /// [`Program::instructions`]. The executions of each thread are counted. A thread whose guard predicate is false
    /// executes a `bra`, which it does not take, and no other instruction.
    pub counts: Option<&'a [AtomicU64]>,
    /// The checks. With another one than memcheck, one host thread runs all blocks.
    pub checks: Checks,
}

impl<'a> Launch<'a> {
    /// Returns a launch of one block with one thread, and the cluster that the kernel requires. Other fields change
    /// it.
    pub fn new(program: &'a Program, kernel: usize) -> Self {
        let cluster = program.kernels.get(kernel).and_then(|its| its.cluster);
        Self {
            program,
            kernel,
            grid: [1; 3],
            block: [1; 3],
            cluster: cluster.unwrap_or([1; 3]),
            is_clustered: cluster.is_some(),
            dynamic_shared: 0,
            params: &[],
            variables: &[],
            stack: 1 << 20,
            is_cooperative: false,
            sms: &[0],
            sm_count: 1,
            seed: 0,
            interleaving: None,
            threads: 1,
            steps: 0,
            counts: None,
            checks: Checks::default(),
        }
    }

    /// Describes an instruction of a thread. [`block`](Self::block) must be that of the launch.
    pub fn site(&self, id: SiteId) -> Site {
        block::site(self, id)
    }
}
