//! The work of operations.

use super::{Conditional, Decompression, FabricCopy, HostFunction, Joint, Runnable};
use crate::memory::Attached;
use core::ffi::{c_char, c_void};
use cuda_sys::CUstreamAtomicReductionOpType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The effect of an operation.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Box<Call>),
    /// A copy of bytes that were staged when the copy was enqueued.
    CopyIn {
        to: u64,
        bytes: Vec<u8>,
    },
    /// A copy from pinned memory, which is read when the copy runs.
    CopyInPinned {
        to: u64,
        from: usize,
        len: usize,
    },
    /// A copy to pinned memory.
    CopyOut {
        from: u64,
        to: usize,
        len: usize,
    },
    /// A copy from pageable memory. That of a graph is [staged](Work::staged) when the graph is launched,
    /// and that of a batch is read when the copy runs.
    CopyInHost {
        to: u64,
        from: usize,
        len: usize,
    },
    /// A copy to pageable memory. The launch of a graph waits for it, and a batch does not.
    CopyOutHost {
        from: u64,
        to: usize,
        len: usize,
    },
    CopyOnDevice {
        from: u64,
        to: u64,
        len: usize,
    },
    CopyOnHost {
        from: usize,
        to: usize,
        len: usize,
        /// Whether the copy fails if the memory is not pinned when it runs.
        must_be_pinned: bool,
    },
    Fill {
        at: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    /// Attaches managed memory to a stream or to the host.
    Attach(usize, Attached),
    Decompress(Box<Decompression>),
    Fabric(Box<FabricCopy>),
    /// Writes a word of device memory or pinned memory.
    WriteValue {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Changes a word of device memory or pinned memory by an atomic operation.
    ReduceValue {
        at: u64,
        value: u64,
        size: usize,
        reduction: CUstreamAtomicReductionOpType,
    },
    /// Waits until a word of memory fulfills the condition, which is given by its value in C.
    WaitValue {
        at: u64,
        value: u64,
        size: usize,
        condition: u32,
    },
    /// Makes memory usable whose address is already known.
    Allocate(u64),
    Free(u64),
    /// Sets the values of conditional handles at the start of a launch.
    SetConditionals(Vec<(u64, u32)>),
    /// A conditional node of a graph.
    Conditional(Box<Conditional>),
    /// The end of a body of the conditional node that is this operation.
    EndOfBody(u64),
    Record {
        event: usize,
    },
    /// Waits for the operation that the event has recorded when the graph is launched.
    WaitFor {
        event: usize,
    },
    /// Runs on the host without the driver's lock.
    HostFn {
        function: HostFunction,
        data: *mut c_void,
    },
    /// Arrives at work that several streams do together.
    Arrive(Arc<dyn Joint>),
    /// Waits until all streams have arrived.
    Leave(Arc<dyn Joint>),
    /// The position in its stream of a copy that the call makes itself after this operation.
    CopyByCall,
    /// Several operations that run as one.
    All(Vec<Self>),
    /// Has no effect, only an order.
    Nothing,
}

// SAFETY: the pointer of a callback is passed on and never dereferenced, and `cuLaunchHostFunc` requires
// that the function may run on any thread.
unsafe impl Send for Work {}
// SAFETY: nothing changes work through a shared reference, and the pointer of a callback is never
// dereferenced. The bodies of conditional nodes are shared.
unsafe impl Sync for Work {}

/// A kernel launch.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) kernel: Runnable,
    /// The context whose memory the kernel may use.
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cluster: [u32; 3],
    pub(crate) cooperative: bool,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The length of the buffer, if the caller passed the arguments as one (`extra`).
    pub(crate) packed: Option<usize>,
    /// The SMs that the kernel may run on.
    pub(crate) sms: Arc<[u32]>,
    /// The green context that the kernel runs in, by its id, and the green contexts that this one is a
    /// part of.
    pub(crate) partition: Option<(u64, Vec<u64>)>,
    /// The attributes of the launch, by number.
    pub(crate) attributes: BTreeMap<u32, [c_char; 64]>,
    /// The executable graph that the launch is a part of.
    pub(crate) executable: Option<usize>,
}

impl Call {
    /// Returns whether both kernels run in partitions that overlap although neither is a part of the
    /// other.
    pub(super) fn shares_sms(&self, other: &Self) -> bool {
        let (Some((its, wholes)), Some((others, other_wholes))) =
            (&self.partition, &other.partition)
        else {
            return false;
        };
        let is_one = its == others || wholes.contains(others) || other_wholes.contains(its);
        let same_device = self.device == other.device;
        same_device && !is_one && self.sms.iter().any(|sm| other.sms.contains(sm))
    }
}
impl Work {
    /// Reads the pageable memory of a copy now (measured: a launch reads it before it returns).
    pub(crate) fn staged(self) -> Self {
        match self {
            Self::CopyInHost { to, from, len } => {
                let mut bytes = vec![0; len];
                let source = core::ptr::with_exposed_provenance(from);
                // SAFETY: the caller that launches the graph guarantees that the copy's `len` bytes are
                // readable. The target has the same length and does not overlap the source.
                unsafe { core::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), len) };
                Self::CopyIn { to, bytes }
            }
            Self::All(parts) => Self::All(parts.into_iter().map(Self::staged).collect()),
            other => other,
        }
    }

    /// Returns whether a call that enqueues the work waits for it (measured): a copy to pageable memory, and one
    /// within host memory, even if it is pinned.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::CopyOutHost { .. } | Self::CopyOnHost { .. } => true,
            Self::All(parts) => parts.iter().any(Self::is_awaited),
            _ => false,
        }
    }
}

/// Returns whether an operation runs on the host even after a failure.
pub(super) fn is_told_of_failures(work: &Work) -> bool {
    let Work::HostFn { function, .. } = work else {
        return false;
    };
    matches!(function, HostFunction::WithResult(..))
}
