//! Commands that run the tests in special ways.

pub(crate) mod asan;
pub(crate) mod explore;
pub(crate) mod line_coverage;
pub(crate) mod mutants;
pub(crate) mod profiles;
pub(crate) mod seeds;
pub(crate) mod test_binary;
pub(crate) mod uncalled;
