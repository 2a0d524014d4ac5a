//! Green contexts: partitions of a GPU's streaming multiprocessors (SMs), each with its own streams.
//!
//! 1. [`SmResource::of_device`] returns the device's SMs.
//! 2. [`SmResource::split_by_count`] splits them into [`SmGroup`]s and a remainder. Creating a green
//!    context consumes its groups, so the partitions of one split share no SM. A second split of the
//!    device would return the same SMs again. It fails while parts of the first are in use, unless
//!    [`Overlap::Allow`] is given. [`SmResource::partition`] splits into requested sizes, as closely as
//!    the driver can.
//! 3. [`GreenContext::new`] creates a partition of one or more groups.
//! 4. Work enqueued on a [`GreenContext::stream`] runs on the partition's SMs.
//!
//! These streams use the memory and kernels of the device's primary context. They can capture a graph:
//! captured work runs on the SMs of the stream on which it was captured, whichever stream the graph is
//! [launched](crate::ExecutableGraph::launch) into.
//!
//! Disjoint partitions do not necessarily make progress independently, because they share caches,
//! memory bandwidth and hardware queues. A partition gets *more* SMs than requested in two cases: under
//! MPS with an active-thread percentage, and, on compute capability 9.x, for modules whose kernels
//! launch kernels (two more SMs, shared by all partitions). An [`SmProbe`] shows where work runs.
//!
//! **Destroying a green context does not free all of its memory** on driver 580: 4 MiB of device memory
//! and 1.7 MiB of host memory stay allocated each time (the device memory until the primary context is
//! destroyed). Create few green contexts and reuse them, for example with a [`GreenPool`].
//!
//! Since CUDA 12.4.
//!
//! ```no_run
//! use cuda_safe::Device;
//! use cuda_safe::green::{PartitionRequest, SmResource, PartitionSize};
//!
//! // Works on every driver with green contexts: one partition of at least 16 SMs, and one of the rest.
//! let device = Device::get(0)?;
//! let partitions = SmResource::of_device(&device)?.partition(&PartitionRequest {
//!     sizes: vec![PartitionSize::Sms(16), PartitionSize::Rest],
//!     label: "the server".to_owned(),
//!     ..Default::default()
//! })?;
//! for part in partitions.parts {
//!     let partition = part.create()?;
//!     println!("{} SMs: {:?}", partition.sm_count(), partition.stream()?);
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```

mod context;
mod current;
mod descriptor;
mod plan;
mod pool;
mod probe;
mod resource;
mod split;
mod split_guard;

pub use context::GreenContext;
pub use current::CurrentGreenContext;
pub use descriptor::{Descriptor, WorkqueueScope, Workqueues};
pub use plan::{
    EqualSplit, Method, Part, PartitionRequest, PartitionSize, Partitions, Plan, PlannedPart,
};
pub use pool::{GreenPool, GreenPoolOptions, GreenPoolStats, Lease, PooledPartition};
pub use probe::{AddedSms, SmOverlap, SmOverlapCause, SmProbe, SmProbing, SmTrace};
pub use resource::{Granularity, SmGroup, SmProperties, SmResource};
pub use split::{ExactSplit, GroupFlags, GroupRequest, Split, SplitByCount, SplitFlags};
pub use split_guard::Overlap;
