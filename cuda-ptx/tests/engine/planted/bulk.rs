//! Bulk asynchronous copies, also of tensors. `map0` describes a tensor in the memory with zeros, and `map1` one in
//! memory that nothing has written: rows of 32 words, and boxes of 4 rows of 8 words. The last 32 rows of `map0` are
//! behind the memory.

use super::{Class, Row, pairs, right, wrong};
use cuda_ptx::check::Check;

pub(super) const BOUNDS: Class = Class {
    name: "bulk copies of other memory",
    check: Check::Memcheck,
    rows: BOUNDS_ROWS,
    tail: "",
};

const BOUNDS_ROWS: &[Row] = &[
    right(
        "the last bytes",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0+16368], [s], 16;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r7, [%d0+16380];",
    ),
    right(
        "a box that is in the tensor in part",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 28; mov.u32 %r21, -2;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];",
    ),
    wrong(
        "a store after the end",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; st.shared.v4.u32 [s+16], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0+16368], [s], 32;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "nothing is",
    ),
    wrong(
        "a reduction after the end",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; st.shared.v4.u32 [s+16], {1, 2, 3, 4}; fence.proxy.async;
         cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0+16368], [s], 32;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "nothing is",
    ),
    wrong(
        "a load of freed memory",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d50], 64, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];",
        "nothing is",
    ),
    wrong(
        "a target in shared memory after the end",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+262144], [%d0], 64, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];",
        "of shared memory of",
    ),
    wrong(
        "a source in shared memory after the end",
        (1, 1),
        "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r5+262144], 32;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "of shared memory of",
    ),
    wrong(
        "a load of rows behind the memory of a tensor",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 8; mov.u32 %r21, 126;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];",
        "nothing is",
    ),
    wrong(
        "a store of rows behind the memory of a tensor",
        (1, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 8; mov.u32 %r21, 126;
         cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
        "nothing is",
    ),
    wrong(
        "a size of 8 bytes",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async; mov.u32 %r20, 8;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], %r20;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "which are not multiples of 16",
    ),
    wrong(
        "a misaligned source",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0+8], 64, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];",
        "which are not multiples of 16",
    ),
    wrong(
        "a misaligned target",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+4], [%d0], 64, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];",
        "which are not multiples of 16",
    ),
];

pub(super) const VALUES: Class = Class {
    name: "values of bulk copies",
    check: Check::Initcheck,
    rows: VALUES_ROWS,
    tail: super::init::LOADED.tail,
};

const CONDITION: &str = "a condition depends on memory that was never written";

const VALUES_ROWS: &[Row] = &[
    right(
        "a store of bytes with values",
        (1, 4),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.async.bulk.global.shared::cta.bulk_group [%d10], [s], 16;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r10, [%d10+12]; E:",
    ),
    wrong(
        "a store of shared memory that was not written",
        (1, 4),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 32;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r10, [%d0+16]; E:",
        CONDITION,
    ),
    right(
        "a sum of values",
        (1, 4),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [s], 16;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r10, [%d0+12]; E:",
    ),
    wrong(
        "a sum with memory that was not written",
        (1, 4),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d10], [s], 16;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r10, [%d10+12]; E:",
        CONDITION,
    ),
    right(
        "a tensor with values",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 4; mov.u32 %r21, 5;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r10, [s+124];",
    ),
    wrong(
        "a tensor that was not written",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map1; cvta.param.u64 %d30, %d30; mov.u32 %r20, 4; mov.u32 %r21, 5;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r10, [s+124];",
        CONDITION,
    ),
    right(
        "elements outside of a tensor that was not written",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map1; cvta.param.u64 %d30, %d30; mov.u32 %r20, 28; mov.u32 %r21, 5;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r10, [s+124];",
    ),
    wrong(
        "a store of a box that was not written in part",
        (1, 31),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 0; mov.u32 %r21, 0;
         cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r8, [%d0+408];
         ld.global.u32 %r10, [%d0+412]; E:",
        CONDITION,
    ),
];

pub(super) const RACES: Class = Class {
    name: "bulk copies and other threads",
    check: Check::Racecheck,
    rows: RACES_ROWS,
    tail: "",
};

const RACES_ROWS: &[Row] = &[
    right(
        "a store after a barrier",
        (1, 64),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 256;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
    ),
    wrong(
        "a store without a barrier",
        (1, 64),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; @!%p0 bra E;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 256;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
        "a race on shared memory",
    ),
    wrong(
        "a store of a box without a barrier",
        (1, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 0; mov.u32 %r21, 0;
         cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
        "a race on shared memory",
    ),
    wrong(
        "a load into words that other threads read",
        (1, 64),
        "@%p0 mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; st.shared.u32 [%r6], 0; bar.sync 0;
         ld.shared.u32 %r8, [%r6]; @!%p0 bra E; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 256;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 256, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; E:",
        "a race on shared memory",
    ),
    right(
        "reductions of two blocks",
        (2, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [s], 128;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
    ),
    right(
        "reductions of two blocks in a tensor",
        (2, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 0; mov.u32 %r21, 0;
         cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
    ),
    wrong(
        "stores of two blocks to the same words",
        (2, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 128;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
        "a race on global memory",
    ),
    wrong(
        "stores of two blocks to boxes that overlap",
        (2, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; shl.b32 %r20, %r1, 2; mov.u32 %r21, 0;
         cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:",
        "a race on global memory",
    ),
];

pub(super) const WAITS: Class =
    Class { name: "waits for bulk copies", check: Check::Synccheck, rows: WAITS_ROWS, tail: "" };

const WAITS_ROWS: &[Row] = &[
    right(
        "a tensor",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 4; mov.u32 %r21, 5;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r8, [s+124];",
    ),
    wrong(
        "a tensor without a wait",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 4; mov.u32 %r21, 5;
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%d30, {%r20, %r21}], [bar];
         ld.shared.u32 %r8, [s+124]; L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L;",
        "shared memory is read before the asynchronous copy to it is complete",
    ),
    wrong(
        "a wait for another object",
        (1, 1),
        ".shared .align 8 .b64 other; mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [other], 1;
         fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 64, [bar];
         mbarrier.arrive.shared.b64 %d3, [other];
         W: mbarrier.try_wait.shared.b64 %p3, [other], %d3; @!%p3 bra W; ld.shared.u32 %r8, [s+60];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L;",
        "shared memory is read before the asynchronous copy to it is complete",
    ),
    right(
        "a store to the source after it was read",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         cp.async.bulk.wait_group.read 0; st.shared.u32 [s+4], 7; cp.async.bulk.wait_group 0;",
    ),
    wrong(
        "a store to the source without a wait",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         st.shared.u32 [s+4], 7; cp.async.bulk.wait_group 0;",
        "shared memory is written before the asynchronous copy from it has read it",
    ),
    wrong(
        "a store to the source of a box without a wait",
        (1, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 0; mov.u32 %r21, 0;
         cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; st.shared.u32 [s+124], 7; cp.async.bulk.wait_group 0; E:",
        "shared memory is written before the asynchronous copy from it has read it",
    ),
    right(
        "a load of the source",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         ld.shared.u32 %r7, [s+4]; cp.async.bulk.wait_group 0; ld.global.u32 %r8, [%d0];",
    ),
    wrong(
        "a load of the target when the source was read",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         cp.async.bulk.wait_group.read 0; ld.global.u32 %r8, [%d0]; cp.async.bulk.wait_group 0;",
        "global memory is read before the bulk copy to it is complete",
    ),
    wrong(
        "a load of a box without a wait",
        (1, 32),
        "st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; @!%p0 bra E;
         mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; mov.u32 %r20, 0; mov.u32 %r21, 0;
         cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d30, {%r20, %r21}], [s];
         cp.async.bulk.commit_group; ld.global.u32 %r8, [%d0+412]; cp.async.bulk.wait_group 0; E:",
        "global memory is read before the bulk copy to it is complete",
    ),
    wrong(
        "a copy that is in no group",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16;
         cp.async.bulk.wait_group 0; ld.global.u32 %r8, [%d0]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "global memory is read before the bulk copy to it is complete",
    ),
    right(
        "the first of two groups",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         cp.async.bulk.global.shared::cta.bulk_group [%d0+16], [s], 16; cp.async.bulk.commit_group;
         cp.async.bulk.wait_group 1; ld.global.u32 %r8, [%d0]; cp.async.bulk.wait_group 0;",
    ),
    wrong(
        "the second of two groups",
        (1, 1),
        "st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         cp.async.bulk.global.shared::cta.bulk_group [%d0+16], [s], 16; cp.async.bulk.commit_group;
         cp.async.bulk.wait_group 1; ld.global.u32 %r8, [%d0+16]; cp.async.bulk.wait_group 0;",
        "global memory is read before the bulk copy to it is complete",
    ),
    wrong(
        "a load into the source of a store",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; st.shared.v4.u32 [s], {1, 2, 3, 4}; fence.proxy.async;
         cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16; cp.async.bulk.commit_group;
         mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 16;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0+64], 16, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; cp.async.bulk.wait_group 0;",
        "shared memory is written before the asynchronous copy from it has read it",
    ),
    pairs(right(
        "a copy to both blocks",
        (2, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
         barrier.cluster.arrive; barrier.cluster.wait; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         mov.u16 %h1, 3; setp.eq.u32 %p4, %r1, 0;
         @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [s], [%d0], 64, [bar], %h1;
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r8, [s+60];
         barrier.cluster.arrive; barrier.cluster.wait;",
    )),
    pairs(wrong(
        "a copy to both blocks without a wait",
        (2, 1),
        "mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
         barrier.cluster.arrive; barrier.cluster.wait; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64;
         mov.u16 %h1, 3; setp.eq.u32 %p4, %r1, 0;
         @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [s], [%d0], 64, [bar], %h1;
         barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r8, [s+60];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; barrier.cluster.arrive; barrier.cluster.wait;",
        "shared memory is read before the asynchronous copy to it is complete",
    )),
];
