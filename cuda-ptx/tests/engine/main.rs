//! The engine runs kernels.

mod control;
mod device;
mod faults;
mod memory;
mod warps;
