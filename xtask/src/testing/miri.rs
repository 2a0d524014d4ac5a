//! `cargo xtask miri`: runs tests under Miri, which finds undefined behavior, data races and leaks. The software driver
//! is written in Rust, so Miri executes it too. CI runs a sample with `--sample`. `--stacked` and `--tree` choose one of the
//! models of borrows, and an argument such as `sim::event` chooses the tests whose names start with it.
//!
//! `tests/common/miri.rs` is the harness: Miri executes a test binary once for each test. In the binary `documentation`,
//! each example of `cuda-safe`, `cuda-memory` and `cuda-nvrtc` is a test.

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::install::toolchain;
use crate::testing::asan;
use crate::{root, status};

/// The test binaries with the harness.
const BINARIES: [&str; 4] = ["host", "driver", "sim", "documentation"];

/// The rules that say which pointers may access memory, and the options of each. Under Tree Borrows, the more often Miri
/// forgets pointers that no longer exist, the less work each access is: a test that loads a module takes half the time.
const MODELS: [(&str, &str); 2] =
    [("Stacked Borrows", ""), ("Tree Borrows", "-Zmiri-tree-borrows -Zmiri-provenance-gc=1000")];

/// The number of slowest tests that are printed.
const SLOWEST: usize = 5;

/// The options of every execution. Tests read files, variables and clocks. The software driver makes pointers from
/// addresses, as a device does. Tests of any driver look for no other one. (cargo would store a variable of its
/// environment in the binary.)
const OPTIONS: &str =
    "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-env-set=CUDA_SIM=h200";

/// Part of the names of tests that start threads. They run with several seeds, which choose the schedules.
const THREADS: &str = "thread";

/// The number of seeds for a test that starts threads.
const SEEDS: usize = 8;

/// Parts of the names of tests with threads of the software driver, which are still there when the test ends. Miri
/// reports such threads as it reports leaks.
const WITH_DRIVER_THREADS: [&str; 2] = ["sim::software::explore::", "sim::stream::driver_thread::"];

/// The tests of the sample: some of each subject.
const SAMPLE: &[&str] = &[
    "documentation::examples::cuda_safe_src_manager_choice_rs",
    "sim::array::textures::a_linear_filter_of_integers_is_reported",
    "sim::call::waits::memory_outlives_the_work_of_a_dropped_stream",
    "sim::event::an_event_that_another_thread_drops_returns_to_the_thread_that_created_it",
    "sim::graph::retained::an_executable_graph_has_the_objects_of_its_latest_update",
    "sim::graph::updates::host_functions_and_events_can_be_replaced",
    "sim::interop::joined_streams_cost_a_record_and_a_wait_each",
    "sim::manager::caching::a_thread_finds_memory_that_another_thread_freed_on_the_stream",
    "sim::manager::parts::orders::a_weak_stream_keeps_neither_the_stream_nor_its_context_alive",
    "sim::memory::pinned_ranges::copies_of_ranges_and_clones_are_refused_during_a_capture",
    "sim::release::copies_and_registrations_complete_deferred_releases",
    "sim::release::orders::synchronous_memory_is_freed_after_a_wait_for_its_stream",
    "sim::stream::callbacks::a_nested_host_function_leaves_the_outer_one_a_callback",
];

/// What Miri cannot run: the reason, and parts of the names of tests.
const NOT_RUN: &[(&str, &[&str])] = &[
    ("Miri opens no library.", &["host::load::library::"]),
    (
        "Miri starts no process.",
        &[
            "fork",
            "numpy_agrees_on_random_types_layouts_and_views",
            "driver::call::fatal::provoked::a_process_",
            "driver::event::an_event_is_shared_with_another_process",
            "driver::process::checkpoint::",
            "sim::process::the_process_aborts_after_a_dump_without_the_flag",
        ],
    ),
    (
        "Miri maps no file, so the software driver has no virtual memory.",
        &[
            "::external::",
            "::virtual_memory::",
            "examples::cuda_memory_src_caching_rs",
            "examples::cuda_safe_src_array_sparse_rs",
            "examples::cuda_safe_src_external_memory_rs",
            "examples::cuda_safe_src_virtual_memory_",
            "driver::array::sparse::",
            "driver::call::answers::provoked::after_a_fatal_error",
            "driver::manager::managers::random_work_with_a_small_expandable_pool",
            "driver::manager::managers::random_work_with_an_expandable_pool",
            "driver::memory::exports::",
            "driver::memory::pointers::the_mappings_of_a_reservation_are_distinguished",
            "sim::array::sparse_and_deferred_arrays_tell_their_needs",
            "sim::device::other::a_copy_between_contexts_needs_the_access",
            "sim::device::other::work_on_virtual_memory",
            "sim::leaks::physical_memory_is_listed",
            "sim::manager::expandable::",
            "sim::manager::zones::accesses_behind_a_block_of_an_expandable_pool",
            "sim::memory::pointers::",
            "sim::memory::poison::mapped_memory_can_be_poisoned",
            "sim::memory::regressions::elements_stay_mapped",
            "sim::memory::regressions::a_handle_whose_size_is_refused",
            "sim::memory::regressions::a_host_function_that_drops_the_last_context",
            "sim::memory::regressions::a_release_whose_queries_always_fail",
            "sim::memory::regressions::memory_is_unmapped",
            "sim::memory::regressions::memory_without_access_is_unmapped",
            "sim::memory::regressions::memory_of_another_device",
            "sim::races::safe::random_programs_of_safe_code_have_no_races",
            "sim::release::last_use::",
        ],
    ),
    (
        "Miri reads no descriptor at an offset.",
        &["sim::manager::shared::handles_are_opened_by_their_kind"],
    ),
    (
        "They reach a limit of the library: 64 MiB of memory in a kernel, or thousands of lines. That takes hours under Miri.",
        &[
            "sim::launch::checks::the_report_says_that_racecheck",
            "sim::manager::inside::logs::the_buffer_for_a_slow_log_writer",
        ],
    ),
    (
        "They allocate memory that takes no room until it is written. Under Miri it does.",
        &["sim::memory::lazy::", "a_large_allocation_takes_memory_when_it_is_written"],
    ),
    (
        "They compare all functions, constants or options, which takes minutes under Miri.",
        &[
            "driver::call::recorded::attributes_have_the_recorded_values",
            "driver::call::recorded::every_split_by_count",
            "driver::device::provoked::all_attributes",
            "host::bindings::constants::",
            "host::bindings::function::",
            "host::bindings::rows::",
            "sim::arguments::every_option",
            "sim::device::report::a_report_has_no_secrets",
            "examples::cuda_safe_src_device_attribute_rs",
            "sim::device::report::a_report_names",
            "sim::device::report::the_attributes",
        ],
    ),
    (
        "They go through all cases within bounds, without unsafe code. That takes an hour under Miri.",
        &[
            "host::bindings::version::versions_print_and_parse_back",
            "host::examples::percentiles::the_bounds_of_a_ratio_contain_it",
            "host::interop::layouts::elements_with_a_common_byte_are_found",
            "host::interop::layouts::limits::layouts_are_refused_exactly",
            "host::interop::layouts::range_and_contiguity_of_all_layouts",
            "host::interop::layouts::views::every_range_of_an_index",
        ],
    ),
    (
        "They go through many cases, or use megabytes of memory. Miri has executed none of them in five minutes.",
        &[
            "examples::cuda_safe_src__guide_01_first_kernel_md",
            "examples::cuda_safe_src__guide_02_streams_md",
            "examples::cuda_safe_src__guide_09_memory_pool_md",
            "examples::cuda_safe_src_memory_copy_pending_rs",
            "driver::capture::modes::provoked::calls_invalidate_captures_by_their_mode_and_thread",
            "host::interop::array_interface::a_record_follows_from_its_descr_alone",
            "host::interop::array_interface::corpus::the_corpus_of_array_interfaces",
            "host::interop::array_interface::corpus::the_corpus_of_likely_interfaces",
            "host::interop::layouts::ranges_overlap_exactly_if_they_have_a_common_byte",
            "host::interop::layouts::views::an_array_is_reshaped_exactly",
            "host::interop::layouts::views::every_list_of_indices",
        ],
    ),
    (
        "They explore hundreds of schedules, or wait for a limited time. Miri is too slow.",
        &[
            "cuda-sim/src/testing.md",
            "call::explore",
            "sim::launch::interleavings::",
            "no_lock_in_a_driver_call",
            "blocks_other_threads_from_enqueuing_work",
            "sim::stream::blocking::a_copy_to_pageable_memory_blocks",
            "sim::stream::blocking::synchronize_calls_and_a_module_unload",
        ],
    ),
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (models, args) = match args.split_first() {
        Some((model, args)) if model == "--stacked" => (&MODELS[..1], args),
        Some((model, args)) if model == "--tree" => (&MODELS[1..], args),
        _ => (&MODELS[..], args),
    };
    let (names, models) = match args {
        [] => (vec![""], models),
        [sample] if sample == "--sample" => (SAMPLE.to_vec(), &MODELS[..1]),
        [start] => (vec![start.as_str()], models),
        _ => bail!(
            "miri takes --stacked, --tree or neither, and --sample or the start of the names of tests"
        ),
    };
    if let Err(why) = toolchain::install_miri() {
        println!("miri: NOT RUN: {why:#}");
        return Ok(());
    }
    let mut failed = Vec::new();
    for binary in BINARIES {
        if !names.iter().any(|name| name.is_empty() || name.starts_with(binary)) {
            continue;
        }
        let mut tests = list(binary)?;
        for name in names.iter().filter(|name| name.starts_with(binary)) {
            let is_one = tests.iter().any(|test| test.starts_with(name));
            ensure!(is_one, "no test has a name that starts with {name}");
        }
        tests.retain(|test| names.iter().any(|name| test.starts_with(name)) && !is_not_run(test));
        let mut leaks = asan::intentional_leaks()?;
        leaks.extend(WITH_DRIVER_THREADS.map(str::to_owned));
        let leaks = |test: &String| leaks.iter().any(|part| test.contains(part.as_str()));
        let (leaking, tests): (Vec<String>, Vec<String>) = tests.into_iter().partition(leaks);
        for model in models {
            failed.extend(execute(binary, *model, "", &tests)?);
            failed.extend(execute(binary, *model, "-Zmiri-ignore-leaks", &leaking)?);
        }
    }
    if names == [""] {
        for model in models {
            run_examples(*model)?;
        }
    }
    ensure!(failed.is_empty(), "failed under Miri; see the output above:\n{}", failed.join("\n"));
    Ok(())
}

fn is_not_run(test: &str) -> bool {
    NOT_RUN.iter().any(|(_, parts)| parts.iter().any(|part| test.contains(part)))
}

/// Runs the examples in the documentation of the software driver.
fn run_examples((model, option): (&str, &str)) -> Result<()> {
    // The threads of the explorer outlive an example.
    let mut cargo = miri(&format!("{OPTIONS} {option} -Zmiri-ignore-leaks"));
    cargo.args(["--doc", "--package", "cuda-sim", "--"]);
    let not_run = NOT_RUN.iter().flat_map(|(_, parts)| *parts);
    cargo.args(not_run.flat_map(|part| ["--skip", part]));
    let done = cargo.status().context("running cargo miri")?;
    status::check(done, format_args!("an example failed under Miri, {model}"))
}

/// Returns the names of the tests of a binary, with the name of the binary.
fn list(binary: &str) -> Result<Vec<String>> {
    let mut cargo = miri(OPTIONS);
    let output = cargo.args(["--test", binary]).stderr(Stdio::inherit()).output();
    let output = output.context("running cargo miri")?;
    status::check(output.status, format_args!("tests/{binary} was not built for Miri"))?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let names = lines.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(|name| format!("{binary}::{name}")).collect())
}

/// Executes tests of a binary, and returns those that failed.
fn execute(
    binary: &str,
    (model, option): (&str, &str),
    leaks: &str,
    tests: &[String],
) -> Result<Vec<String>> {
    let executions = tests.iter().flat_map(|test| {
        let name = test.strip_prefix(binary).and_then(|name| name.strip_prefix("::"));
        let seeds = if test.contains(THREADS) { SEEDS } else { 1 };
        (0..seeds).filter_map(move |number| Some(format!("{}#{number}", name?)))
    });
    let executions: Vec<String> = executions.collect();
    if executions.is_empty() {
        return Ok(Vec::new());
    }
    // The tests run in the root folder.
    let folder = format!("target/miri/executions/{binary}");
    prepare(&root().join(&folder), &executions)?;
    let folder_variable = format!("-Zmiri-env-set=CUDA_TESTS_MIRI={folder}");
    let seeds = executions.len();
    let many = format!("-Zmiri-many-seeds=0..{seeds} -Zmiri-many-seeds-keep-going");
    let start = Instant::now();
    let done = miri(&format!("{OPTIONS} {option} {leaks} {many} {folder_variable}"))
        .args(["--test", binary])
        .status()
        .context("running cargo miri")?;
    let minutes = start.elapsed().as_secs_f32() / 60.0;
    let ends: Vec<(String, u64)> =
        executions.iter().map(|name| end(&root().join(&folder), name)).collect();
    let count = |wanted| ends.iter().filter(|(result, _)| result == wanted).count();
    let [passed, skipped, stopped] = ["passed", "skipped", "stopped"].map(count);
    let failed = executions.iter().zip(&ends).filter(|(_, (result, _))| result.is_empty());
    let mut failed: Vec<String> =
        failed.map(|(name, _)| format!("{binary}::{name} ({model})")).collect();
    println!(
        "miri: {binary}, {model}, {} tests in {minutes:.1} minutes: of {seeds} executions, {passed} \
         passed, {skipped} were skipped, {stopped} were stopped, {} failed",
        tests.len(),
        failed.len()
    );
    let mut slowest: Vec<_> = ends.iter().zip(&executions).collect();
    slowest.sort_by_key(|((_, milliseconds), _)| Reverse(*milliseconds));
    let is_stopped = |(result, _): &(String, u64)| result == "stopped";
    for (_, name) in ends.iter().zip(&executions).filter(|(end, _)| is_stopped(end)) {
        println!("miri: {binary}::{name} was stopped");
    }
    for ((result, milliseconds), name) in slowest.into_iter().take(SLOWEST) {
        println!("miri: {binary}::{name} {result} in {:.1} seconds", *milliseconds as f64 / 1000.0);
    }
    if failed.is_empty() && !done.success() {
        failed.push(format!("a test of {binary} leaks ({model})"));
    }
    Ok(failed)
}

/// Creates the files that `tests/common/miri.rs` describes.
fn prepare(folder: &Path, executions: &[String]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    for part in ["waiting", "started"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).with_context(|| format!("creating {}", part.display()))?;
    }
    for name in executions {
        let file = folder.join("waiting").join(name);
        fs::write(&file, "").with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Returns the result of an execution and its milliseconds. The result is empty if the test failed.
fn end(folder: &Path, name: &str) -> (String, u64) {
    let text = fs::read_to_string(folder.join("started").join(name)).unwrap_or_default();
    let (result, milliseconds) = text.split_once(' ').unwrap_or_default();
    (result.to_owned(), milliseconds.parse().unwrap_or_default())
}

/// Returns `cargo miri test` with these options of Miri.
fn miri(options: &str) -> Command {
    let mut cargo = toolchain::rustup("nightly", "cargo");
    cargo.current_dir(root()).args(["miri", "test", "--quiet"]).env("MIRIFLAGS", options);
    cargo
}
