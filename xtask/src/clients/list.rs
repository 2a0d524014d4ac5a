//! Reads `tests/clients/NAME.toml`.

use crate::root;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    pub(super) source: Source,
    pub(super) package: String,
    pub(super) version: String,
    /// Further packages with pinned versions, as the package manager writes them.
    #[serde(default)]
    pub(super) packages: Vec<String>,
    /// Plugins of pytest in `tests/clients`, besides `record`.
    #[serde(default)]
    pub(super) plugins: Vec<String>,
    /// Whether CI runs this client.
    pub(super) quick: bool,
    /// The repository that has the tests, if no package has them. `--from` names a checkout of it.
    pub(super) checkout: Option<String>,
    /// The profile, a value of `CUDA_SIM`.
    #[serde(default = "default_profile")]
    pub(super) profile: String,
    /// Whether the tests load NVRTC, which `cargo xtask compilers` downloads, and compile kernels.
    #[serde(default)]
    pub(super) nvrtc: bool,
    /// Further variables of the tests.
    #[serde(default)]
    pub(super) variables: BTreeMap<String, String>,
    pub(super) suite: Vec<Suite>,
    #[serde(default)]
    pub(super) failure: Vec<Failure>,
}

fn default_profile() -> String {
    "h200@13.0".to_owned()
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    #[serde(rename = "pypi")]
    PyPi,
    #[serde(rename = "crates.io")]
    CratesIo,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    pub(super) name: String,
    /// The arguments for pytest, or for `cargo test`.
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    /// Further arguments that select the part for CI. Without them, CI runs the whole suite.
    #[serde(default)]
    pub(super) quick: Vec<String>,
    /// A Python package whose modules have classes of unittest, if pytest cannot collect them by path.
    pub(super) unittests: Option<String>,
    /// Fewer passed tests are an error.
    pub(super) at_least: usize,
    /// The profile, if it differs from that of the other suites.
    pub(super) profile: Option<String>,
    /// The limit for one test in seconds.
    pub(super) timeout: u64,
}

impl Suite {
    /// Changes the suite to the part that CI runs.
    pub(super) fn select_part(&mut self) {
        if !self.quick.is_empty() {
            self.arguments.append(&mut self.quick);
            self.at_least = 0;
        }
    }

    /// Returns the value of `CUDA_SIM`.
    pub(super) fn profile<'a>(&'a self, client: &'a Client) -> &'a str {
        self.profile.as_ref().unwrap_or(&client.profile)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    /// One test or several.
    pub(super) test: Tests,
    pub(super) reason: String,
}

/// The id of a test, or a prefix that ends with `*`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Tests {
    One(String),
    Several(Vec<String>),
}

impl Failure {
    pub(super) fn tests(&self) -> &[String] {
        match &self.test {
            Tests::One(one) => std::slice::from_ref(one),
            Tests::Several(several) => several,
        }
    }
}

/// Returns the clients by name.
pub(super) fn read() -> Result<BTreeMap<String, Client>> {
    let folder = root().join("tests/clients");
    let mut clients = BTreeMap::new();
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let client =
            toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        clients.insert(name.into_owned(), client);
    }
    Ok(clients)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::root;
    use std::fs;

    #[test]
    fn the_readme_of_the_software_driver_has_the_number_of_each_package() {
        let readme = root().join("cuda-sim/README.md");
        let readme = fs::read_to_string(readme).expect("the page");
        for client in read().expect("the clients").values() {
            let passed: usize = client.suite.iter().map(|suite| suite.at_least).sum();
            let row = format!("| {} {} | {passed} |", client.package, client.version);
            assert!(readme.contains(&row), "the page has no row that begins with {row:?}");
        }
    }
}
