//! The engine runs kernels.

mod control;
mod corpus;
mod device;
mod faults;
mod memory;
mod warps;
