//! Known differences between the software driver and a real one.

use super::compare::Rule;

pub(crate) const RULES: &[Rule] = &[
    Rule {
        call: "cuLibraryGetModule",
        real: "0",
        software: "801",
        reason: "the function is not simulated",
    },
    Rule {
        call: "cuGreenCtxCreate",
        real: "0",
        software: "1",
        reason: "a green context without a descriptor: where its work runs is not known",
    },
    Rule {
        call: "cuPointerGetAttribute",
        real: "0 1",
        software: "0 0",
        reason: "the setting SYNC_MEMOPS of pinned memory is accepted, but not kept",
    },
];
