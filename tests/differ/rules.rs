//! Known differences between the software driver and a real one.

use super::compare::Rule;

const fn rule(
    call: &'static str,
    real: &'static str,
    software: &'static str,
    reason: &'static str,
) -> Rule {
    Rule { call, real, software, reason }
}

/// Calls with several wrong arguments have the code of the one that is checked first.
const ORDER: &str = "two errors at once, of which the driver reports the other";

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule("cuFuncGetModule", "0 unknown", "400", "the module of a library is not simulated"),
    rule("cuLibraryGetModule", "", "801", "the function is not simulated"),
    rule("cuGreenCtxCreate", "0", "1", "a green context without a descriptor: where its work runs is not known"),
    rule("cuPointerGetAttribute", "0 1", "0 0", "the setting SYNC_MEMOPS of pinned memory is accepted, but not kept"),
    rule("cuPointerSetAttribute", "0", "1", "the setting SYNC_MEMOPS of stream-ordered memory is refused"),
    rule("cuMemHostGetFlags", "0", "0", "pinned memory is part of a larger block, whose flags a GPU returns"),
    rule("cuOccupancyMaxActiveBlocksPerMultiprocessor", "0", "0", "limits of shared memory that were set for a function"),
    rule("cuOccupancyAvailableDynamicSMemPerBlock", "0", "0", "limits of shared memory that were set for a function"),
    rule("cuCtxGetFlags", "0", "0", "a driver sets CU_CTX_LMEM_RESIZE_TO_MAX in some contexts"),
    rule("cuMemRangeGetAttribute", "0 0", "0 -2", "the last prefetch of memory to which advice was given"),
    rule("cuMemRangeGetAttribute", "0 -2", "0 -1", "the last prefetch, after other managed memory was freed"),
    rule("cuMemRangeGetAttribute", "0 -1", "0 -2", "advice applies to pages, which can also have other memory"),
    rule("cuGraphExecMemsetNodeSetParams", "1", "0", "which other contexts a fill of an executable graph can be given"),
    rule("cuMemPoolSetAccess", "801", "1", ORDER),
    rule("cuGraphAddChildGraphNode", "801", "1", ORDER),
    rule("cuGraphExecChildGraphNodeSetParams", "910", "1", ORDER),
    rule("cuGraphExecDestroy", "900", "1", ORDER),
    rule("cuEventRecordWithFlags", "901", "1", ORDER),
    rule("cuStreamWaitEvent", "1", "901", ORDER),
    rule("cuStreamWaitEvent", "1", "401", ORDER),
    rule("cuStreamCopyAttributes", "", "", ORDER),
];
