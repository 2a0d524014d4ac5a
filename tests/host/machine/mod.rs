//! Machines without a driver, or with an unsuitable one.

mod no_driver;
mod no_gpu;
mod not_a_driver;
mod old_driver;
mod stub;
