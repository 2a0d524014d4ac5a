//! Commands that run the tests in special ways.

pub(crate) mod asan;
pub(crate) mod copy;
pub(crate) mod differ;
pub(crate) mod explore;
pub(crate) mod line_coverage;
pub(crate) mod miri;
pub(crate) mod mutants;
pub(crate) mod profiles;
pub(crate) mod seeds;
pub(crate) mod test_binary;
pub(crate) mod uncalled;
pub(crate) mod wine;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

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

/// Calls a function for each item, on `jobs` threads. Returns the results in any order. After an error, no further item
/// is begun.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    function: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = function(item);
                    if result.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    results.lock().expect("no thread panics").push(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panics");
    results.into_iter().collect()
}
