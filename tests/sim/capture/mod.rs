//! Captures: refusals, joins, and retained objects.

pub(crate) mod errors;
pub(crate) mod graphs;
pub(crate) mod joins;
pub(crate) mod recaptures;
pub(crate) mod retained;
