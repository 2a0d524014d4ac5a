//! Virtual memory management: address ranges, physical memory, and mappings between them.

mod access;
mod after_work;
mod endpoint;
mod growable;
mod mapping;
mod multicast;
mod options;
mod physical;
mod range;
mod reservation;
mod share;

pub use after_work::unmap_after_work;
pub use endpoint::{
    EndpointBinding, EndpointDevices, EndpointHandle, EndpointIds, EndpointLimits, EndpointOptions,
    LogicalEndpoint, PendingEndpoint,
};
pub use growable::{GrowableBuffer, GrowableOptions};
pub(super) use mapping::MappedMemory;
pub use mapping::Mapping;
pub use multicast::{
    MulticastBinding, MulticastMapping, MulticastObject, MulticastOptions, MulticastTeam,
};
pub(super) use options::check_within;
pub use options::{PhysicalOptions, Shareable};
pub use physical::{PhysicalMemory, PhysicalProperties};
pub use reservation::{Reservation, ReservationOptions};
pub use share::FabricHandle;
