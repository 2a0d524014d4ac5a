//! Proof: on which SMs the work of a stream really runs.

use super::GreenContext;
use crate::capture::Operation;
use crate::context::Context;
use crate::device::{Device, attribute};
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::launch::{LaunchConfig, TypedKernel};
use crate::memory::DeviceBuffer;
use crate::module::Module;
use crate::stream::Stream;
use std::collections::BTreeSet;
use std::fmt;

const PTX: &str = include_str!("probe/record.ptx");
const KERNEL: &str = "cuda_safe_record_sm";

/// Twice as many blocks as an SM holds at once, for each SM of the device, so that even all of it is
/// full; and each stays long enough for the others to be given to other SMs.
const BLOCKS_PER_SM: u32 = 64;
const THREADS: u32 = 32;
const CYCLES: u32 = 50_000;

/// Shows on which SMs the work of a stream runs: a diagnostic, by a small kernel that records
/// `%smid`.
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::green::{GreenContext, SmProbe, SmResource, SplitByCount};
///
/// let device = Device::get(0)?;
/// let split = SmResource::of_device(&device)?.split_by_count(SplitByCount {
///     min: 32,
///     max_groups: Some(2),
///     ..Default::default()
/// })?;
/// let mut partitions = Vec::new();
/// for group in split.groups {
///     partitions.push(GreenContext::new([group])?);
/// }
/// let streams = [partitions[0].stream()?, partitions[1].stream()?];
///
/// let probe = SmProbe::new(partitions[0].context())?;
/// println!("the first runs on {:?}", probe.sms(&streams[0])?);
/// let both = probe.compare(&streams[0], &streams[1])?;
/// assert!(both.shared.is_empty(), "{both}");
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # What it costs
/// Making one compiles and loads a module, which waits for all running work of the context, and asks
/// for four attributes of the device. (Unloading it, with the last clone, waits as well.) Each
/// [`start`](Self::start) allocates and sets 4 bytes for each of the kernel's 64 blocks per SM of the
/// device on the stream, launches, and does not wait; for a stream that was not made of a
/// [`GreenContext`] here it asks the driver for that. [`SmProbing::finish`] waits for the stream and
/// copies. On a whole device that takes some 100 µs, on an eighth of it a millisecond.
///
/// # What it can miss
/// An SM that other work keeps full for all of that time. So it is for an idle partition; what it
/// finds is true in any case.
///
/// The software driver, `cuda-sim`, has the kernel without its being registered.
#[derive(Clone)]
pub struct SmProbe {
    kernel: TypedKernel<(&'static mut [u32], u32)>,
    blocks: u32,
    reasons: Reasons,
}

/// What gives partitions more SMs than they were given, on this device.
#[derive(Clone, Copy, Debug, Default)]
struct Reasons {
    /// This process is a client of MPS, or may be.
    mps: bool,
    /// Modules that launch kernels from kernels add SMs.
    dynamic_parallelism: bool,
}

/// A probe that is under way; of [`SmProbe::start`]. Dropped, it still runs to its end.
#[must_use = "what it finds is told by `finish`"]
#[derive(Debug)]
pub struct SmProbing {
    found: DeviceBuffer<u32>,
    given: Option<u32>,
    reasons: Reasons,
}

/// On which SMs a stream ran, and how many it has by rights.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmTrace {
    /// The SMs, by their numbers: not all are below the device's count of SMs.
    pub sms: BTreeSet<u32>,
    /// SMs of the green context that the stream is of, as the driver counts; none where it is of
    /// none, and has all.
    pub given: Option<u32>,
    /// More SMs than were given, and what may be the reason; none if there are not.
    pub added: Option<AddedSms>,
}

/// More SMs than a partition was given: how many, and what is known to add some. That is how the
/// hardware is; no promise is broken by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddedSms {
    /// How many.
    pub count: u32,
    /// MPS may have: this process is a client of it, and with an active-thread percentage
    /// (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`) partitions may run on all SMs of the client. Before CUDA
    /// 12.3 the driver does not tell of MPS, and the variable is looked at.
    pub by_mps: bool,
    /// Dynamic parallelism may have: the device has compute capability 9.x, and these are not more
    /// than the two SMs that all partitions share once a module that launches kernels from kernels
    /// is loaded. Kernels that a kernel launches are not confined to the partition at all: on an H200
    /// with driver 580 they run on every SM of the device.
    pub by_dynamic_parallelism: bool,
}

/// What two streams have in common; of [`SmProbe::compare`] and [`SmTrace::compare`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmOverlap {
    /// The first stream.
    pub first: SmTrace,
    /// The second.
    pub second: SmTrace,
    /// The SMs that both ran on.
    pub shared: BTreeSet<u32>,
    /// How that comes; none if they share none.
    pub cause: Option<SmOverlapCause>,
}

/// Why two streams run on the same SMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SmOverlapCause {
    /// One of them, or both, are of no green context, and have all SMs.
    NotPartitioned,
    /// The streams are of one green context.
    OnePartition,
    /// The hardware has added SMs, under MPS with an active-thread percentage: not an error.
    Mps,
    /// The hardware has added two SMs for dynamic parallelism, on compute capability 9.x: not an
    /// error.
    DynamicParallelism,
    /// They were given the same SMs: by two splits of the device ([`Overlap::Allow`], or made
    /// elsewhere), or one is a part of the other.
    ///
    /// [`Overlap::Allow`]: super::Overlap::Allow
    Given,
}

impl SmProbe {
    /// Compiles and loads the kernel.
    ///
    /// # Errors
    /// As for [`Module::from_ptx`].
    pub fn new(context: &Context) -> Result<Self> {
        let device = context.device();
        let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT)?;
        let reasons = Reasons {
            mps: may_be_mps(&device)?,
            dynamic_parallelism: device.compute_capability()?.0 == 9,
        };
        let kernel = Module::from_ptx(context, PTX)?.kernel(KERNEL)?.typed()?;
        Ok(Self {
            kernel,
            blocks: BLOCKS_PER_SM * sms.max(1),
            reasons,
        })
    }

    /// The context whose streams it is for, those of its green contexts too.
    pub fn context(&self) -> &Context {
        self.kernel.kernel().context()
    }

    /// Gives the kernel to the stream, and does not wait: so that several streams are probed at once.
    ///
    /// # Errors
    /// A stream of another context; one that is being captured; those of
    /// [`DeviceBuffer::zeroed`] and of a launch.
    pub fn start(&self, stream: &Stream) -> Result<SmProbing> {
        let given = match GreenContext::of_any_stream(stream) {
            Ok(green) => green.map(|green| green.sm_count()),
            // Where there are no green contexts it is of none.
            Err(Error::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        let mut found = DeviceBuffer::zeroed(stream, self.blocks as usize)?;
        // No graph has the launch, and the kernel of this crate with it.
        let _call = stream.uncaptured(Operation::Launch)?;
        let config = LaunchConfig::linear(self.blocks, THREADS);
        // SAFETY: the kernel writes one element for each of its blocks, and there are as many.
        unsafe { self.kernel.launch(stream, config, (&mut found, CYCLES)) }?;
        Ok(SmProbing {
            found,
            given,
            reasons: self.reasons,
        })
    }

    /// [`start`](Self::start) and [`finish`](SmProbing::finish): waits for the stream.
    ///
    /// # Errors
    /// As for these.
    pub fn trace(&self, stream: &Stream) -> Result<SmTrace> {
        self.start(stream)?.finish()
    }

    /// The SMs that work of the stream runs on, by their numbers: waits for the stream.
    ///
    /// # Errors
    /// As for [`trace`](Self::trace).
    pub fn sms(&self, stream: &Stream) -> Result<BTreeSet<u32>> {
        Ok(self.trace(stream)?.sms)
    }

    /// Where two streams run, at once, and what they have in common: waits for both.
    ///
    /// # Errors
    /// As for [`trace`](Self::trace).
    pub fn compare(&self, first: &Stream, second: &Stream) -> Result<SmOverlap> {
        let probing = [self.start(first)?, self.start(second)?];
        let [first_trace, second_trace] = probing.map(SmProbing::finish);
        let mut overlap = first_trace?.compare(&second_trace?);
        let one = overlap.cause == Some(SmOverlapCause::Given)
            && GreenContext::of_any_stream(first)? == GreenContext::of_any_stream(second)?;
        if one {
            overlap.cause = Some(SmOverlapCause::OnePartition);
        }
        Ok(overlap)
    }
}

/// Whether this process is a client of MPS, as well as can be said.
fn may_be_mps(device: &Device) -> Result<bool> {
    match device.attribute(attribute::MPS_ENABLED) {
        Ok(enabled) => Ok(enabled),
        Err(Error::Invalid(invalid)) if matches!(*invalid, Invalid::UnknownAttribute { .. }) => {
            Ok(std::env::var_os("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").is_some())
        }
        Err(error) => Err(error),
    }
}

impl SmProbing {
    /// Waits for the stream, and says where it ran.
    ///
    /// # Errors
    /// As for [`DeviceBuffer::to_vec`].
    pub fn finish(self) -> Result<SmTrace> {
        let sms = self.found.to_vec()?.into_iter().collect();
        Ok(SmTrace::new(sms, self.given, self.reasons))
    }
}

impl SmTrace {
    fn new(sms: BTreeSet<u32>, given: Option<u32>, reasons: Reasons) -> Self {
        let ran_on = u32::try_from(sms.len()).unwrap_or(u32::MAX);
        let count = given.map_or(0, |given| ran_on.saturating_sub(given));
        let added = (count > 0).then_some(AddedSms {
            count,
            by_mps: reasons.mps,
            by_dynamic_parallelism: reasons.dynamic_parallelism && count <= 2,
        });
        Self { sms, given, added }
    }

    /// What two streams have in common. (That they are of one green context is not known here: that is
    /// [`Given`](SmOverlapCause::Given), too.)
    pub fn compare(&self, second: &Self) -> SmOverlap {
        let (first, second) = (self.clone(), second.clone());
        let shared: BTreeSet<u32> = first.sms.intersection(&second.sms).copied().collect();
        let cause = (!shared.is_empty()).then(|| cause(&first, &second, shared.len()));
        SmOverlap {
            first,
            second,
            shared,
            cause,
        }
    }
}

/// Of two streams that share some SMs.
fn cause(first: &SmTrace, second: &SmTrace, shared: usize) -> SmOverlapCause {
    if first.given.is_none() || second.given.is_none() {
        return SmOverlapCause::NotPartitioned;
    }
    let added = [first.added, second.added].into_iter().flatten();
    let count: u32 = added.clone().map(|added| added.count).sum();
    // What was added to one may be the other's: so many can be shared by it, and no more.
    let explains = shared <= count as usize;
    if explains && added.clone().all(|added| added.by_dynamic_parallelism) {
        SmOverlapCause::DynamicParallelism
    } else if explains && added.clone().all(|added| added.by_mps) {
        SmOverlapCause::Mps
    } else {
        SmOverlapCause::Given
    }
}

impl SmOverlap {
    /// Whether what is shared is what the hardware adds, and not what was given twice: there is no
    /// mistake in how the device was split.
    pub fn is_by_hardware(&self) -> bool {
        matches!(
            self.cause,
            Some(SmOverlapCause::Mps | SmOverlapCause::DynamicParallelism)
        )
    }
}

impl fmt::Display for SmOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cause) = self.cause else {
            return f.write_str("they share no SM");
        };
        write!(f, "they share the SMs {:?}: {cause}", self.shared)
    }
}

impl fmt::Display for SmOverlapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPartitioned => "not both are of a green context",
            Self::OnePartition => "they are of one green context",
            Self::Mps => {
                "added by the hardware, as it may under MPS with an active-thread percentage"
            }
            Self::DynamicParallelism => {
                "added by the hardware, as it does on compute capability 9.x beside modules that \
                 launch kernels from kernels"
            }
            Self::Given => "the partitions were given the same ones",
        })
    }
}

impl fmt::Display for AddedSms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more than given, ", self.count)?;
        f.write_str(match (self.by_dynamic_parallelism, self.by_mps) {
            (true, false) => {
                "as it may be beside modules that launch kernels from kernels (compute capability \
                 9.x)"
            }
            (false, true) => "as it may be under MPS with an active-thread percentage",
            (true, true) => {
                "as it may be beside modules that launch kernels from kernels (compute capability \
                 9.x), and under MPS with an active-thread percentage"
            }
            (false, false) => "for which there is no known reason",
        })
    }
}

impl fmt::Debug for SmProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmProbe")
            .field("kernel", self.kernel.kernel())
            .field("blocks", &self.blocks)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Reasons, SmOverlapCause, SmTrace};
    use std::ops::Range;

    const HOPPER: Reasons = Reasons {
        mps: false,
        dynamic_parallelism: true,
    };
    const MPS: Reasons = Reasons {
        mps: true,
        dynamic_parallelism: false,
    };
    const NONE: Reasons = Reasons {
        mps: false,
        dynamic_parallelism: false,
    };

    fn trace(ran_on: Range<u32>, given: u32, reasons: Reasons) -> SmTrace {
        SmTrace::new(ran_on.collect(), Some(given), reasons)
    }

    fn cause(first: SmTrace, second: SmTrace) -> Option<SmOverlapCause> {
        first.compare(&second).cause
    }

    #[test]
    fn partitions_on_what_they_were_given_share_nothing() {
        let (first, second) = (trace(0..8, 8, HOPPER), trace(8..16, 8, HOPPER));
        assert_eq!((first.added, second.added), (None, None));
        assert_eq!(cause(first, second), None);
    }

    #[test]
    fn two_sms_more_on_hopper_are_dynamic_parallelism() {
        let (first, second) = (trace(0..10, 8, HOPPER), trace(8..18, 8, HOPPER));
        let overlap = first.compare(&second);
        assert_eq!(overlap.cause, Some(SmOverlapCause::DynamicParallelism));
        assert!(overlap.is_by_hardware());
        assert_eq!(overlap.shared, [8, 9].into());
    }

    #[test]
    fn more_under_mps_is_mps() {
        let (first, second) = (trace(0..16, 8, MPS), trace(0..16, 8, MPS));
        assert_eq!(cause(first, second), Some(SmOverlapCause::Mps));
        let three = trace(
            0..11,
            8,
            Reasons {
                mps: true,
                ..HOPPER
            },
        );
        let added = three.added.expect("three more");
        assert!(added.by_mps && !added.by_dynamic_parallelism);
    }

    #[test]
    fn what_nothing_added_was_given_twice() {
        let twice = Some(SmOverlapCause::Given);
        assert_eq!(cause(trace(0..8, 8, HOPPER), trace(0..8, 8, HOPPER)), twice);
        // More is shared than was added.
        let (first, second) = (trace(0..9, 8, HOPPER), trace(0..9, 8, HOPPER));
        assert_eq!(cause(first, second), twice);
        // More, for no reason that is known.
        let (first, second) = (trace(0..10, 8, NONE), trace(8..18, 8, NONE));
        assert_eq!(cause(first, second), twice);
    }

    #[test]
    fn a_stream_of_no_partition_shares_by_right() {
        let whole = SmTrace::new((0..132).collect(), None, HOPPER);
        let part = trace(0..8, 8, HOPPER);
        assert_eq!(cause(whole, part), Some(SmOverlapCause::NotPartitioned));
    }
}
