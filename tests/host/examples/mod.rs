//! Code that the examples share.

mod percentiles;
mod trace;
