//! Virtual memory management: address ranges, physical memory, and mappings between them.

mod access;
mod growable;
mod mapping;
mod options;
mod physical;
mod range;
mod reservation;
mod share;

pub use growable::{GrowableBuffer, GrowableOptions};
pub(super) use mapping::MappedMemory;
pub use mapping::Mapping;
pub use options::{PhysicalOptions, Shareable};
pub use physical::{PhysicalMemory, PhysicalProperties};
pub use reservation::{Reservation, ReservationOptions};
pub use share::FabricHandle;
