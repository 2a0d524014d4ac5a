//! Counts instructions. callgrind counts only inside `cuda_bench_counted`, and writes its counters each
//! time that function returns.

use crate::plain;
use crate::work::{Operation, Work};
use std::hint::black_box;

/// This name is passed to callgrind.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cuda_bench_counted(work: &mut Work, n: usize) {
    (work.run)(black_box(n));
}

/// Runs each work twice under callgrind: with zero repetitions and with a batch. Prints a line for each
/// run, in order.
pub(crate) fn run(operations: &mut [Operation]) {
    for operation in operations {
        let (batch, bare) = (operation.batch, operation.bare);
        for (layer, work) in &mut operation.works {
            // Functions are resolved, and memory is requested from the system, before the measurement.
            for _ in 0..3 {
                (work.before)();
                plain::make_current(!bare);
                (work.run)(batch);
                plain::make_current(true);
            }
            for n in [0, batch] {
                (work.before)();
                plain::make_current(!bare);
                cuda_bench_counted(work, n);
                plain::make_current(true);
                println!("{}\t{}\t{}\t{n}", operation.name, operation.calls, layer.name());
            }
        }
    }
}
