//! Errors of kernels.

use crate::debug_text::debug_text;
use std::fmt;

/// The kind of an error of a kernel, with the code that the driver reports for it on an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of memory that the kernel may access (700).
    IllegalAddress,
    /// `__assertfail` (710).
    Assert,
    /// An instruction that is not supported, or whose operands are not valid (715).
    IllegalInstruction,
    /// An address that is no multiple of the size of the access (716).
    MisalignedAddress,
    /// An instruction on an address of a space that it cannot access (717).
    InvalidAddressSpace,
    /// An indirect call or branch to an address without code (715).
    InvalidProgramCounter,
    /// `trap`, `brkpt`, more arrivals than an `mbarrier` expects, or a copy to blocks that a cluster lacks (719).
    Trap,
    /// More local memory than the stack limit allows (700).
    StackOverflow,
    /// Threads that wait for each other. On a GPU the kernel does not end.
    Deadlock,
    /// More instructions than the launch may run.
    StepLimit,
}

/// The error that ended a kernel, and its place.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// What is wrong, with the values that matter.
    pub text: String,
    /// The kernel.
    pub kernel: String,
    /// The function with the instruction.
    pub function: String,
    /// The instruction, for example `ld.global.u32`.
    pub instruction: String,
    /// Its line in the PTX text.
    pub line: u32,
    /// The file and line of the source, if the PTX has them.
    pub source: Option<(String, u32)>,
    /// The block.
    pub block: [u32; 3],
    /// The thread in the block.
    pub thread: [u32; 3],
    /// The address of the access.
    pub address: Option<u64>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, kernel, function, instruction, line, source, block, thread, .. } = self;
        write!(f, "{text}: `{instruction}` at line {line} of the PTX")?;
        if let Some((file, line)) = source {
            write!(f, " ({file}:{line})")?;
        }
        if function != kernel {
            write!(f, " in `{function}`")?;
        }
        let ([bx, by, bz], [tx, ty, tz]) = (block, thread);
        write!(f, ", kernel `{kernel}`, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")
    }
}

impl std::error::Error for Fault {}

debug_text! { Fault { kind, text, kernel, function, instruction, line, source, block, thread, address } }

/// An error of an operation, before its place is known.
#[derive(Debug)]
pub(super) struct Raise(pub(super) Box<Raised>);

#[derive(Debug)]
pub(super) struct Raised {
    pub(super) kind: FaultKind,
    pub(super) text: String,
    pub(super) lane: usize,
    pub(super) address: Option<u64>,
}

impl Raise {
    pub(super) fn new(kind: FaultKind, lane: usize, text: impl Into<String>) -> Self {
        Self(Box::new(Raised { kind, text: text.into(), lane, address: None }))
    }

    /// Adds the address of the access.
    pub(super) fn at(mut self, address: u64) -> Self {
        self.0.address = Some(address);
        self
    }
}
