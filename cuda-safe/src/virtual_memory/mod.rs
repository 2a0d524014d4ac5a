//! Virtual memory management: physical memory that is mapped to addresses of the program's choice.
//!
//! | Type | What it is | C |
//! |---|---|---|
//! | [`PhysicalMemory`] | memory without an address | `cuMemCreate` |
//! | [`Reservation`] | addresses without memory | `cuMemAddressReserve` |
//! | [`Mapping`] | memory at addresses, with the access of devices | `cuMemMap`, `cuMemSetAccess` |
//! | [`GrowableBuffer`] | a buffer that grows without moving | all of these |
//! | [`MulticastObject`] | memory of several devices behind one address (unverified) | `cuMulticastCreate` |
//! | [`LogicalEndpoint`] | memory behind a number, for the fabric (unverified) | `cuLogicalEndpointCreate` |
//! | [`FabricCopyBatch`] | copies from and to endpoints (unverified) | `cuFabricCpyBatchAsync` |
//!
//! None of the first three belongs to a context, and all of them may be used on any thread. A mapping is
//! used by work after it was [bound to a stream](Mapping::into_buffer).
//!
//! # Unmapping
//! The driver unmaps at once, whether work uses the memory or not: such work then fails with
//! `CUDA_ERROR_ILLEGAL_ADDRESS`, which ends all contexts of the process (driver 580). Here, memory that is
//! bound to a stream is unmapped after the work on the stream. The thread does not wait: an event is
//! recorded, and a later call of this crate unmaps the memory. See
//! [`reference::releases`](crate::reference::releases).
//!
//! # Sharing
//! [`PhysicalMemory::export`] returns a file descriptor, with which another process
//! [imports](PhysicalMemory::import) the memory. [`FabricHandle`]s do the same between machines.

mod binding;
mod endpoint;
pub(crate) mod fabric_copy;
mod growable;
mod mapping;
mod multicast;
mod physical;

pub use binding::{Bindable, Binding};
pub use endpoint::{
    EndpointDevices, EndpointHandle, EndpointIds, EndpointLimits, EndpointOptions, LogicalEndpoint,
    PendingEndpoint,
};
pub use growable::{GrowableBuffer, GrowableOptions};
pub use mapping::{Mapping, Reservation, ReservationOptions, unmap_after_work};
pub use multicast::{MulticastMapping, MulticastObject, MulticastOptions, MulticastTeam};
pub(crate) use physical::check_within;
pub use physical::{FabricHandle, PhysicalMemory, PhysicalOptions, PhysicalProperties, Shareable};

pub use crate::virtual_memory::fabric_copy::FabricCopyBatch;
