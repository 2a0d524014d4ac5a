//! The items of `cuda-sys` that describe the driver API.

mod constants;
mod function;
mod out;
mod rows;
mod version;
