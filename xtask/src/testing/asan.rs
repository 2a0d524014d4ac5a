//! `cargo xtask asan`: runs the tests that need no GPU under `AddressSanitizer`. CI runs a sample of them with
//! `--sample`.
//!
//! The sanitizer's option requires a nightly compiler or `RUSTC_BOOTSTRAP`. Its runtime is part of every
//! toolchain for this target, so nothing is installed. Doctests are excluded: rustdoc would need the
//! option too, and they are examples of calls rather than tests.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::install::debian;
use crate::testing::sampled;
use crate::{root, status};

/// The crates with unit tests.
const CRATES: &[&str] =
    &["cuda-sys", "cuda-safe", "cuda-memory", "cuda-nvrtc", "cuda-nccl", "cuda-sim"];

/// The test binaries that need no GPU and no real driver. `faults` is excluded, because it starts many
/// processes and takes too long under the sanitizer.
///
/// Those of the sample come first.
const BINARIES: &[&str] = &["sim", "serde", "tracing", "host", "driver", "nccl"];

/// The number of test binaries in the sample, which has no unit tests.
const SAMPLE: usize = 3;

/// Intentional leaks. Memory that is allocated in one of these functions may leak, together with memory
/// that only it keeps alive. Every other leak is an error, in a test binary or in a process that a test
/// starts. Disabling `LeakSanitizer` would be simpler, but would hide all other leaks.
const LEAKING: [&str; 67] = [
    // Tests that release a primary context which the crate retains.
    "the_last_release_of_a_primary_context_succeeds_after_a_fatal_error",
    "a_reset_after_a_fatal_error_ends_the_primary_context_and_keeps_its_use_count",
    // A test whose manager forgets the writer of its log, which might panic again when it is dropped.
    "a_panic_of_the_log_writer_is_an_error_of_the_log",
    // A test that forgets a stream, an event and a guard.
    "forgotten_objects_only_leak",
    // A test whose samples have texts of the lifetime `'static`.
    "every_text_shows_the_fields",
    // A test that moves a body out of its graph, which is leaked.
    "a_body_that_is_moved_out_takes_its_graph_out_of_use",
    // Tests that forget the stream of a context that was destroyed.
    "sim::release::last_use::memory_is_unmapped_after",
    // A test that forgets a mapping, and one that takes handles from their objects with `into_raw`.
    "sim::external::graphics::a_forgotten_mapping_stays",
    "sim::external::graphics::handles_are_passed_on",
    // A test whose fatal error leaks an endpoint with its ids.
    "a_copy_where_no_memory_is_bound_is_a_misuse",
    // A test that forgets a texture, with its stream and event.
    "a_forgotten_texture_only_leaks",
    // A test whose guard pops nothing, so its context is kept forever.
    "a_guard_that_finds_another_context_pops_nothing_and_reports_it",
    // Tests whose guards are dropped in the wrong order or find another context.
    "sim::context::guards::",
    // A test that forgets guards, so their contexts stay current.
    "a_context_cannot_be_bound_inside_a_guard",
    // Tests in which a bound context stays on the stack of a thread that ends.
    "a_bound_context_below_a_context_of_other_code_is_leaked_and_reported",
    "a_context_that_is_bound_while_the_thread_ends_is_leaked",
    // Tests that take handles from their objects with `into_raw`.
    "driver::release::handles::",
    "a_manager_is_reset_before_it_is_dropped_with_its_context",
    "pinned_memory_is_freed_with_its_context",
    "a_pool_survives_into_raw_and_from_raw",
    "a_double_destroy_and_a_use_after_destroy_are_reported",
    "a_foreign_owner_is_dropped_before_the_context_of_its_object",
    "a_replaced_kernel_is_dropped_after_its_last_launch",
    "a_kernel_without_launches_is_dropped_when_it_is_replaced",
    // A test that forgets a copy that is still running.
    "a_dropped_or_forgotten_pending_copy_does_no_harm",
    // The same for a range, and a test in which it is unknown when the copy of a range ends.
    "a_dropped_or_forgotten_copy_of_a_range_does_no_harm",
    "a_failed_wait_leaks_the_memory_of_all_ranges",
    // A test in which registered memory cannot be unregistered after a fatal error.
    "a_kernel_that_uses_the_host_address_is_fatal",
    // Tests in which a kernel at a multicast address ends with a fatal error.
    "sim::virtual_memory::multimem::a_",
    "poisoned_memory_of_a_device_is_refused",
    // A test that drops objects of a context after its destruction.
    "a_drop_after_the_context_was_destroyed_is_a_misuse",
    // A test in which shared memory may still be read after a fatal error.
    "a_kernel_that_uses_peer_memory_without_access_is_fatal",
    // A test in which the payload of an owner's panic in a tensor's deleter is leaked, because dropping
    // it may panic again.
    "a_panic_of_the_owner_does_not_unwind_into_c",
    // A test in which the payload of a writer's panic is leaked for the same reason.
    "sim::manager::inside::logs::log_entangled",
    // A test whose library is not unloaded, so the driver may still write the log.
    "the_log_of_a_library_lives_until_the_library_is_unloaded",
    // A test in which the driver may still hold its host functions.
    "a_host_function_that_the_driver_may_still_run_is_kept_alive",
    // Tests that forget a future and a capture.
    "a_forgotten_future_does_no_harm",
    "a_forgotten_capture_continues_without_harm",
    // Tests in which the memory of a copy is leaked, the driver does not release a vector, and a stream
    // outlives its green context.
    "a_vector_that_cannot_be_unregistered_is_leaked_and_reported",
    "pinned_memory_is_stranded_if_the_end_of",
    "borrowed_memory_is_stranded_if_the_end_of_its_copies_is_unknown",
    "a_green_context_destroyed_before_its_streams_is_one_misuse",
    // Tests whose threads end with a context on the stack that the software driver keeps for them.
    "cuda_sim::thread::push",
    // Explored scenarios. One of them forgets an object, so that the explorer detects the loss.
    "cuda_sim::call::explore::pool::work",
    // A test that forgets objects whose handles it has destroyed.
    "work_outlives_its_green_context_and_its_executable_graph",
    // Tests in which a stream keeps a host function whose call failed.
    "sim::stream::blocking::",
    // Tests that destroy the handle that an object owns, and forget the object.
    "sim::graph::stale::",
    // Tests in which the payload of a callback's panic is leaked.
    "a_closure_can_work_unregister_itself_and_panic",
    "dump_callbacks_run_before_and_after_the_file_is_written",
    // A test in which the payload of a hook's panic is leaked.
    "a_report_hook_may_panic_inside_a_pool",
    "an_owner_whose_memory_stays_registered_is_never_dropped",
    // Tests that forget objects whose handles are invalid, because the object or its context was
    // destroyed.
    "destroying_a_context_destroys_everything_created_in_it",
    "objects_created_before_a_reset_are_destroyed_for_all_owners_of_the_primary_context",
    "a_second_destroy_is_refused",
    "cached_events_are_destroyed_before_a_primary_context_is_reset",
    "sim::manager::reset::",
    "resetting_a_primary_context_resets_and_replaces_its_manager",
    // The place for the handle of a communicator, which NCCL may still write after a failure.
    "cuda_nccl::communicator::Place",
    // Tests that forget a communicator, or a buffer that was freed or is registered.
    "a_forgotten_communicator_is_only_leaked",
    "registrations_end_with_the_value_the_communicator_or_an_abort",
    "nccl::software::memory_that_is_freed_in_flight_is_reported",
    "nccl::software::memory_of_nccl_that_is_freed_in_flight_is_reported",
    // Tests in which other ranks may still use registered memory.
    "a_buffer_is_leaked_if_an_abort_fails",
    "a_buffer_of_an_aborted_operation_is_leaked",
    "registrations_and_communicators_do_not_end_during_a_capture",
    // Tests in which calls of NCCL fail, so that it is unknown whether memory is registered.
    "nccl::software::the_end_of_slow_calls_is_awaited",
    "nccl::software::the_nth_call_fails",
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let binaries = sampled("asan", args, BINARIES, SAMPLE)?;
    let folder = root().join("target/asan");
    let suppressions = write_suppressions(&folder)?;
    let mut tests = tests(&folder, binaries)?;
    tests.env("LSAN_OPTIONS", format!("suppressions={suppressions}:print_suppressions=0"));
    let passed = count_passed(&mut tests)?;
    println!("asan: {passed} tests passed, without an error or a leak");
    Ok(())
}

/// Writes the file that tells `LeakSanitizer` which leaks are intentional.
fn write_suppressions(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let path = folder.join("leaks.supp");
    let functions = intentional_leaks()?;
    let rules: String = functions.iter().map(|function| format!("leak:{function}\n")).collect();
    fs::write(&path, rules).with_context(|| format!("writing {}", path.display()))?;
    path.into_os_string().into_string().ok().context("the path of the workspace is not UTF-8")
}

/// Returns parts of the names of the functions whose memory may leak. Most of them are tests.
pub(crate) fn intentional_leaks() -> Result<Vec<String>> {
    let mut functions = LEAKING.map(str::to_owned).to_vec();
    add_leaking_tests(&root().join("tests/sim"), &mut functions)?;
    Ok(functions)
}

/// Adds the names of the tests on the software driver that leak intentionally in a process of their own: those
/// that start with `in_child!(leaking(`.
fn add_leaking_tests(folder: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            add_leaking_tests(&path, names)?;
            continue;
        }
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        let mut test = None;
        for line in text.lines() {
            test = line.strip_prefix("fn ").and_then(|its| its.split('(').next()).or(test);
            if line.contains("in_child!(leaking(") {
                names.extend(test.map(str::to_owned));
            }
        }
    }
    Ok(())
}

/// Returns the command that builds and runs the tests.
fn tests(folder: &Path, binaries: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root())
        .args(["test", "--no-fail-fast", "-p", "cuda-workbench"])
        // With the feature `freed`, the crate tells the software driver which host functions are freed. The other
        // features have tests of their own, which run here because this build is a separate one anyway.
        .args(["--features", "cuda-workbench/freed,cuda-workbench/serde,cuda-workbench/tracing"])
        // If a target is named, the flags do not apply to build scripts and macros, which run inside
        // cargo and rustc.
        .args(["--target", &host()?, "--target-dir"])
        .arg(folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags())
        // The suppressions name functions, some of them deep in the stack. Without llvm-symbolizer,
        // addr2line, which is installed with the linker, resolves their names. One test allocates more
        // memory than there is.
        .env(
            "ASAN_OPTIONS",
            "allow_addr2line=1:allocator_may_return_null=1:malloc_context_size=64",
        );
    if binaries.len() > SAMPLE {
        cargo.arg("--lib").args(CRATES.iter().flat_map(|name| ["-p", name]));
    }
    for binary in binaries {
        cargo.args(["--test", binary]);
    }
    Ok(cargo)
}

/// Returns the target triple of the host.
fn host() -> Result<String> {
    let version = debian::stdout(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not report its host")
}

/// Returns the compiler flags, including those that the caller has set.
fn flags() -> String {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    format!("{flags} -Zsanitizer=address").trim_start().to_owned()
}

/// Runs the tests, prints their output, and returns how many passed.
fn count_passed(tests: &mut Command) -> Result<usize> {
    let mut child = tests.stdout(Stdio::piped()).spawn().context("running cargo test")?;
    let output = child.stdout.take().context("cargo's output is not captured")?;
    let mut passed = 0;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading cargo's output")?;
        println!("{line}");
        // "test result: ok. 12 passed; 0 failed; ..."
        let result = line.strip_prefix("test result: ok. ");
        let count = result.and_then(|result| result.split(' ').next()?.parse::<usize>().ok());
        passed += count.unwrap_or_default();
    }
    let status = child.wait().context("waiting for cargo test")?;
    status::check(status, "AddressSanitizer or a test reported an error; see the output above")?;
    Ok(passed)
}
