//! Arrays of other libraries, without a driver.

mod array_interface;
mod dlpack;
mod layouts;
