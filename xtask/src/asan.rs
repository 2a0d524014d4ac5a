//! `cargo xtask asan`: the tests that need no GPU, under `AddressSanitizer`.
//!
//! The sanitizer's switch is for nightly compilers, hence `RUSTC_BOOTSTRAP`; its runtime comes with
//! every toolchain of this target, so nothing is installed. Doctests are left out: rustdoc would
//! need the switch as well, and they show how to call the crates rather than test them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{debian, root};

/// The crates with unit tests.
const CRATES: &[&str] = &["cuda-sys", "cuda-safe", "cuda-sim"];

/// The test binaries that need no GPU and no real driver. (Not `faults`, which starts many
/// processes and takes too long here.)
const BINARIES: &[&str] = &["host", "driver", "sim"];

/// What leaks by design: what is allocated under one of these functions, and what only that keeps
/// alive, may leak. Every other leak is an error, in a test binary or in a process that a test
/// starts. (Switching `LeakSanitizer` off would be simpler, and hide all the others.)
const LEAKING: &[&str] = &[
    // A test: it forgets a stream, an event and a guard.
    "forgetting_leaks_and_nothing_else",
    // A test: its guard pops nothing, so it keeps its context for good.
    "a_guard_that_finds_another_context_pops_nothing_and_says_so",
    // Tests: their guards end in the wrong order, or find another context.
    "sim::guards::",
    // Tests: what hangs on borrowed handles is leaked where it would have to wait.
    "sim::borrowed::",
    // Tests: handles leave their objects with `leak`.
    "driver::handles::",
    "pinned_memory_goes_with_its_context",
    "a_pool_goes_out_and_comes_back",
    "a_double_destroy_and_a_use_after_destroy_are_named",
    "a_foreign_owner_is_dropped_before_the_context_of_its_object",
    "an_owner_that_panics_leaves_the_rest_of_the_queue_where_it_is",
    "a_kernel_that_is_replaced_is_dropped_when_its_last_launch_is_done",
    "a_kernel_that_nobody_launched_is_dropped_when_it_is_replaced",
    // A test: it forgets a copy under way.
    "a_pending_copy_that_is_dropped_or_forgotten_does_no_harm",
    // A test: after a fatal error nobody knows whether shared memory is still read.
    "a_kernel_that_uses_memory_of_a_device_without_access_ends_the_driver",
    // A test: what a hook panics with is forgotten, as it may panic once more.
    "a_hook_that_panics_when_it_is_dropped_does_not_do_so_in_another_drop",
    // A test: likewise what an owner panics with in the deleter of its tensor.
    "a_panic_of_the_owner_does_not_go_through_c",
    // A test: likewise a writer that panicked.
    "sim::manager_inside::logs::log_entangled",
    // A test: its library is not unloaded, so that the driver may still write the log.
    "the_log_of_a_library_that_is_not_unloaded_stays",
    // A test: the driver may have its host functions, or not.
    "a_host_function_that_the_driver_may_have_is_kept",
    // Tests: they forget a future, and a capture.
    "a_future_that_is_forgotten_does_no_harm",
    "a_capture_that_is_forgotten_goes_on_and_does_no_harm",
    // Tests: the memory of a copy is stranded, the driver does not let go of a vector, a stream
    // outlives its green context.
    "a_vector_that_the_driver_does_not_let_go_of_is_leaked_and_reported",
    "pinned_memory_is_stranded_if_nobody_knows_whether_its_copy_is_done",
    "lent_memory_is_stranded_if_nobody_knows_whether_its_copies_are_done",
    "a_green_context_destroyed_before_its_streams_is_one_mistake",
    // Tests: their threads end with a context on the stack that the software driver keeps for them.
    "cuda_sim::thread::push",
    // Explored scenarios: one forgets an object, so that the loss is found.
    "cuda_sim::explore::pool::work",
    // A test: it forgets objects whose handles it has destroyed.
    "work_outlives_its_green_context_and_its_executable_graph",
    // Tests: a stream keeps a host function that was refused what it waits for.
    "sim::blocking::",
    // Tests: they destroy what an object owns, and forget the object.
    "sim::stale_graphs::",
    // A test: what a hook panics with is forgotten.
    "a_report_hook_that_panics_in_the_middle_of_a_pool",
    // Tests: the driver refuses releases for good, so the objects stay.
    "sim::release_errors::",
    "an_owner_whose_memory_stays_registered_is_never_dropped",
    // A test: the driver still captures its streams, so it forgets them.
    "an_end_that_is_answered_by_the_end_of_everything_is_not_reported",
    // Tests: they forget objects whose handles are dead, as their context or they themselves are destroyed.
    "destroying_a_context_destroys_everything_created_in_it",
    "what_was_made_before_a_reset_is_dead_for_those_who_retain_the_primary_context",
    "a_second_destroy_is_refused",
    "sim::manager_reset::",
    "a_primary_context_that_is_reset_has_its_manager_reset_and_then_another_one",
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "asan takes no arguments");
    let folder = root().join("target/asan");
    let suppressions = write_suppressions(&folder)?;
    let mut tests = tests(&folder)?;
    tests.env(
        "LSAN_OPTIONS",
        format!("suppressions={suppressions}:print_suppressions=0"),
    );
    let passed = count_passed(&mut tests)?;
    println!("asan: {passed} tests passed, without an error or a leak");
    Ok(())
}

/// The file that tells `LeakSanitizer` what may leak.
fn write_suppressions(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join("leaks.supp");
    let rules: String = LEAKING
        .iter()
        .map(|function| format!("leak:{function}\n"))
        .collect();
    fs::write(&path, rules).with_context(|| format!("writing {}", path.display()))?;
    path.into_os_string()
        .into_string()
        .ok()
        .context("the path of the workspace is not UTF-8")
}

/// The command that builds and runs the tests.
fn tests(folder: &Path) -> Result<Command> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root())
        .args(["test", "--no-fail-fast", "--lib", "-p", "cuda-workbench"])
        // With a target named, build scripts and macros, which run in cargo and rustc, stay as
        // they are.
        .args(["--target", &host()?, "--target-dir"])
        .arg(folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags())
        // The suppressions name functions. Where there is no llvm-symbolizer, addr2line, which
        // comes with the linker, knows their names. One test asks for more memory than there is.
        .env(
            "ASAN_OPTIONS",
            "allow_addr2line=1:allocator_may_return_null=1",
        );
    for name in CRATES {
        cargo.args(["-p", name]);
    }
    for binary in BINARIES {
        cargo.args(["--test", binary]);
    }
    Ok(cargo)
}

/// The triple of this machine.
fn host() -> Result<String> {
    let version = debian::stdout(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

/// The compiler's flags, with those that the caller sets.
fn flags() -> String {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    format!("{flags} -Zsanitizer=address")
        .trim_start()
        .to_owned()
}

/// Runs the tests and shows what they print; how many passed.
fn count_passed(tests: &mut Command) -> Result<usize> {
    let mut child = tests
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo test")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut passed = 0;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading what cargo prints")?;
        println!("{line}");
        // "test result: ok. 12 passed; 0 failed; ..."
        let result = line.strip_prefix("test result: ok. ");
        let count = result.and_then(|result| result.split(' ').next()?.parse::<usize>().ok());
        passed += count.unwrap_or_default();
    }
    let status = child.wait().context("waiting for cargo test")?;
    ensure!(
        status.success(),
        "AddressSanitizer or a test reports an error, see above"
    );
    Ok(passed)
}
