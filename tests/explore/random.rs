//! Random programs (`tests/programs`) on three threads. Run by `cargo xtask explore random`.
//!
//! Errors of the interface are allowed. Misuses of the driver, races, losses, deadlocks, panics and wrong
//! contents are violations. A program that violates a rule is shrunk by removing steps as long as
//! it still does.

mod search;

pub(crate) use search::{explore_batch, search};

use crate::programs::{self, Program};
use cuda_sim::explore;
use std::sync::Arc;

/// Runs a program once.
pub(crate) fn run(program: &Program) {
    let (world, steps) = program.begin(|body| drop(explore::spawn("a thread that exits", body)));
    let mut threads = Vec::new();
    for (number, steps) in steps.into_iter().enumerate() {
        let world = Arc::clone(&world);
        threads.push(explore::spawn(&format!("thread {number}"), move || {
            programs::run_thread(&world, steps);
        }));
    }
    threads.into_iter().for_each(explore::JoinHandle::join);
    world.end();
}
