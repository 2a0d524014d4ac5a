//! Drops in any order, and objects of other code.

pub(crate) mod drops;
pub(crate) mod foreign;
