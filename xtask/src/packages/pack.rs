//! `cargo xtask pack`: creates a folder with the tests, the examples and the benchmark for GPU machines
//! without Rust.
//!
//! The binaries need a C library at least as new as that of the build machine.

use crate::measurements::cost;
use crate::packages::wheels::{self, Build, CUDA_SAFE};
use crate::{root, status};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The maximum size of a pack in bytes, so that it can be copied to any machine.
const LIMIT: u64 = 256 << 20;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let [folder] = args else {
        bail!("pack takes one argument, the folder");
    };
    let folder = Path::new(folder);
    clear(folder)?;
    let mut binaries = build()?;
    binaries.insert("bench/cuda-bench".to_owned(), cost::binary(true)?);
    binaries.extend(python()?);
    let mut size = RUN.len() as u64;
    for (place, binary) in &binaries {
        let to = folder.join(place);
        let parent = to.parent().context("a binary without a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        size += fs::copy(binary, &to)
            .with_context(|| format!("copying {} to {}", binary.display(), to.display()))?;
        println!("{place}");
    }
    write_script(&folder.join("run.sh"))?;

    let megabytes = size as f64 / 1e6;
    println!("{} files, {megabytes:.1} MB: run run.sh on the GPU machine", binaries.len() + 1);
    ensure!(size <= LIMIT, "the pack has {size} bytes, more than the limit of {LIMIT}");
    Ok(())
}

/// Removes an earlier pack. A folder with other contents is not changed.
fn clear(folder: &Path) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(_) if !folder.exists() => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    if entries.count() == 0 {
        return Ok(());
    }
    let script = fs::read_to_string(folder.join("run.sh")).unwrap_or_default();
    ensure!(
        script.lines().nth(1) == RUN.lines().nth(1),
        "{} is neither empty nor an earlier pack",
        folder.display()
    );
    for part in ["tests", "examples", "bench", "python"] {
        let part = folder.join(part);
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| format!("removing {}", part.display()))?;
        }
    }
    Ok(())
}

/// A line of cargo's JSON output, with the fields that are used here.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    crate_types: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Tests that are not packed: they use no driver, the drivers that were fetched on this machine, or only
/// the software driver.
const LEFT_OUT: &[&str] = &["loom", "drivers", "faults", "documentation"];

/// The example that writes pages of the documentation, which needs the sources.
const GUIDE: &str = "guide";

/// Builds everything, and returns a map from the path in the pack to the binary. `cargo test` also
/// builds the examples.
fn build() -> Result<BTreeMap<String, PathBuf>> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["test", "--no-run", "--profile=bench"])
        .args(["-p", "cuda-workbench", "-p", "examples", "-p", "nvrtc-examples", "-p", "cuda-sys"])
        .args(["-p", "vulkan-examples", "-p", "cuda-safe", "-p", "cuda-memory"])
        .args(["-p", "tensor-backend", "-p", "tenant-server"])
        .arg("--message-format=json-render-diagnostics")
        .env("CARGO_PROFILE_BENCH_STRIP", "symbols")
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo test")?;
    status::check(output.status, "the tests failed to build")?;

    let mut binaries = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("parsing cargo's output: {line}"))?;
        let (Some(target), Some(profile)) = (message.target, message.profile) else {
            continue;
        };
        let name = &target.name;
        let is_example = target.kind.iter().any(|kind| kind == "example");
        let is_library = target.crate_types.iter().any(|kind| kind == "cdylib");
        let (place, binary) = match message.executable {
            Some(_) if profile.test && LEFT_OUT.contains(&name.as_str()) => continue,
            Some(binary) if profile.test => (format!("tests/{name}"), binary),
            Some(binary) if is_example && name != GUIDE => (format!("examples/{name}"), binary),
            None if is_example && is_library => {
                let library = message.filenames.into_iter().next();
                let library = library.with_context(|| format!("{name} without a library"))?;
                // The script that uses the library is packed too. Other libraries are for programs in C++.
                let script = format!("examples/{name}/share.py");
                let path = root().join(&script);
                if !path.exists() {
                    continue;
                }
                binaries.insert(script, path);
                (format!("examples/{name}/lib{name}.so"), library)
            }
            _ => continue,
        };
        let other = binaries.insert(place.clone(), binary);
        ensure!(other.is_none(), "two binaries have the path {place}");
    }
    ensure!(!binaries.is_empty(), "cargo reported no binaries");
    Ok(binaries)
}

/// Returns the files of the Python package: its wheel, tests, benchmarks and examples.
fn python() -> Result<Vec<(String, PathBuf)>> {
    let wheel = wheels::build(&root(), &CUDA_SAFE, &root().join("target/wheels"), Build::Native)?;
    let name = wheel.file_name().context("a wheel without a name")?;
    let mut files = vec![(format!("python/{}", name.to_string_lossy()), wheel)];
    // The settings of pytest, and the pages that the tests read.
    for file in ["pyproject.toml", "NAMES.md", "README.md"] {
        let place = format!("python/{file}");
        files.push((place.clone(), root().join(place)));
    }
    for folder in ["tests", "bench", "examples"] {
        let folder = root().join("python").join(folder);
        for entry in
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "py") {
                let place = path.strip_prefix(root())?.to_string_lossy().into_owned();
                files.push((place, path));
            }
        }
    }
    Ok(files)
}

fn write_script(path: &Path) -> Result<()> {
    fs::write(path, RUN).with_context(|| format!("writing {}", path.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", path.display()))?;
    }
    Ok(())
}

/// `run.sh`. The second line distinguishes a pack from other folders.
const RUN: &str = r#"#!/bin/sh
# Written by `cargo xtask pack`: runs the tests and examples in this folder. Needs no Rust.
# It does not run the following: bench/cuda-bench measures the cost of calls, python/bench/exchange.py,
# exchange_table.py and pools.py measure it in Python, and python/tests/numba_suite.py runs Numba's test suite with the
# memory manager.
#
# usage: run.sh [--sanitize] [ARGUMENT ...]
#
#   --sanitize  run the tests under compute-sanitizer, except for those that provoke errors or leak on
#               purpose (tests with "provoked" or "forgotten" in their names)
#   ARGUMENT    passed to the test binaries: a part of a test's name, --nocapture, ...
#
# With CUDA_TESTS=require, the default here, a test fails instead of being skipped. With CUDA_TESTS=skip
# and CUDA_SIM=h200 the tests run on the software driver, without a GPU.
#
# The number of skipped tests is printed by reason at the end.

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
export CUDA_TESTS="${CUDA_TESTS:-require}"
sanitizer=
if [ "${1-}" = --sanitize ]; then
    shift
    set -- "$@" --skip provoked --skip forgotten
    export CUDA_TESTS_SANITIZED=1
    if ! sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer); then
        echo "run.sh: compute-sanitizer was not found" >&2
        exit 2
    fi
fi
logs=$(mktemp -d) || exit 2
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0
: >"$logs/skips"
# The folder of the build, where the tests create files otherwise, need not exist here.
export CUDA_TESTS_SCRATCH="$logs/scratch"
mkdir "$CUDA_TESTS_SCRATCH" || exit 2

# The driver's answers are not reported: the crates ask some questions to which "no" is an answer.
# Some test binaries never start CUDA.
sanitized() {
    "$sanitizer" --tool memcheck --leak-check full --error-exitcode 99 --report-api-errors no \
        --require-cuda-init no --target-processes all "$@"
}

# Runs a test binary by its name. Some need what a GPU machine need not have (real drivers, the
# sources of the software driver, the software NCCL, a C compiler, a second GPU, symbols): they skip, whatever CUDA_TESTS says.
launch() (
    case $1 in
        drivers | gpu | host | libcuda | nccl | sim) export CUDA_TESTS=skip ;;
    esac
    binary=$here/tests/$1
    # These tests measure the free memory of the device.
    case $1 in
        gpu | nccl) export RUST_TEST_THREADS=1 ;;
    esac
    shift
    ${sanitizer:+sanitized} "$binary" "$@"
)

# Runs a command and keeps its outputs and its exit code. Shows the outputs as they come, without
# the lines of skipped tests (pytest's begin with SKIPPED).
keep() {
    {
        {
            "$@" 3>&-
            echo $? >"$logs/code"
        } 2>&1 >&3 | tee "$logs/err" | awk '$1 != "skipped" { print; fflush() }' >&2
    } 3>&1 | tee "$logs/out" | awk '$1 != "SKIPPED" { print; fflush() }'
    code=$(cat "$logs/code")
}

# Adds a test binary's counts. The last result is its own: those before are of children that it
# shows. A skipped test passes as far as the harness knows, and may say so twice.
count() {
    result=$(grep '^test result: ' "$logs/out" | tail -n 1)
    # Programs without the harness replay recordings (tests/differ, tests/ptx).
    [ -n "$result" ] || [ "$code" -ne 0 ] || result="test result: ok. 1 passed; 0 failed; 0 ignored;"
    awk '$1 == "skipped" && !seen[$2]++ { sub(/^[^ ]* [^ ]* /, ""); print }' "$logs/err" >"$logs/reasons"
    skips=$(awk 'END { print NR }' "$logs/reasons")
    ignored=$(echo "$result" | awk '{ print $8 + 0 }')
    i=0
    while [ "$i" -lt "$ignored" ]; do
        echo "ignored unless requested"
        i=$((i + 1))
    done >>"$logs/reasons"
    cat "$logs/reasons" >>"$logs/skips"
    bad=$(echo "$result" | awk '{ print $6 + 0 }')
    if [ "$code" -ne 0 ]; then
        echo "tests/$1 failed: exit code $code"
        [ "$bad" -ne 0 ] || bad=1
    fi
    passed=$((passed + $(echo "$result" | awk '{ print $4 + 0 }') - skips))
    failed=$((failed + bad))
    skipped=$((skipped + ignored + skips))
}

# The examples have to come to their end, which takes a GPU. The longest takes 20 s. They run before the tests, since
# some tests provoke faults of kernels. After a fault, driver 580 completes no draw on the GPU until it is reset.
limit=
command -v timeout >/dev/null && limit='timeout 120'
for path in "$here"/examples/*; do
    [ -z "$sanitizer" ] || break
    name=${path##*/}
    echo "== examples/$name"
    if [ -d "$path" ]; then
        # A library with a script, which says by this code that something is missing that no GPU
        # machine has to have.
        keep python3 "$path/share.py"
        [ "$code" -ne 127 ] || code=77
    else
        keep $limit "$path"
    fi
    if [ "$code" -eq 0 ]; then
        passed=$((passed + 1))
    elif [ "$CUDA_TESTS" = require ] && [ "$code" -ne 77 ]; then
        echo "examples/$name failed: exit code $code"
        failed=$((failed + 1))
    else
        reason=$(sed -n 's/^missing: //p' "$logs/out")
        echo "examples/$name: ${reason:-exit code $code}" >>"$logs/skips"
        skipped=$((skipped + 1))
    fi
done

for path in "$here"/tests/*; do
    name=${path##*/}
    # The others do nothing on a GPU.
    case $name in
        driver | gpu) ;;
        *) [ -z "$sanitizer" ] || continue ;;
    esac
    echo "== tests/$name"
    keep launch "$name" "$@"
    count "$name"
done

# The Python package: unpacked, as a wheel is a zip file. What is not there of the other libraries is
# skipped by its tests, whatever CUDA_TESTS says.
if [ -z "$sanitizer" ] && python3 -c 'import numpy, pytest' 2>/dev/null; then
    echo "== python"
    python3 -m zipfile -e "$here"/python/cuda_safe-*.whl "$logs/packages" || exit 2
    packages=$logs/packages${PYTHONPATH:+:$PYTHONPATH}
    for part in pytest examples/green.py examples/pool.py; do
        case $part in
            pytest)
                keep env PYTHONPATH="$packages" PYTHONDONTWRITEBYTECODE=1 CUDA_TESTS=skip \
                    python3 -m pytest -q -rs -p no:cacheprovider --config-file "$here/python/pyproject.toml" \
                    "$here/python/tests"
                ;;
            *) keep env PYTHONPATH="$packages" python3 "$here/python/$part" ;;
        esac
        sed -n 's/^SKIPPED \[\([0-9]*\)\] [^ ]*: /\1 python: /p' "$logs/out" >"$logs/reasons"
        while read -r times reason; do
            skipped=$((skipped + times))
            while [ "$times" -gt 0 ]; do
                echo "$reason"
                times=$((times - 1))
            done
        done <"$logs/reasons" >>"$logs/skips"
        case $code in
            0) passed=$((passed + 1)) ;;
            77)
                echo "python/$part: $(sed -n 's/^missing: //p' "$logs/out")" >>"$logs/skips"
                skipped=$((skipped + 1))
                ;;
            *)
                echo "python/$part failed: exit code $code"
                failed=$((failed + 1))
                ;;
        esac
    done
else
    echo "python: needs Python 3.10, NumPy and pytest, and cannot run under a memory checker" >>"$logs/skips"
    skipped=$((skipped + 1))
fi

sort "$logs/skips" | uniq -c | sort -rn | sed 's/^ *\([0-9]*\) /\1 skipped: /'
echo "total: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
"#;
