//! The packages of the project: how they are built, tested and published.

pub(crate) mod adopters;
pub(crate) mod deny;
pub(crate) mod pack;
pub(crate) mod publish;
pub(crate) mod python;
pub(crate) mod sbom;
pub(crate) mod semver;
pub(crate) mod wheels;
