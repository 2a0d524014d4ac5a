//! Measures how long one call of the software driver takes while few or many objects are alive. The times
//! in a row should be nearly equal, except for the effect of the processor's caches and of the page tables.
//!
//! - `cargo bench -p cuda-sim --bench alive`: nanoseconds
//! - `cargo bench -p cuda-sim --bench alive -- WORD`: only the kinds of objects whose names contain a word
//! - `… -- --count`: for `cargo xtask growth`, which counts instructions

mod calls;
mod graphs;
mod measure;
mod memory;
mod objects;
mod owned;

use measure::{Measure, Mode};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|its| its == flag);
    let mode = match (has("--count"), has("--bench")) {
        (true, _) => Mode::Count,
        (false, true) => Mode::Time,
        // `cargo test --benches` also runs this program, but does not need measurements.
        (false, false) => return,
    };
    let filter = arguments.into_iter().find(|its| !its.starts_with("--"));
    let measure = Measure::new(mode, filter);
    let primary = calls::start();
    memory::measure(&measure);
    objects::measure(&measure, primary);
    graphs::measure(&measure);
    owned::measure(&measure).expect("the software driver creates all objects");
}
