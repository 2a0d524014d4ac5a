//! Barriers, functions of warps, and asynchronous copies.

use super::{Class, ENDLESS, Row, pairs, right, wrong};
use cuda_ptx::check::Check;

pub(super) const BARRIERS: Class =
    Class { name: "barriers", check: Check::Synccheck, rows: BARRIERS_ROWS, tail: "" };

const BARRIERS_ROWS: &[Row] = &[
    right("all threads", (2, 96), "bar.sync 0; bar.sync 0;"),
    right("threads exit before", (1, 96), "@%p1 exit; bar.sync 0;"),
    right("a warp exits before", (1, 96), "@%p2 exit; bar.sync 0;"),
    right("a part of the block", (1, 128), "setp.lt.u32 %p3, %r0, 64; @%p3 bar.sync 1, 64;"),
    right(
        "producers and consumers",
        (1, 64),
        "@%p2 bra C; bar.arrive 1, 64; bra E; C: bar.sync 1, 64; E: bar.sync 0;",
    ),
    right(
        "lanes one after another, not aligned",
        (1, 32),
        "@%p1 bra A; barrier.sync 0; bra E; A: barrier.sync 0; E:",
    ),
    right(
        "divergent loops before",
        (1, 64),
        "and.b32 %r7, %r0, 7; L: setp.eq.u32 %p3, %r7, 0; @%p3 bra E; sub.u32 %r7, %r7, 1; bra L; E: bar.sync 0;",
    ),
    right(
        "a branch of all threads of the block",
        (2, 64),
        "setp.eq.u32 %p3, %r1, 0; @%p3 bra A; bar.sync 0; A: bar.sync 0;",
    ),
    right(
        "a loop with as many turns in each thread",
        (1, 64),
        "mov.u32 %r7, 3; L: bar.sync 0; sub.u32 %r7, %r7, 1; setp.ne.u32 %p3, %r7, 0; @%p3 bra L;",
    ),
    wrong(
        "a loop with other turns in each thread",
        (1, 32),
        "and.b32 %r7, %r0, 3; L: bar.sync 0; setp.eq.u32 %p3, %r7, 0; sub.u32 %r7, %r7, 1; @!%p3 bra L; bar.sync 0;",
        "from two instructions",
    ),
    wrong(
        "two instructions",
        (1, 32),
        "@%p1 bra A; bar.sync 0; bra E; A: bar.sync 0; E:",
        "arrive at the barrier 0 from two instructions",
    ),
    wrong(
        "a condition within a warp",
        (1, 64),
        "and.b32 %r7, %r0, 31; setp.lt.u32 %p3, %r7, 16; @%p3 bar.sync 1, 32; bar.sync 0;",
        "the threads of a warp diverge: the lanes 0xffff0000 do not arrive",
    ),
    wrong(
        "a condition that the first lanes do not fulfill",
        (1, 64),
        "and.b32 %r7, %r0, 31; setp.ge.u32 %p3, %r7, 16; @%p3 bar.sync 1, 32; bar.sync 0;",
        "the threads of a warp diverge: the lanes 0x0000ffff do not arrive",
    ),
    wrong("too few threads", (1, 64), "@%p2 bar.sync 1, 64;", ENDLESS),
    wrong("exited threads are expected", (1, 96), "@%p2 exit; bar.sync 1, 96;", ENDLESS),
    wrong(
        "a count that is no multiple",
        (1, 64),
        "mov.u32 %r7, 33; barrier.sync 1, %r7;",
        "a multiple of the warp size",
    ),
    wrong("a count of zero", (1, 32), "mov.u32 %r7, 0; barrier.sync 1, %r7;", "must be positive"),
    wrong("a count beyond the block", (1, 64), "bar.sync 1, 128;", "the block has 64"),
    wrong(
        "two counts",
        (1, 64),
        "mov.u32 %r7, 64; @!%p2 mov.u32 %r7, 32; barrier.sync 1, %r7;",
        "the barrier 1 expects",
    ),
    wrong(
        "a reduction and none",
        (1, 64),
        "@%p2 bra A; bar.sync 0; bra E; A: bar.red.popc.u32 %r7, 0, %p0; E:",
        "a reduction at the barrier 0, which other threads use without one",
    ),
    wrong(
        "too many threads",
        (1, 96),
        "bar.sync 1, 64;",
        "arrive at the barrier 1, which expects 64",
    ),
    wrong(
        "an arrival twice",
        (1, 96),
        "setp.lt.u32 %p3, %r0, 64; @%p3 bar.arrive 1, 96; @%p3 bar.arrive 1, 96;",
        "again before it is complete",
    ),
];

pub(super) const WARPS: Class =
    Class { name: "functions of warps", check: Check::Synccheck, rows: WARPS_ROWS, tail: "" };

const WARPS_ROWS: &[Row] = &[
    right("all lanes", (1, 64), "shfl.sync.bfly.b32 %r7, %r0, 1, 31, 0xffffffff;"),
    right("a part of the lanes", (1, 32), "@%p1 shfl.sync.bfly.b32 %r7, %r0, 1, 31, 0xffff;"),
    right(
        "a partial warp, which no lane reads",
        (1, 48),
        "shfl.sync.down.b32 %r7, %r0, 0, 31, 0xffffffff;",
    ),
    right(
        "a mask with exited lanes",
        (1, 32),
        "@!%p1 exit; vote.sync.ballot.b32 %r7, %p0, 0xffffffff; bar.warp.sync 0xffffffff;",
    ),
    right(
        "lanes that come later",
        (1, 32),
        "@%p1 bra E; add.u32 %r7, %r0, 1; E: vote.sync.any.pred %p3, %p0, 0xffffffff;",
    ),
    right(
        "groups with their own masks",
        (1, 32),
        "and.b32 %r8, %r0, 3; match.any.sync.b32 %r7, %r8, 0xffffffff; redux.sync.add.u32 %r8, %r0, %r7;",
    ),
    right(
        "barriers of the warp on both sides of a branch",
        (1, 32),
        "@%p1 bra A; bar.warp.sync 0xffff0000; bra E; A: bar.warp.sync 0xffff; E: bar.warp.sync 0xffffffff;",
    ),
    wrong(
        "a vote whose mask lacks the lane",
        (1, 32),
        "vote.sync.any.pred %p3, %p0, 0xfffe;",
        "lacks the lane",
    ),
    wrong(
        "a barrier whose mask lacks the lane",
        (1, 32),
        "bar.warp.sync 0xffff;",
        "lacks the lane",
    ),
    wrong(
        "a lane that has exited",
        (1, 32),
        "@!%p1 exit; shfl.sync.idx.b32 %r7, %r0, 20, 31, 0xffffffff;",
        "a shuffle reads the lane 20, which has exited",
    ),
    wrong(
        "a lane without a thread",
        (1, 48),
        "shfl.sync.down.b32 %r7, %r0, 1, 31, 0xffffffff;",
        "a shuffle reads the lane 16, which has exited or has no thread",
    ),
    wrong(
        "a lane that is not in the mask",
        (1, 32),
        "@%p1 shfl.sync.idx.b32 %r7, %r0, 16, 31, 0xffff;",
        "a shuffle reads the lane 16, which is not in the mask 0x0000ffff",
    ),
    wrong(
        "two masks",
        (1, 32),
        "mov.u32 %r7, -1; @%p1 mov.u32 %r7, 0xffff; vote.sync.ballot.b32 %r8, %p0, %r7;",
        "names the lanes 0x0000ffff, which execute the instruction with another mask",
    ),
    right("a matrix", (1, 64), "movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r0;"),
    wrong(
        "a matrix of lanes of which some have exited",
        (1, 32),
        "@!%p1 exit; movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r0;",
        "all lanes of a warp must execute the instruction, and the lanes 0xffff0000 have exited or",
    ),
    wrong(
        "a matrix of wmma of lanes of which some have exited",
        (1, 32),
        "@!%p1 exit; wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {%r7, %r20, %r21, %r22}, [%d0], 16;",
        "all lanes of a warp must execute the instruction, and the lanes 0xffff0000 have exited or",
    ),
    wrong(
        "a matrix of a warp with few threads",
        (1, 40),
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r7, %r8}, {%r0}, {%r0}, {%r0, %r0};",
        "and the lanes 0xffffff00 have exited or have no thread",
    ),
    wrong(
        "both sides of a branch",
        (1, 32),
        "@%p1 bra A; vote.sync.ballot.b32 %r8, %p0, 0xffffffff; bra E; A: redux.sync.add.u32 %r8, %r0, 0xffffffff; E:",
        ENDLESS,
    ),
];

pub(super) const CLUSTERS: Class =
    Class { name: "barriers of clusters", check: Check::Synccheck, rows: CLUSTERS_ROWS, tail: "" };

const CLUSTERS_ROWS: &[Row] = &[
    pairs(right(
        "a cluster",
        (2, 64),
        "barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive; barrier.cluster.wait;",
    )),
    pairs(wrong(
        "two arrivals",
        (2, 64),
        "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;",
        "again without a wait",
    )),
    pairs(wrong("a wait alone", (2, 64), "barrier.cluster.wait;", "wait")),
];

pub(super) const OBJECTS: Class =
    Class { name: "mbarrier objects", check: Check::Synccheck, rows: OBJECTS_ROWS, tail: "" };

const OBJECTS_ROWS: &[Row] = &[
    right(
        "a barrier object",
        (1, 64),
        "@%p0 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; mbarrier.arrive.shared.b64 %d2, [bar];
         L: mbarrier.test_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; bar.sync 0;
         @%p0 mbarrier.inval.shared.b64 [bar]; bar.sync 0; @%p0 st.shared.u32 [bar], %r0;",
    ),
    wrong("no initialization", (1, 1), "mbarrier.arrive.shared.b64 %d2, [bar];", "is not initialized as an mbarrier"),
    wrong(
        "an invalid object",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 %d2, [bar];",
        "is not initialized as an mbarrier",
    ),
    wrong("a second initialization", (1, 1), "mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [bar], 1;", "of a valid object"),
    wrong("a count of zero", (1, 1), "mbarrier.init.shared.b64 [bar], 0;", "the count 0 is not one of"),
    wrong(
        "too many arrivals",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %d2, [bar], 3;",
        "3 arrivals at an mbarrier that expects 2 more",
    ),
    wrong(
        "an arrival of none",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 2; mov.u32 %r7, 0; mbarrier.arrive.shared.b64 %d2, [bar], %r7;",
        "an arrival with the count 0",
    ),
    wrong(
        "too many bytes",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 2; mov.u32 %r7, 2000000; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], %r7;",
        "exceed the limit",
    ),
    wrong("an ordinary load", (1, 1), "mbarrier.init.shared.b64 [bar], 2; ld.shared.u32 %r7, [bar+4];", "an ordinary access to a valid mbarrier object"),
    wrong("an ordinary store", (1, 1), "mbarrier.init.shared.b64 [bar], 2; st.shared.u8 [bar+7], %r7;", "an ordinary access to a valid mbarrier object"),
];

pub(super) const COPIES: Class =
    Class { name: "asynchronous copies", check: Check::Synccheck, rows: COPIES_ROWS, tail: "" };

const COPIES_ROWS: &[Row] = &[
    right(
        "a wait for a group",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r7, [%r6];",
    ),
    right(
        "a wait for all, and a barrier",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.wait_all; bar.sync 0; xor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
    ),
    right(
        "two stages",
        (1, 32),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.commit_group;
         cp.async.ca.shared.global [%r6+1024], [%d1], 4; cp.async.commit_group;
         cp.async.wait_group 1; ld.shared.u32 %r7, [%r6]; cp.async.wait_group 0; ld.shared.u32 %r7, [%r6+1024];",
    ),
    right(
        "a barrier object that tracks copies",
        (1, 32),
        "@%p0 mbarrier.init.shared.b64 [bar], 32; bar.sync 0; cp.async.ca.shared.global [%r6], [%d1], 4;
         cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; mov.u32 %r7, 0;
         L: mbarrier.test_wait.parity.shared.b64 %p3, [bar], %r7; @!%p3 bra L; ld.shared.u32 %r8, [%r6];",
    ),
    right(
        "a bulk copy",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 64, [bar];
         L: mbarrier.test_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r8, [s+60];",
    ),
    wrong(
        "a load of a matrix before the wait",
        (1, 32),
        "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5; mul.wide.u32 %d5, %r0, 16; add.u64 %d5, %d0, %d5;
         cp.async.cg.shared.global [%r7], [%d5], 16; cp.async.commit_group;
         ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r7];
         cp.async.wait_all;",
        "shared memory is read before the asynchronous copy to it is complete",
    ),
    wrong(
        "no wait",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; ld.shared.u32 %r7, [%r6];",
        "shared memory is read before the asynchronous copy to it is complete",
    ),
    wrong(
        "a barrier and no wait",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.commit_group; bar.sync 0; xor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
        "is read before",
    ),
    wrong(
        "a wait without a group",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.wait_group 0; ld.shared.u32 %r7, [%r6];",
        "is read before",
    ),
    wrong(
        "a wait for the other stage",
        (1, 32),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.commit_group;
         cp.async.ca.shared.global [%r6+1024], [%d1], 4; cp.async.commit_group;
         cp.async.wait_group 1; ld.shared.u32 %r7, [%r6+1024];",
        "is read before",
    ),
    wrong(
        "a wait for all groups but one",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r7, [%r6];",
        "is read before",
    ),
    wrong(
        "a store before the wait",
        (1, 64),
        "cp.async.ca.shared.global [%r6], [%d1], 4; st.shared.u16 [%r6+2], 7; cp.async.wait_all;",
        "is written before",
    ),
    wrong(
        "a bulk copy without a wait",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 64, [bar];
         ld.shared.u32 %r8, [s+60];",
        "is read before",
    ),
];
