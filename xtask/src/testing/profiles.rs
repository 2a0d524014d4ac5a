//! `cargo xtask profiles`: runs `tests/driver` on the software driver with other devices and driver
//! versions than the recorded ones, and with other execution orders. CI runs a sample of them with
//! `--sample`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::testing::{sampled, test_binary};

/// Values of `CUDA_SIM`. `cargo test` uses h200@13.0 by default, the recorded profile. Those of the sample,
/// which come first, are the newest driver, the oldest driver with the oldest device, the newest device, and another
/// seed, which selects other streams among those that have work ready.
const PROFILES: &[&str] = &[
    "h200@13.5",
    "p40@11.8",
    "b200@13.4",
    "h200@13.0#3",
    "h200@11.8",
    "h200@12.2",
    "h200@13.1",
    "h200@12.9",
    "h200@12.6",
    "h200@12.4",
    "h100@13.5",
    "a100@12.6",
    "l40s@12.4",
    "v100@12.6",
    "h200@13.0#17",
];

/// The number of profiles in the sample.
const SAMPLE: usize = 4;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let profiles = sampled("profiles", args, PROFILES, SAMPLE)?;
    let suite = test_binary::build("driver", &[])?;
    let mut failed = Vec::new();
    for profile in profiles {
        match play(&suite, profile)? {
            Some(Counts { passed, skipped }) => {
                println!("{profile:<13} {passed} passed, {skipped} skipped");
            }
            None => {
                println!("{profile:<13} failed; see the output above");
                failed.push(*profile);
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "the tests failed on {}; to reproduce: CUDA_SIM={} cargo test --test driver",
        failed.join(", "),
        failed[0]
    );
    Ok(())
}

struct Counts {
    passed: usize,
    skipped: usize,
}

/// Runs the tests on a profile. Returns `None` after a failure, and prints the output.
fn play(suite: &Path, profile: &str) -> Result<Option<Counts>> {
    let output = Command::new(suite)
        .current_dir(root())
        .env("CUDA_SIM", profile)
        .env_remove("CUDA_TESTS")
        .output()
        .with_context(|| format!("running {}", suite.display()))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{stdout}{stderr}{} ended: {}", suite.display(), output.status);
        return Ok(None);
    }
    // The harness counts skipped tests as passed: "test result: ok. 12 passed; 0 failed; ..."
    let result = stdout.lines().rfind(|line| line.starts_with("test result:"));
    let ran = result.and_then(|line| line.split(' ').nth(3)?.parse::<usize>().ok());
    let ran = ran.with_context(|| format!("{} printed no test result", suite.display()))?;
    // "skipped TEST: REASON", possibly twice: from the test and from its child process.
    let skips = stderr.lines().filter_map(|line| line.strip_prefix("skipped "));
    let skipped: BTreeSet<&str> = skips.filter_map(|line| line.split(": ").next()).collect();
    let skipped = skipped.len();
    if skipped >= ran {
        bail!(
            "every test is skipped on {profile}: the software driver does not support this profile"
        );
    }
    Ok(Some(Counts { passed: ran - skipped, skipped }))
}
