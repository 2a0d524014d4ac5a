//! Green contexts: a GPU's multiprocessors (SMs) in partitions, each with streams of its own.
//!
//! 1. [`SmResource::of_device`] asks for the device's SMs.
//! 2. [`SmResource::split_by_count`] splits them into [`SmGroup`]s and a remainder. A split consumes
//!    what it splits, and a group goes into one green context: partitions of one split share no SM,
//!    by ownership. (A second split of the device would hand out the same SMs again; it is refused
//!    while parts of the first are in use, unless [`Overlap::Allow`] is given.)
//!    [`SmResource::partition`] does this for sizes that one wishes, as well as the driver can.
//! 3. [`GreenContext::new`] makes a partition of one or several groups.
//! 4. Work given to a [`GreenContext::stream`] runs on the partition's SMs.
//!
//! Memory and kernels of the device's primary context are used on those streams. A graph is recorded
//! on them: what was recorded on another stream runs on that one's SMs, whichever stream it is
//! [launched](crate::ExecutableGraph::launch) into.
//!
//! Disjoint partitions need not make progress independently: caches, memory bandwidth and the
//! queues to the hardware are shared. Two cases give a partition *more* SMs than it was given: MPS
//! with an active-thread percentage, and, on compute capability 9.x, modules that launch kernels
//! from kernels (two SMs more, shared by all partitions). An [`SmProbe`] shows where work runs.
//!
//! **Destroying a green context does not give all of its memory back** on driver 580: 4 MiB of
//! device memory and 1.7 MiB of host memory stay each time (the device's part until the primary
//! context goes). Make few, and keep them: a [`GreenPool`] does.
//!
//! Since CUDA 12.4.
//!
//! ```no_run
//! use cuda_safe::Device;
//! use cuda_safe::green::{Partitioning, SmResource, Wish};
//!
//! // On any driver that has green contexts: at least 16 SMs for what is urgent, and the rest.
//! let device = Device::get(0)?;
//! let partitions = SmResource::of_device(&device)?.partition(&Partitioning {
//!     wishes: vec![Wish::Sms(16), Wish::Rest],
//!     label: "the server".to_owned(),
//!     ..Default::default()
//! })?;
//! for part in partitions.parts {
//!     let partition = part.create()?;
//!     println!("{} SMs: {:?}", partition.sm_count(), partition.stream()?);
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```

mod calls;
mod claim;
mod context;
mod current;
mod descriptor;
mod exact;
mod partition;
mod plan;
mod pool;
mod probe;
mod resource;
mod split;
mod workqueue;

pub use claim::Overlap;
pub use context::GreenContext;
pub use current::CurrentGreenContext;
pub use descriptor::Descriptor;
pub use exact::{ExactSplit, GroupFlags, GroupRequest};
pub use partition::{Part, Partitioning, Partitions, Wish};
pub use plan::{EqualSplit, Method, Plan, PlannedPart};
pub use pool::{GreenPool, GreenPoolFigures, GreenPoolOptions, Lease, PooledPartition};
pub use probe::{AddedSms, SmOverlap, SmOverlapCause, SmProbe, SmProbing, SmTrace};
pub use resource::{Granularity, SmGroup, SmProperties, SmResource};
pub use split::{Split, SplitByCount, SplitFlags};
pub use workqueue::{WorkqueueScope, Workqueues};
