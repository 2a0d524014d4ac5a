//! Checks that a wheel runs on the systems that its tags name.

use super::{CLibrary, Package};
use crate::{root, status};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks the name of a wheel, the tags in its metadata, and its binary. Returns what was checked, in one line.
pub(super) fn check(wheel: &Path, package: &Package, architecture: &str) -> Result<String> {
    let name = wheel.file_stem().context("a wheel without a name")?.to_string_lossy();
    let tags = tags(&name).with_context(|| format!("{name} is not the name of a wheel"))?;
    let (major, minor) = package.c_library;
    let wanted = format!("{}-manylinux_{major}_{minor}_{architecture}", package.tags);
    ensure!(tags.contains(&wanted), "no tag {wanted} among {}", tags.join(", "));

    let folder = root().join("target/unpacked").join(&*name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).args([wheel, &folder]);
    status::check(unpack.status().context("running python3")?, "the wheel is not a zip file")?;
    let files = files(&folder)?;

    let metadata = files.iter().find(|file| file.ends_with("WHEEL")).context("no WHEEL")?;
    let text = fs::read_to_string(metadata).context("reading WHEEL")?;
    let listed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Tag: ")).collect();
    ensure!(
        tags.len() == listed.len() && tags.iter().all(|tag| listed.contains(&tag.as_str())),
        "WHEEL has other tags than the name: {}",
        listed.join(", ")
    );

    let mut binaries = Vec::new();
    for file in &files {
        let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        if bytes.starts_with(b"\x7fELF") {
            binaries.push((file, bytes));
        }
    }
    let [(file, bytes)] = &binaries[..] else {
        anyhow::bail!("{} binaries", binaries.len());
    };
    ensure!(file.to_string_lossy().ends_with(package.binary), "a binary {}", file.display());
    let needed = check_binary(bytes, architecture, package.c_library)?;
    let size = fs::metadata(wheel)?.len() as f64 / 1e6;
    Ok(format!("{size:.1} MB, {wanted}, needs glibc {}.{}", needed.0, needed.1))
}

/// Returns the tags that the name of a wheel stands for: all combinations of those of its last three parts.
fn tags(name: &str) -> Option<Vec<String>> {
    let mut parts = name.rsplitn(4, '-');
    let (platforms, abis, pythons) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?;
    let mut tags = Vec::new();
    for python in pythons.split('.') {
        for abi in abis.split('.') {
            tags.extend(platforms.split('.').map(|platform| format!("{python}-{abi}-{platform}")));
        }
    }
    Some(tags)
}

/// Checks that an ELF file is for the architecture, and that it names the system's unwinder and no C library that is newer
/// than the one of the tag. The names include those in the library that the command contains. Returns the version that is
/// needed.
fn check_binary(bytes: &[u8], architecture: &str, tag: CLibrary) -> Result<CLibrary> {
    const MACHINE: usize = 18;
    let machine = bytes.get(MACHINE..MACHINE + 2).context("a short file")?;
    let wanted: u16 = match architecture {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => anyhow::bail!("the architecture {architecture}"),
    };
    ensure!(machine == wanted.to_le_bytes(), "the binary is not for {architecture}");
    let unwinder = b"\0libgcc_s.so.1\0";
    let has_unwinder = bytes.windows(unwinder.len()).any(|part| part == unwinder);
    ensure!(has_unwinder, "the binary does not use the system's unwinder");
    let needed = c_libraries(bytes).max().context("the binary names no C library")?;
    ensure!(needed <= tag, "the binary needs glibc {}.{}", needed.0, needed.1);
    Ok(needed)
}

/// Returns the versions of the C library that an ELF file names.
fn c_libraries(bytes: &[u8]) -> impl Iterator<Item = CLibrary> {
    const PREFIX: &[u8] = b"\0GLIBC_";
    let starts = bytes.windows(PREFIX.len()).enumerate().filter(|(_, part)| *part == PREFIX);
    starts.filter_map(|(at, _)| {
        let rest = &bytes[at + PREFIX.len()..];
        let text = rest.split(|byte| *byte == 0).next()?;
        let mut numbers = std::str::from_utf8(text).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

/// Returns all files in a folder and in those below.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{c_libraries, check_binary, tags};

    #[test]
    fn a_name_stands_for_all_combinations_of_its_tags() {
        let found = tags("cuda_sim-0.1.0-py2.py3-none-linux_x86_64").expect("a name");
        assert_eq!(found, ["py2-none-linux_x86_64", "py3-none-linux_x86_64"]);
        assert_eq!(tags("cuda_sim-0.1.0"), None);
    }

    /// Returns the parts of an ELF file that are checked.
    fn binary(machine: u8, names: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(20, 0);
        bytes[18] = machine;
        bytes.extend(names);
        bytes
    }

    #[test]
    fn the_newest_c_library_that_a_binary_names_is_checked() {
        let names = b"\0libgcc_s.so.1\0GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_PRIVATE\0";
        let good = binary(62, names);
        assert_eq!(c_libraries(&good).collect::<Vec<_>>(), [(2, 2), (2, 17)]);
        assert_eq!(check_binary(&good, "x86_64", (2, 17)).expect("a good binary"), (2, 17));
        check_binary(&good, "aarch64", (2, 17)).expect_err("another architecture");
        let newer = binary(62, b"\0libgcc_s.so.1\0GLIBC_2.18\0");
        check_binary(&newer, "x86_64", (2, 17)).expect_err("a newer C library");
        let alone = binary(183, b"\0GLIBC_2.17\0");
        check_binary(&alone, "aarch64", (2, 17)).expect_err("no unwinder of the system");
    }
}
