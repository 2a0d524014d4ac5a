//! Counting instructions: under callgrind, which counts in `counted` only, and writes what it has
//! counted each time that function returns.

use crate::plain;
use crate::work::{Operation, Work};
use std::hint::black_box;

/// Callgrind is told of this name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cuda_bench_counted(work: &mut Work, n: usize) {
    (work.run)(black_box(n));
}

/// Does each work twice where it is counted: none of it, and a batch. A line for each, in order.
pub(crate) fn run(operations: &mut [Operation]) {
    for operation in operations {
        let (batch, bare) = (operation.batch, operation.bare);
        for (layer, work) in &mut operation.works {
            // Functions are found, and memory is got from the system, before that.
            for _ in 0..3 {
                plain::make_current(!bare);
                (work.run)(batch);
                plain::make_current(true);
                (work.after)();
            }
            for n in [0, batch] {
                plain::make_current(!bare);
                cuda_bench_counted(work, n);
                plain::make_current(true);
                (work.after)();
                println!(
                    "{}\t{}\t{}\t{n}",
                    operation.name,
                    operation.calls,
                    layer.name()
                );
            }
        }
    }
}
