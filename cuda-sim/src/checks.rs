#![doc = include_str!("checks.md")]

use crate::account;
use crate::races::{RacingMemory, element};
use cuda_ptx::check::Address;
pub use cuda_ptx::check::{self, Check, Checks};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// An error of a kernel that a check found.
///
/// The display form has the instructions, the threads, the memory, and the call that launched the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The error, with its places in the kernel.
    pub error: check::Finding,
    /// The memory, if the error is at an address in global memory.
    pub memory: Option<RacingMemory>,
    /// The driver function that launched the kernel. For a node of a graph this is the function that launched the
    /// graph.
    pub function: &'static str,
    /// The seed that chose the order of the blocks and warps.
    pub seed: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if let (Some(RacingMemory { start, size, kind }), Some(Address::Global(at))) =
            (&self.memory, self.error.address)
        {
            let offset = at.saturating_sub(*start);
            write!(f, ", the byte {offset}")?;
            if let Some(element) = element(&self.error.site.instruction, offset) {
                write!(f, " ({element})")?;
            }
            write!(f, " of {size} bytes of {kind} at {start:#x}")?;
        }
        write!(f, "; launched by {}", self.function)
    }
}

/// What findings of the same error have in common: the check, the kernel, and the lines of the instructions.
type Key = (Check, String, u32, Option<u32>);

/// Maximum number of findings that are reported.
const KEPT: usize = 1000;

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    keys: HashSet<Key>,
    /// The functions whose copies were reported, and the starts of the memory.
    copies: HashSet<(&'static str, u64)>,
}

static FINDINGS: Mutex<Option<Findings>> = Mutex::new(None);

/// Reports a finding, unless the check has found the same instructions of the kernel before.
pub(crate) fn report(finding: Finding) {
    let mut findings = FINDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let findings = findings.get_or_insert_default();
    let error = &finding.error;
    let other = error.other.as_ref().map(|other| other.line);
    let key = (error.check, error.kernel.clone(), error.site.line, other);
    if findings.list.len() == KEPT || !findings.keys.insert(key) {
        return;
    }
    account::misuse(finding.to_string());
    findings.list.push(finding);
    if findings.list.len() == KEPT {
        eprintln!("cuda-sim: {KEPT} errors of kernels were reported; more are not");
    }
}

/// Reports a misuse, once for each function that copies from the memory that starts at an address.
pub(crate) fn report_copy(function: &'static str, start: u64, text: impl FnOnce() -> String) {
    let mut findings = FINDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let copies = &mut findings.get_or_insert_default().copies;
    if copies.len() < KEPT && copies.insert((function, start)) {
        account::misuse(text());
    }
}

/// Returns the errors that the [checks](crate::Profile::with_kernel_checks) have found so far. Two instructions of a
/// kernel are listed once for each check, and at most 1000 errors are listed.
///
/// Each finding is also a [misuse](crate::misuses). The [page](mod@crate::checks) says what is checked.
pub fn findings() -> Vec<Finding> {
    let findings = FINDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    findings.as_ref().map(|its| its.list.clone()).unwrap_or_default()
}

/// Forgets all findings.
pub(crate) fn clear() {
    *FINDINGS.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
