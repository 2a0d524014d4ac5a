//! Checks of the sources.

pub(crate) mod inline;
pub(crate) mod layers;
pub(crate) mod ptx;
