//! Suites of crates.

use super::list::{Client, Suite};
use super::{Setting, Test};
use anyhow::{Result, bail};

/// Downloads the crate and builds its tests.
pub(super) fn install(client: &Client, _: &Setting) -> Result<()> {
    bail!(
        "{}: clients from crates.io are not supported",
        client.package
    )
}

/// Runs a suite.
pub(super) fn run(client: &Client, _: &Suite, _: &Setting) -> Result<Vec<Test>> {
    bail!(
        "{}: clients from crates.io are not supported",
        client.package
    )
}
