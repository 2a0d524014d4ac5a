//! Kernels that communicate without locks.

use super::{Scenario, context};
use crate::common::lockfree::cases::{EXCHANGE, PTX, QUEUE, SCAN};
use crate::common::lockfree::run;

pub(super) fn all() -> Vec<Scenario> {
    let cases = [("scan", SCAN), ("queue", QUEUE), ("exchange", EXCHANGE)];
    let cases = cases.into_iter();
    cases
        .map(|(name, case)| {
            Scenario::new(format!("kernels/{name}"), move || run(&context(0), PTX, case))
        })
        .collect()
}
