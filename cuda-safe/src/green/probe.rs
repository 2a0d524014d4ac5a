//! A probe that shows on which SMs the work of a stream runs.

use super::GreenContext;
use crate::call::{Error, Invalid, Result, debug_struct};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::device::attribute;
use crate::launch::{LaunchConfig, TypedKernel};
use crate::memory::DeviceBuffer;
use crate::module::Module;
use crate::stream::Stream;
use std::collections::BTreeSet;
use std::fmt;

const PTX: &str = include_str!("probe/record.ptx");
const KERNEL: &str = "cuda_safe_record_sm";

/// Twice as many blocks per SM as an SM holds at once, so that even the whole device is filled. Each
/// block runs long enough for the other blocks to be scheduled on other SMs. Under Miri, which is slow, the only driver
/// is a software driver, which distributes the blocks evenly.
const BLOCKS_PER_SM: u32 = if cfg!(miri) { 1 } else { 64 };
const THREADS: u32 = if cfg!(miri) { 1 } else { 32 };
const CYCLES: u32 = if cfg!(miri) { 1 } else { 50_000 };

/// A diagnostic that shows on which SMs the work of a stream runs. Create one with [`SmProbe::new`].
///
/// It runs a small kernel that records `%smid`.
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
/// # Cost
/// Creating a probe compiles and loads a module, which waits for all running work of the context, and
/// queries four attributes of the device. Dropping the last clone unloads the module, which waits too.
/// Each [`start`](Self::start) allocates and zeroes 4 bytes on the stream for each block of the kernel
/// (64 per SM of the device), launches the kernel, and does not wait. For a stream that was not created
/// from a [`GreenContext`] here, it also asks the driver for the green context.
/// [`SmProbing::synchronize`] waits for the stream and copies the result. A probe takes about 100 µs on
/// a whole device, and a millisecond on an eighth of it.
///
/// # Limitations
/// The probe misses an SM that other work keeps full for the whole time, so run it on an idle
/// partition. The SMs that it reports are correct in any case.
///
/// The simulator `cuda-sim` has the kernel built in.
#[derive(Clone)]
pub struct SmProbe {
    kernel: TypedKernel<(&'static mut [u32], u32)>,
    blocks: u32,
    reasons: Reasons,
}

/// The reasons for which partitions may get more SMs than they were given on this device.
#[derive(Clone, Copy, Debug, Default)]
struct Reasons {
    /// Whether this process is an MPS client.
    mps: bool,
    /// Whether modules that launch kernels from kernels add SMs.
    dynamic_parallelism: bool,
}

/// A running probe, returned by [`SmProbe::start`]. If it is dropped, the kernel still runs.
#[must_use = "call `synchronize` to get the result"]
#[derive(Debug)]
pub struct SmProbing {
    sm_ids: DeviceBuffer<u32>,
    given: Option<u32>,
    reasons: Reasons,
}

/// The SMs on which a stream ran, and the number of SMs that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmTrace {
    /// The SM IDs. They are not all below the device's number of SMs.
    pub sms: BTreeSet<u32>,
    /// The number of SMs of the stream's green context, as reported by the driver. `None` if the stream
    /// belongs to no green context and may use all SMs.
    pub given: Option<u32>,
    /// The SMs beyond those given, with the possible reasons. `None` if there are none.
    pub added: Option<AddedSms>,
}

/// SMs beyond those that a partition was given, with the known reasons that may explain them. This is
/// how the hardware works and breaks no guarantee of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddedSms {
    /// The number of added SMs.
    pub count: u32,
    /// Whether MPS may have added them.
    ///
    /// This process is an MPS client, and with an active-thread percentage
    /// (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`) partitions may run on all SMs of the client.
    pub by_mps: bool,
    /// Whether dynamic parallelism may have added them.
    ///
    /// The device has compute capability 9.x, and the count is at most the two SMs that all partitions
    /// share once a module that launches kernels from kernels is loaded. Kernels launched by a kernel
    /// are not confined to the partition at all: on an H200 with driver 580 they run on every SM of the
    /// device.
    pub by_dynamic_parallelism: bool,
}

/// The SMs that two streams share. Returned by [`SmProbe::compare`] and [`SmTrace::compare`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmOverlap {
    /// The trace of the first stream.
    pub first: SmTrace,
    /// The trace of the second stream.
    pub second: SmTrace,
    /// The SMs on which both streams ran.
    pub shared: BTreeSet<u32>,
    /// Why they share SMs, or `None` if they share none.
    pub cause: Option<SmOverlapCause>,
}

/// Why two streams run on the same SMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SmOverlapCause {
    /// At least one of the streams belongs to no green context and may use all SMs.
    NotPartitioned,
    /// Both streams belong to the same green context.
    OnePartition,
    /// The hardware added SMs under MPS with an active-thread percentage. This is not an error.
    Mps,
    /// The hardware added two SMs for dynamic parallelism, on compute capability 9.x. This is not an
    /// error.
    DynamicParallelism,
    /// The partitions were given the same SMs: by two splits of the device (with [`Overlap::Allow`], or
    /// made elsewhere), or because one partition is a part of the other.
    ///
    /// [`Overlap::Allow`]: super::Overlap::Allow
    Given,
}

impl SmProbe {
    /// Compiles and loads the kernel.
    ///
    /// # Errors
    /// See [`Module::from_ptx`].
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        let device = context.device();
        let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT)?;
        let mps = match device.attribute(attribute::MPS_ENABLED) {
            // A driver before CUDA 12.3 does not know the attribute, and has no partitions.
            Err(Error::Invalid(why)) if matches!(*why, Invalid::UnknownAttribute { .. }) => false,
            is_enabled => is_enabled?,
        };
        let reasons = Reasons { mps, dynamic_parallelism: device.compute_capability()?.0 == 9 };
        let kernel = Module::from_ptx(context, PTX)?.kernel(KERNEL)?.typed()?;
        Ok(Self { kernel, blocks: BLOCKS_PER_SM * sms.max(1), reasons })
    }

    /// Returns the context whose streams can be probed, including streams of its green contexts.
    #[inline]
    pub fn context(&self) -> &Context {
        self.kernel.kernel().context()
    }

    /// Launches the kernel on the stream without waiting, so that several streams can be probed at
    /// once.
    ///
    /// # Errors
    /// The stream belongs to another context or is being captured. See also [`DeviceBuffer::zeroed`].
    /// Errors of a kernel launch.
    #[inline]
    pub fn start(&self, stream: &Stream) -> Result<SmProbing> {
        let given = match GreenContext::of_any_stream(stream) {
            Ok(green) => green.map(|green| green.sm_count()),
            // If the driver has no green contexts, the stream belongs to none.
            Err(Error::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        let mut sm_ids = DeviceBuffer::zeroed(stream, self.blocks as usize)?;
        // No graph may contain the launch, because it would retain this crate's kernel.
        let _call = stream.uncaptured(Operation::Launch)?;
        let config = LaunchConfig::linear(self.blocks, THREADS);
        // SAFETY: the kernel writes one element per block, and the buffer has one element per block.
        unsafe { self.kernel.launch(stream, config, (&mut sm_ids, CYCLES)) }?;
        Ok(SmProbing { sm_ids, given, reasons: self.reasons })
    }

    /// Calls [`start`](Self::start) and [`synchronize`](SmProbing::synchronize). Blocks until the stream
    /// has run the kernel.
    ///
    /// # Errors
    /// See [`start`](Self::start) and [`synchronize`](SmProbing::synchronize).
    #[inline]
    pub fn trace(&self, stream: &Stream) -> Result<SmTrace> {
        self.start(stream)?.synchronize()
    }

    /// Returns the IDs of the SMs on which work of the stream runs. Blocks until the stream has run the
    /// kernel.
    ///
    /// # Errors
    /// See [`trace`](Self::trace).
    #[inline]
    pub fn sms(&self, stream: &Stream) -> Result<BTreeSet<u32>> {
        Ok(self.trace(stream)?.sms)
    }

    /// Probes two streams at the same time and compares their SMs. Blocks until both have run the
    /// kernel.
    ///
    /// # Errors
    /// See [`trace`](Self::trace).
    #[inline]
    pub fn compare(&self, first: &Stream, second: &Stream) -> Result<SmOverlap> {
        let probing = [self.start(first)?, self.start(second)?];
        let [first_trace, second_trace] = probing.map(SmProbing::synchronize);
        let mut overlap = first_trace?.compare(&second_trace?);
        let is_one_partition = overlap.cause == Some(SmOverlapCause::Given)
            && GreenContext::of_any_stream(first)? == GreenContext::of_any_stream(second)?;
        if is_one_partition {
            overlap.cause = Some(SmOverlapCause::OnePartition);
        }
        Ok(overlap)
    }
}

impl SmProbing {
    /// Blocks until the stream has run the kernel and returns the SMs on which it ran.
    ///
    /// # Errors
    /// See [`DeviceBuffer::to_vec`].
    #[inline]
    pub fn synchronize(self) -> Result<SmTrace> {
        let sms = self.sm_ids.to_vec()?.into_iter().collect();
        Ok(SmTrace::new(sms, self.given, self.reasons))
    }
}

impl SmTrace {
    #[inline]
    fn new(sms: BTreeSet<u32>, given: Option<u32>, reasons: Reasons) -> Self {
        let used_sms = u32::try_from(sms.len()).unwrap_or(u32::MAX);
        let count = given.map_or(0, |given| used_sms.saturating_sub(given));
        let added = (count > 0).then_some(AddedSms {
            count,
            by_mps: reasons.mps,
            by_dynamic_parallelism: reasons.dynamic_parallelism && count <= 2,
        });
        Self { sms, given, added }
    }

    /// Compares the SMs of two streams.
    ///
    /// Traces do not contain the green context, so two streams of one green context are reported as
    /// [`Given`](SmOverlapCause::Given).
    #[inline]
    pub fn compare(&self, second: &Self) -> SmOverlap {
        let (first, second) = (self.clone(), second.clone());
        let shared: BTreeSet<u32> = first.sms.intersection(&second.sms).copied().collect();
        let cause = (!shared.is_empty()).then(|| cause(&first, &second, shared.len()));
        SmOverlap { first, second, shared, cause }
    }
}

/// Returns why two streams share SMs.
#[inline]
fn cause(first: &SmTrace, second: &SmTrace, shared: usize) -> SmOverlapCause {
    if first.given.is_none() || second.given.is_none() {
        return SmOverlapCause::NotPartitioned;
    }
    let added = [first.added, second.added].into_iter().flatten();
    let count: u32 = added.clone().map(|added| added.count).sum();
    // An SM added to one stream may belong to the other, so the number of added SMs limits how many
    // shared ones they explain.
    let is_explained = shared <= count as usize;
    if is_explained && added.clone().all(|added| added.by_dynamic_parallelism) {
        SmOverlapCause::DynamicParallelism
    } else if is_explained && added.clone().all(|added| added.by_mps) {
        SmOverlapCause::Mps
    } else {
        SmOverlapCause::Given
    }
}

impl SmOverlap {
    /// Returns whether the hardware added the shared SMs. The device was then split correctly.
    #[inline]
    pub fn is_by_hardware(&self) -> bool {
        matches!(self.cause, Some(SmOverlapCause::Mps | SmOverlapCause::DynamicParallelism))
    }
}

impl fmt::Display for SmOverlap {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cause) = self.cause else { return f.write_str("the streams share no SMs") };
        write!(f, "the streams share SMs {:?}: {cause}", self.shared)
    }
}

impl fmt::Display for SmOverlapCause {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPartitioned => "at least one stream belongs to no green context",
            Self::OnePartition => "both streams belong to the same green context",
            Self::Mps => {
                "the hardware may add SMs under MPS with an active-thread percentage"
            }
            Self::DynamicParallelism => {
                "on compute capability 9.x the hardware adds SMs once a module that launches kernels \
                 from kernels is loaded"
            }
            Self::Given => "the partitions were given the same SMs",
        })
    }
}

impl fmt::Display for AddedSms {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more SMs than given; possible reason: ", self.count)?;
        f.write_str(match (self.by_dynamic_parallelism, self.by_mps) {
            (true, false) => "modules that launch kernels from kernels (compute capability 9.x)",
            (false, true) => "MPS with an active-thread percentage",
            (true, true) => {
                "modules that launch kernels from kernels (compute capability 9.x), or MPS with an \
                 active-thread percentage"
            }
            (false, false) => "none known",
        })
    }
}

debug_struct! { SmProbe |its| { kernel: its.kernel.kernel(), blocks: its.blocks } }

#[cfg(test)]
mod tests {
    use super::{Reasons, SmOverlapCause, SmTrace};
    use std::ops::Range;

    const HOPPER: Reasons = Reasons { mps: false, dynamic_parallelism: true };
    const MPS: Reasons = Reasons { mps: true, dynamic_parallelism: false };
    const NONE: Reasons = Reasons { mps: false, dynamic_parallelism: false };

    fn trace(used_sms: Range<u32>, given: u32, reasons: Reasons) -> SmTrace {
        SmTrace::new(used_sms.collect(), Some(given), reasons)
    }

    fn cause(first: SmTrace, second: SmTrace) -> Option<SmOverlapCause> {
        first.compare(&second).cause
    }

    #[test]
    fn partitions_that_run_on_their_own_sms_share_none() {
        let (first, second) = (trace(0..8, 8, HOPPER), trace(8..16, 8, HOPPER));
        assert_eq!((first.added, second.added), (None, None));
        assert_eq!(cause(first, second), None);
    }

    #[test]
    fn two_extra_sms_on_hopper_are_dynamic_parallelism() {
        let (first, second) = (trace(0..10, 8, HOPPER), trace(8..18, 8, HOPPER));
        let overlap = first.compare(&second);
        assert_eq!(overlap.cause, Some(SmOverlapCause::DynamicParallelism));
        assert!(overlap.is_by_hardware());
        assert_eq!(overlap.shared, [8, 9].into());
    }

    #[test]
    fn extra_sms_under_mps_are_attributed_to_mps() {
        let (first, second) = (trace(0..16, 8, MPS), trace(0..16, 8, MPS));
        assert_eq!(cause(first, second), Some(SmOverlapCause::Mps));
        let three = trace(0..11, 8, Reasons { mps: true, ..HOPPER });
        let added = three.added.expect("three added SMs");
        assert!(added.by_mps && !added.by_dynamic_parallelism);
    }

    #[test]
    fn shared_sms_that_were_not_added_were_given_to_both() {
        let twice = Some(SmOverlapCause::Given);
        assert_eq!(cause(trace(0..8, 8, HOPPER), trace(0..8, 8, HOPPER)), twice);
        // More SMs are shared than were added.
        let (first, second) = (trace(0..9, 8, HOPPER), trace(0..9, 8, HOPPER));
        assert_eq!(cause(first, second), twice);
        // SMs were added for no known reason.
        let (first, second) = (trace(0..10, 8, NONE), trace(8..18, 8, NONE));
        assert_eq!(cause(first, second), twice);
    }

    #[test]
    fn a_stream_without_a_partition_may_share_sms() {
        let whole = SmTrace::new((0..132).collect(), None, HOPPER);
        let part = trace(0..8, 8, HOPPER);
        assert_eq!(cause(whole, part), Some(SmOverlapCause::NotPartitioned));
    }
}
