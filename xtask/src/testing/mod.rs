//! Commands that run the tests in special ways.

pub(crate) mod asan;
pub(crate) mod differ;
pub(crate) mod explore;
pub(crate) mod line_coverage;
pub(crate) mod miri;
pub(crate) mod mutants;
pub(crate) mod profiles;
pub(crate) mod seeds;
pub(crate) mod test_binary;
pub(crate) mod uncalled;

use anyhow::{Result, ensure};

/// Returns all entries of a list, or the first `count` if the argument of the command is `--sample`.
fn sampled<'a, 'b>(
    command: &str,
    args: &[String],
    all: &'a [&'b str],
    count: usize,
) -> Result<&'a [&'b str]> {
    let is_sample = args == ["--sample"];
    ensure!(args.is_empty() || is_sample, "{command} takes no arguments except --sample");
    Ok(if is_sample { &all[..count] } else { all })
}
