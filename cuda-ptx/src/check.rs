#![doc = include_str!("check.md")]

use crate::debug_text::debug_text;
use std::fmt;
use std::str::FromStr;

/// A check of the engine, with the name of the tool of compute-sanitizer that finds the same errors on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Accesses outside of memory that the kernel may access, and misaligned ones. It is always on: such an access ends
    /// the kernel with a [`Fault`](crate::Fault).
    Memcheck,
    /// Uses of memory that nothing has written.
    Initcheck,
    /// Accesses of two threads to the same memory that nothing orders.
    Racecheck,
    /// Incorrect uses of barriers, of functions of warps, and of asynchronous copies.
    Synccheck,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 4] = [Self::Memcheck, Self::Initcheck, Self::Racecheck, Self::Synccheck];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Initcheck => "initcheck",
            Self::Racecheck => "racecheck",
            Self::Synccheck => "synccheck",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of checks, which contains [`Check::Memcheck`].
///
/// ```
/// use cuda_ptx::check::{Check, Checks};
///
/// let checks: Checks = "memcheck,synccheck".parse()?;
/// assert!(checks.contains(Check::Synccheck));
/// assert_eq!(checks, Checks::default().with(Check::Synccheck));
/// let error = "synchcheck".parse::<Checks>().unwrap_err();
/// assert!(error.to_string().starts_with("no check \"synchcheck\": the checks are memcheck"));
/// # Ok::<_, cuda_ptx::check::UnknownCheck>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checks(u8);

impl Checks {
    /// All checks.
    pub const ALL: Self = {
        let mut all = Self::MEMCHECK;
        let mut at = 0;
        while at < Check::ALL.len() {
            all = all.with(Check::ALL[at]);
            at += 1;
        }
        all
    };
    /// Only [`Check::Memcheck`].
    pub const MEMCHECK: Self = Self(1 << Check::Memcheck as u8);

    /// Adds a check.
    #[must_use]
    pub const fn with(self, check: Check) -> Self {
        Self(self.0 | 1 << check as u8)
    }

    /// Returns whether the set contains a check.
    pub const fn contains(self, check: Check) -> bool {
        self.0 >> check as u8 & 1 != 0
    }
}

/// Only [`Check::Memcheck`].
impl Default for Checks {
    fn default() -> Self {
        Self::MEMCHECK
    }
}

/// Prints the names, separated by commas.
impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Check::ALL.into_iter().filter(|its| self.contains(*its)).map(Check::name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

/// Parses names that are separated by commas.
impl FromStr for Checks {
    type Err = UnknownCheck;

    fn from_str(text: &str) -> Result<Self, UnknownCheck> {
        text.split(',').map(str::trim).try_fold(Self::default(), |all, name| {
            let found = Check::ALL.into_iter().find(|check| check.name() == name);
            found.map(|check| all.with(check)).ok_or_else(|| UnknownCheck { name: name.to_owned() })
        })
    }
}

/// The error of parsing [`Checks`]: there is no check with this name.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownCheck {
    name: String,
}

impl fmt::Display for UnknownCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Check::ALL.map(Check::name).join(", ");
        write!(f, "no check {:?}: the checks are {names}", self.name)
    }
}

impl std::error::Error for UnknownCheck {}

debug_text! { UnknownCheck { name } }

/// An instruction that a thread executes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Site {
    /// The function with the instruction.
    pub function: String,
    /// The instruction, for example `ld.global.u32`.
    pub instruction: String,
    /// Its line in the PTX text.
    pub line: u32,
    /// The file and line of the source, if the PTX has them (`.loc`).
    pub source: Option<(String, u32)>,
    /// The block.
    pub block: [u32; 3],
    /// The thread in the block.
    pub thread: [u32; 3],
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instruction, line, source, block, thread, .. } = self;
        write!(f, "`{instruction}` at line {line} of the PTX")?;
        if let Some((file, line)) = source {
            write!(f, " ({file}:{line})")?;
        }
        let ([bx, by, bz], [tx, ty, tz]) = (block, thread);
        write!(f, ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")
    }
}

/// An instruction of a thread, in a form that is small. [`Launch::site`](crate::Launch::site) describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteId {
    /// The block.
    pub block: [u32; 3],
    /// The number of the thread in its block.
    pub thread: u32,
    /// The number of the instruction in the code of the kernel.
    pub pc: u32,
}

/// An address of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An address in global memory.
    Global(u64),
    /// An offset in the shared memory of a block.
    Shared {
        /// The block.
        block: [u32; 3],
        /// The offset in bytes.
        offset: u32,
    },
    /// An offset in the local memory of a thread.
    Local {
        /// The block.
        block: [u32; 3],
        /// The thread in the block.
        thread: [u32; 3],
        /// The offset in bytes.
        offset: u32,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global(address) => write!(f, "{address:#x}"),
            Self::Shared { block: [x, y, z], offset } => {
                write!(f, "the offset {offset:#x} of the shared memory of block ({x}, {y}, {z})")
            }
            Self::Local { block: [bx, by, bz], thread: [tx, ty, tz], offset } => write!(
                f,
                "the offset {offset:#x} of the local memory of block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})"
            ),
        }
    }
}

/// An error that a check found. The kernel continues.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// What is wrong, with the values that matter.
    pub text: String,
    /// The kernel.
    pub kernel: String,
    /// The instruction.
    pub site: Site,
    /// The other instruction: of the other thread, if the error is between two threads, or the load of memory that was
    /// never written.
    pub other: Option<Site>,
    /// The address, if the error is an access to memory.
    pub address: Option<Address>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, text, kernel, site, other, address } = self;
        write!(f, "{check}: kernel `{kernel}`: {text}: {site}")?;
        if let Some(other) = other {
            write!(f, ", and {other}")?;
        }
        match address {
            Some(address) => write!(f, ", at {address}"),
            None => Ok(()),
        }
    }
}
