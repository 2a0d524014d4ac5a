//! The patterns of parallel programs, with and without what orders their accesses: those that suites of races contain.

use super::{Class, Row, missed, pairs, right, wrong};
use cuda_ptx::check::Check;

pub(super) const SHARED: Class =
    Class { name: "patterns in shared memory", check: Check::Racecheck, rows: IN_SHARED, tail: "" };

const RACE: &str = "a race on shared memory";

const IN_SHARED: &[Row] = &[
    right(
        "a tree reduction",
        (1, 128),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 64;
         L: bar.sync 0; setp.ge.u32 %p3, %r0, %r20; @%p3 bra N; shl.b32 %r21, %r20, 2; add.u32 %r21, %r6, %r21;
         ld.shared.u32 %r22, [%r21]; ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22;
         N: shr.u32 %r20, %r20, 1; setp.ne.u32 %p4, %r20, 0; @%p4 bra L; bar.sync 0; ld.shared.u32 %r7, [s];",
    ),
    wrong(
        "a tree reduction without a barrier in the loop",
        (1, 128),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 64; bar.sync 0;
         L: setp.ge.u32 %p3, %r0, %r20; @%p3 bra N; shl.b32 %r21, %r20, 2; add.u32 %r21, %r6, %r21;
         ld.shared.u32 %r22, [%r21]; ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22;
         N: shr.u32 %r20, %r20, 1; setp.ne.u32 %p4, %r20, 0; @%p4 bra L; bar.sync 0; ld.shared.u32 %r7, [s];",
        RACE,
    ),
    wrong(
        "a tree reduction without the last barrier",
        (1, 128),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 64;
         L: bar.sync 0; setp.ge.u32 %p3, %r0, %r20; @%p3 bra N; shl.b32 %r21, %r20, 2; add.u32 %r21, %r6, %r21;
         ld.shared.u32 %r22, [%r21]; ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22;
         N: shr.u32 %r20, %r20, 1; setp.ne.u32 %p4, %r20, 0; @%p4 bra L; ld.shared.u32 %r7, [s];",
        RACE,
    ),
    right(
        "a reduction whose last warp synchronizes",
        (1, 64),
        "st.shared.u32 [%r6], %r0; bar.sync 0; @!%p2 bra E; mov.u32 %r20, 128;
         L: add.u32 %r21, %r6, %r20; ld.shared.u32 %r22, [%r21]; bar.warp.sync 0xffffffff;
         ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22; bar.warp.sync 0xffffffff;
         shr.u32 %r20, %r20, 1; setp.ge.u32 %p4, %r20, 4; @%p4 bra L; ld.shared.u32 %r7, [s]; E:",
    ),
    wrong(
        "a reduction whose last warp does not synchronize",
        (1, 64),
        "st.shared.u32 [%r6], %r0; bar.sync 0; @!%p2 bra E; mov.u32 %r20, 128;
         L: add.u32 %r21, %r6, %r20; ld.shared.u32 %r22, [%r21];
         ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22;
         shr.u32 %r20, %r20, 1; setp.ge.u32 %p4, %r20, 4; @%p4 bra L; ld.shared.u32 %r7, [s]; E:",
        RACE,
    ),
    right(
        "a reduction of shuffles",
        (1, 128),
        "mov.u32 %r20, %r0; mov.u32 %r21, 16;
         L: shfl.sync.down.b32 %r22, %r20, %r21, 31, 0xffffffff; add.u32 %r20, %r20, %r22; shr.u32 %r21, %r21, 1;
         setp.ne.u32 %p3, %r21, 0; @%p3 bra L; and.b32 %r23, %r0, 31; setp.eq.u32 %p4, %r23, 0; shr.u32 %r23, %r0, 3;
         add.u32 %r23, %r5, %r23; @%p4 st.shared.u32 [%r23], %r20; bar.sync 0; ld.shared.u32 %r7, [s+12];",
    ),
    wrong(
        "a reduction of shuffles without a barrier",
        (1, 128),
        "mov.u32 %r20, %r0; mov.u32 %r21, 16;
         L: shfl.sync.down.b32 %r22, %r20, %r21, 31, 0xffffffff; add.u32 %r20, %r20, %r22; shr.u32 %r21, %r21, 1;
         setp.ne.u32 %p3, %r21, 0; @%p3 bra L; and.b32 %r23, %r0, 31; setp.eq.u32 %p4, %r23, 0; shr.u32 %r23, %r0, 3;
         add.u32 %r23, %r5, %r23; @%p4 st.shared.u32 [%r23], %r20; ld.shared.u32 %r7, [s];",
        RACE,
    ),
    right(
        "a scan",
        (1, 64),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 1;
         L: bar.sync 0; mov.u32 %r22, 0; setp.lt.u32 %p3, %r0, %r20; @%p3 bra N; shl.b32 %r21, %r20, 2;
         sub.u32 %r21, %r6, %r21; ld.shared.u32 %r22, [%r21]; N: bar.sync 0; ld.shared.u32 %r23, [%r6];
         add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22; shl.b32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 64;
         @%p4 bra L; ld.shared.u32 %r7, [%r6];",
    ),
    wrong(
        "a scan that reads and writes between the same barriers",
        (1, 64),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 1;
         L: bar.sync 0; mov.u32 %r22, 0; setp.lt.u32 %p3, %r0, %r20; @%p3 bra N; shl.b32 %r21, %r20, 2;
         sub.u32 %r21, %r6, %r21; ld.shared.u32 %r22, [%r21]; N: ld.shared.u32 %r23, [%r6];
         add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22; shl.b32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 64;
         @%p4 bra L; ld.shared.u32 %r7, [%r6];",
        RACE,
    ),
    right(
        "a scan with two buffers",
        (1, 64),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 1; mov.u32 %r24, 0;
         L: bar.sync 0; add.u32 %r25, %r6, %r24; xor.b32 %r24, %r24, 1024; ld.shared.u32 %r22, [%r25];
         setp.lt.u32 %p3, %r0, %r20; @%p3 bra N; shl.b32 %r21, %r20, 2; sub.u32 %r21, %r25, %r21;
         ld.shared.u32 %r23, [%r21]; add.u32 %r22, %r22, %r23;
         N: add.u32 %r25, %r6, %r24; st.shared.u32 [%r25], %r22; shl.b32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 64;
         @%p4 bra L; ld.shared.u32 %r7, [%r25];",
    ),
    right(
        "a histogram",
        (1, 96),
        "@%p1 st.shared.u32 [%r6], 0; bar.sync 0; mul.lo.u32 %r20, %r0, 28; and.b32 %r20, %r20, 60;
         add.u32 %r20, %r5, %r20; red.shared.add.u32 [%r20], 1; bar.sync 0; @%p1 ld.shared.u32 %r7, [%r6];",
    ),
    wrong(
        "a histogram without atomic operations",
        (1, 96),
        "@%p1 st.shared.u32 [%r6], 0; bar.sync 0; mul.lo.u32 %r20, %r0, 28; and.b32 %r20, %r20, 60;
         add.u32 %r20, %r5, %r20; ld.shared.u32 %r21, [%r20]; add.u32 %r21, %r21, 1; st.shared.u32 [%r20], %r21;
         bar.sync 0; @%p1 ld.shared.u32 %r7, [%r6];",
        RACE,
    ),
    wrong(
        "a histogram without a barrier after its initialization",
        (1, 96),
        "@%p1 st.shared.u32 [%r6], 0; mul.lo.u32 %r20, %r0, 28; and.b32 %r20, %r20, 60;
         add.u32 %r20, %r5, %r20; red.shared.add.u32 [%r20], 1; bar.sync 0; @%p1 ld.shared.u32 %r7, [%r6];",
        RACE,
    ),
    wrong(
        "a histogram without a barrier before its use",
        (1, 96),
        "@%p1 st.shared.u32 [%r6], 0; bar.sync 0; mul.lo.u32 %r20, %r0, 28; and.b32 %r20, %r20, 60;
         add.u32 %r20, %r5, %r20; red.shared.add.u32 [%r20], 1; @%p1 ld.shared.u32 %r7, [%r6];",
        RACE,
    ),
    right(
        "a stencil",
        (1, 64),
        "ld.global.u32 %r20, [%d1]; st.shared.u32 [%r6+4], %r20; @%p0 st.shared.u32 [s], 0; @%p0 st.shared.u32 [s+260], 0;
         bar.sync 0; ld.shared.u32 %r7, [%r6]; ld.shared.u32 %r8, [%r6+8];",
    ),
    wrong(
        "a stencil without a barrier",
        (1, 64),
        "ld.global.u32 %r20, [%d1]; st.shared.u32 [%r6+4], %r20; @%p0 st.shared.u32 [s], 0; @%p0 st.shared.u32 [s+260], 0;
         ld.shared.u32 %r7, [%r6]; ld.shared.u32 %r8, [%r6+8];",
        RACE,
    ),
    wrong(
        "a stencil whose margin is written after the barrier",
        (1, 64),
        "ld.global.u32 %r20, [%d1]; st.shared.u32 [%r6+4], %r20; bar.sync 0; @%p0 st.shared.u32 [s+260], 0;
         ld.shared.u32 %r7, [%r6+4]; ld.shared.u32 %r8, [%r6+8];",
        RACE,
    ),
    right(
        "a transposed tile",
        (1, 64),
        "st.shared.u32 [%r6], %r0; bar.sync 0; shr.u32 %r20, %r0, 3; and.b32 %r21, %r0, 7; mad.lo.u32 %r20, %r21, 8, %r20;
         shl.b32 %r20, %r20, 2; add.u32 %r20, %r5, %r20; ld.shared.u32 %r7, [%r20];",
    ),
    wrong(
        "a transposed tile without a barrier",
        (1, 64),
        "st.shared.u32 [%r6], %r0; shr.u32 %r20, %r0, 3; and.b32 %r21, %r0, 7; mad.lo.u32 %r20, %r21, 8, %r20;
         shl.b32 %r20, %r20, 2; add.u32 %r20, %r5, %r20; ld.shared.u32 %r7, [%r20];",
        RACE,
    ),
    right(
        "the tiles of a product",
        (1, 64),
        "mov.u32 %r20, 0; L: ld.global.u32 %r21, [%d1]; st.shared.u32 [%r6], %r21; bar.sync 0; ld.shared.u32 %r22, [s];
         ld.shared.u32 %r23, [s+252]; mad.lo.u32 %r7, %r22, %r23, %r7; bar.sync 0; add.u32 %r20, %r20, 1;
         setp.lt.u32 %p3, %r20, 4; @%p3 bra L;",
    ),
    wrong(
        "the tiles of a product with one barrier",
        (1, 64),
        "mov.u32 %r20, 0; L: ld.global.u32 %r21, [%d1]; st.shared.u32 [%r6], %r21; bar.sync 0; ld.shared.u32 %r22, [s];
         ld.shared.u32 %r23, [s+252]; mad.lo.u32 %r7, %r22, %r23, %r7; add.u32 %r20, %r20, 1;
         setp.lt.u32 %p3, %r20, 4; @%p3 bra L;",
        RACE,
    ),
    right(
        "a queue with two barriers",
        (1, 64),
        "mov.u32 %r20, 0; @!%p2 bra C;
         P: setp.eq.u32 %p3, %r20, 0; @%p3 bra Q; bar.sync 2, 64;
         Q: st.shared.u32 [%r6], %r20; bar.arrive 1, 64; add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 3; @%p4 bra P; bra E;
         C: bar.sync 1, 64; ld.shared.u32 %r21, [%r6+-128]; add.u32 %r7, %r7, %r21; setp.eq.u32 %p3, %r20, 2; @%p3 bra E;
         bar.arrive 2, 64; add.u32 %r20, %r20, 1; bra C; E:",
    ),
    wrong(
        "a queue that does not wait until it is empty",
        (1, 64),
        "mov.u32 %r20, 0; @!%p2 bra C;
         P: st.shared.u32 [%r6], %r20; bar.sync 1, 64; add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 3; @%p4 bra P; bra E;
         C: bar.sync 1, 64; ld.shared.u32 %r21, [%r6+-128]; add.u32 %r7, %r7, %r21; add.u32 %r20, %r20, 1;
         setp.lt.u32 %p3, %r20, 3; @%p3 bra C; E:",
        RACE,
    ),
    right(
        "groups with their own barriers",
        (1, 128),
        "st.shared.u32 [%r6], %r0; shr.u32 %r20, %r0, 6; add.u32 %r20, %r20, 1; barrier.sync %r20, 64;
         xor.b32 %r21, %r4, 128; add.u32 %r21, %r21, %r5; ld.shared.u32 %r7, [%r21];",
    ),
    wrong("a broadcast without a barrier", (1, 64), "@%p0 st.shared.u32 [s], 7; ld.shared.u32 %r7, [s];", RACE),
    wrong("a write after all have read", (1, 64), "@%p0 st.shared.u32 [s], 7; bar.sync 0; ld.shared.u32 %r7, [s]; @%p0 st.shared.u32 [s], 8;", RACE),
    right(
        "a rotation",
        (1, 64),
        "st.shared.u32 [%r6], %r0; add.u32 %r20, %r4, 4; and.b32 %r20, %r20, 252; add.u32 %r20, %r5, %r20; bar.sync 0;
         ld.shared.u32 %r7, [%r20]; bar.sync 0; st.shared.u32 [%r6], %r7;",
    ),
    wrong(
        "a rotation without the second barrier",
        (1, 64),
        "st.shared.u32 [%r6], %r0; add.u32 %r20, %r4, 4; and.b32 %r20, %r20, 252; add.u32 %r20, %r5, %r20; bar.sync 0;
         ld.shared.u32 %r7, [%r20]; st.shared.u32 [%r6], %r7;",
        RACE,
    ),
    wrong(
        "a word and one of its bytes",
        (1, 64),
        "@%p2 st.shared.u32 [%r6], %r0; @!%p2 st.shared.u8 [%r6+-127], %r0;",
        RACE,
    ),
    wrong("the same value", (1, 64), "st.shared.u32 [s], 1;", RACE),
    right(
        "a barrier with a reduction",
        (1, 64),
        "st.shared.u32 [%r6], %r0; bar.red.popc.u32 %r8, 0, %p0; xor.b32 %r20, %r4, 128; add.u32 %r20, %r20, %r5;
         ld.shared.u32 %r7, [%r20];",
    ),
    right(
        "volatile accesses that nothing orders",
        (1, 64),
        "@%p0 st.shared.u32 [s], 0; bar.sync 0; st.volatile.shared.u32 [s], %r0; ld.volatile.shared.u32 %r7, [s];",
    ),
    right(
        "a flag of the block",
        (1, 64),
        "@%p0 st.shared.u32 [s+4000], 0; bar.sync 0; @!%p2 bra C; @!%p0 bra E; st.shared.u32 [s], 7; membar.cta;
         st.volatile.shared.u32 [s+4000], 1; bra E;
         C: ld.volatile.shared.u32 %r20, [s+4000]; setp.eq.u32 %p3, %r20, 0; @%p3 bra C; membar.cta; ld.shared.u32 %r7, [s]; E:",
    ),
    wrong(
        "a flag of the block without fences",
        (1, 64),
        "@%p0 st.shared.u32 [s+4000], 0; bar.sync 0; @!%p2 bra C; @!%p0 bra E; st.shared.u32 [s], 7;
         st.volatile.shared.u32 [s+4000], 1; bra E;
         C: ld.volatile.shared.u32 %r20, [s+4000]; setp.eq.u32 %p3, %r20, 0; @%p3 bra C; ld.shared.u32 %r7, [s]; E:",
        RACE,
    ),
    wrong(
        "an asynchronous copy and a store of another warp",
        (1, 64),
        "@!%p2 bra S; cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.wait_all; bra E; S: st.shared.u32 [%r6+-128], %r0; E:",
        RACE,
    ),
    pairs(right(
        "shared memory of the other block",
        (2, 32),
        "st.shared.u32 [%r6], %r0; barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r20, %r1, 1;
         mapa.shared::cluster.u32 %r21, %r6, %r20; ld.shared::cluster.u32 %r7, [%r21]; barrier.cluster.arrive; barrier.cluster.wait;",
    )),
    pairs(wrong(
        "shared memory of the other block without a barrier",
        (2, 32),
        "st.shared.u32 [%r6], %r0; xor.b32 %r20, %r1, 1;
         mapa.shared::cluster.u32 %r21, %r6, %r20; ld.shared::cluster.u32 %r7, [%r21]; barrier.cluster.arrive; barrier.cluster.wait;",
        RACE,
    )),
];

pub(super) const GLOBAL: Class =
    Class { name: "patterns in global memory", check: Check::Racecheck, rows: IN_GLOBAL, tail: "" };

const BETWEEN: &str = "a race on global memory";

const IN_GLOBAL: &[Row] = &[
    right("a counter", (4, 32), "red.global.add.u32 [%d0], 1;"),
    wrong("a counter without atomic operations", (4, 32), "ld.global.u32 %r7, [%d0]; add.u32 %r7, %r7, 1; st.global.u32 [%d0], %r7;", BETWEEN),
    wrong("a counter that one thread reads", (4, 32), "red.global.add.u32 [%d0], 1; @%p0 ld.global.u32 %r7, [%d0];", BETWEEN),
    right("a shift of an array to another", (2, 64), "ld.global.u32 %r7, [%d1+4]; st.global.u32 [%d11], %r7;"),
    wrong("a shift of an array in place", (2, 64), "ld.global.u32 %r7, [%d1+4]; st.global.u32 [%d1], %r7;", BETWEEN),
    wrong(
        "a shift of an array in place by one warp",
        (1, 32),
        "ld.global.u32 %r7, [%d1+4]; st.global.u32 [%d1], %r7;",
        BETWEEN,
    ),
    right("a permutation", (2, 64), "xor.b32 %r20, %r3, 65; mul.wide.u32 %d2, %r20, 4; add.u64 %d2, %d10, %d2; st.global.u32 [%d2], %r0;"),
    wrong("a permutation with collisions", (2, 64), "and.b32 %r20, %r3, 63; mul.wide.u32 %d2, %r20, 4; add.u64 %d2, %d10, %d2; st.global.u32 [%d2], %r0;", BETWEEN),
    right("bytes of one word from several blocks", (4, 1), "cvt.u64.u32 %d2, %r1; add.u64 %d2, %d0, %d2; st.global.u8 [%d2], %r1;"),
    wrong("a byte and its word from several blocks", (2, 1), "setp.eq.u32 %p3, %r1, 0; @%p3 st.global.u8 [%d0+1], %r1; @!%p3 st.global.u32 [%d0], %r1;", BETWEEN),
    right(
        "a barrier of the grid",
        (2, 32),
        "st.global.u32 [%d1], %r0; bar.sync 0; @!%p0 bra W; fence.acq_rel.gpu; red.global.add.u32 [%d0+8192], 1;
         L: ld.relaxed.gpu.global.u32 %r20, [%d0+8192]; setp.lt.u32 %p3, %r20, 2; @%p3 bra L; fence.acq_rel.gpu;
         W: bar.sync 0; xor.b32 %r20, %r3, 32; mul.wide.u32 %d2, %r20, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r7, [%d2];",
    ),
    wrong(
        "a barrier of the grid without a fence",
        (2, 32),
        "st.global.u32 [%d1], %r0; bar.sync 0; @!%p0 bra W; red.global.add.u32 [%d0+8192], 1;
         L: ld.relaxed.gpu.global.u32 %r20, [%d0+8192]; setp.lt.u32 %p3, %r20, 2; @%p3 bra L; fence.acq_rel.gpu;
         W: bar.sync 0; xor.b32 %r20, %r3, 32; mul.wide.u32 %d2, %r20, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r7, [%d2];",
        BETWEEN,
    ),
    wrong(
        "a barrier of the grid that the other threads do not wait for",
        (2, 64),
        "st.global.u32 [%d1], %r0; bar.sync 0; @!%p0 bra W; fence.acq_rel.gpu; red.global.add.u32 [%d0+8192], 1;
         L: ld.relaxed.gpu.global.u32 %r20, [%d0+8192]; setp.lt.u32 %p3, %r20, 2; @%p3 bra L; fence.acq_rel.gpu;
         W: xor.b32 %r20, %r3, 64; mul.wide.u32 %d2, %r20, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r7, [%d2];",
        BETWEEN,
    ),
    wrong(
        "a flag without volatile",
        (2, 32),
        "@!%p0 bra E; setp.eq.u32 %p3, %r1, 1; @%p3 bra R; st.global.u32 [%d0], 7; membar.gl; st.global.u32 [%d0+8192], 1; bra E;
         R: ld.global.u32 %r20, [%d0+8192]; setp.eq.u32 %p4, %r20, 0; @%p4 bra E; membar.gl; ld.global.u32 %r7, [%d0]; E:",
        BETWEEN,
    ),
    wrong(
        "a lock that a weak store releases",
        (4, 32),
        "@!%p0 bra E; L: atom.acquire.gpu.global.cas.b32 %r20, [%d0+8192], 0, 1; setp.ne.u32 %p3, %r20, 0; @%p3 bra L;
         ld.global.u32 %r7, [%d0]; add.u32 %r7, %r7, 1; st.global.u32 [%d0], %r7; membar.gl; st.global.u32 [%d0+8192], 0; E:",
        BETWEEN,
    ),
    wrong(
        "an access without the lock",
        (4, 32),
        "@!%p0 bra E; setp.eq.u32 %p4, %r1, 3; @%p4 bra A;
         L: atom.acquire.gpu.global.cas.b32 %r20, [%d0+8192], 0, 1; setp.ne.u32 %p3, %r20, 0; @%p3 bra L;
         ld.global.u32 %r7, [%d0]; add.u32 %r7, %r7, 1; st.global.u32 [%d0], %r7;
         atom.release.gpu.global.exch.b32 %r20, [%d0+8192], 0; bra E; A: st.global.u32 [%d0], 0; E:",
        BETWEEN,
    ),
    wrong(
        "two locks",
        (2, 32),
        "@!%p0 bra E; cvt.u64.u32 %d2, %r1; shl.b64 %d2, %d2, 2; add.u64 %d2, %d0, %d2;
         L: atom.acquire.gpu.global.cas.b32 %r20, [%d2+8192], 0, 1; setp.ne.u32 %p3, %r20, 0; @%p3 bra L;
         ld.global.u32 %r7, [%d0]; add.u32 %r7, %r7, 1; st.global.u32 [%d0], %r7;
         atom.release.gpu.global.exch.b32 %r20, [%d2+8192], 0; E:",
        BETWEEN,
    ),
    wrong(
        "the sums of blocks, read by the first block",
        (4, 32),
        "@%p0 st.global.u32 [%d11], %r1; setp.ne.u32 %p3, %r3, 0; @%p3 bra E; ld.global.u32 %r7, [%d10]; ld.global.u32 %r8, [%d10+384]; E:",
        BETWEEN,
    ),
    missed(
        "a store before the lock",
        (2, 1),
        "setp.eq.u32 %p4, %r1, 0; @%p4 st.global.u32 [%d0], 7;
         L: atom.acquire.gpu.global.cas.b32 %r20, [%d0+8192], 0, 1; setp.ne.u32 %p3, %r20, 0; @%p3 bra L;
         @!%p4 ld.global.u32 %r7, [%d0]; atom.release.gpu.global.exch.b32 %r20, [%d0+8192], 0;",
        "the lock orders the accesses in the runs in which the block 0 takes it first",
    ),
];
