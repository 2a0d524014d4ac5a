//! Accesses that nothing orders.

use super::{Class, Row, pairs, right, wrong};
use cuda_ptx::check::Check;

pub(super) const SHARED: Class =
    Class { name: "shared memory", check: Check::Racecheck, rows: SHARED_ROWS, tail: "" };

const SHARED_ROWS: &[Row] = &[
    right("own words", (2, 96), "st.shared.u32 [%r6], %r0; ld.shared.u32 %r7, [%r6];"),
    right(
        "a barrier between a store and a load of another thread",
        (2, 96),
        "st.shared.u32 [%r6], %r0; bar.sync 0; xor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
    ),
    right(
        "two barriers in a loop",
        (1, 64),
        "mov.u32 %r9, 0; L: st.shared.u32 [%r6], %r9; bar.sync 0; xor.b32 %r7, %r4, 252; add.u32 %r7, %r7, %r5;
         ld.shared.u32 %r8, [%r7]; bar.sync 0; add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 5; @%p3 bra L;",
    ),
    right(
        "bytes of one word",
        (1, 64),
        "add.u32 %r7, %r5, %r0; st.shared.u8 [%r7], %r0; ld.shared.u8 %r8, [%r7];",
    ),
    right("all threads read", (2, 96), "@%p0 st.shared.u32 [s], 7; bar.sync 0; ld.shared.u32 %r7, [s];"),
    right("atomic operations", (1, 96), "atom.shared.add.u32 %r7, [s], 1; red.shared.or.b32 [s+4], %r0;"),
    right(
        "a warp barrier",
        (1, 32),
        "st.shared.u32 [%r6], %r0; bar.warp.sync 0xffffffff; xor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
    ),
    right(
        "a barrier of a part of the block",
        (1, 96),
        "setp.ge.u32 %p3, %r0, 64; @%p3 exit; st.shared.u32 [%r6], %r0; bar.sync 1, 64; xor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
    ),
    right(
        "a producer that only arrives",
        (1, 64),
        "@%p2 bra C; st.shared.u32 [%r6], %r0; bar.arrive 1, 64; bra E;
         C: bar.sync 1, 64; ld.shared.u32 %r8, [%r6+128]; E:",
    ),
    right(
        "an mbarrier",
        (1, 64),
        "@%p0 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; st.shared.u32 [%r6], %r0; mbarrier.arrive.shared.b64 %d2, [bar];
         L: mbarrier.test_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L;
         xor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
    ),
    right(
        "a bulk copy with an mbarrier",
        (1, 64),
        "@%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; @!%p0 bra W;
         mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [bar], 256;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 256, [bar];
         W: mov.u32 %r7, 0; L: mbarrier.test_wait.parity.shared.b64 %p3, [bar], %r7; @!%p3 bra L; ld.shared.u32 %r8, [%r6];",
    ),
    wrong(
        "no barrier",
        (1, 64),
        "st.shared.u32 [%r6], %r0; xor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
        "a race on shared memory",
    ),
    wrong(
        "no barrier between lanes of a warp",
        (1, 32),
        "st.shared.u32 [%r6], %r0; xor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
        "a race on shared memory",
    ),
    wrong(
        "a barrier that is missing at the end of a loop",
        (1, 64),
        "mov.u32 %r9, 0; L: st.shared.u32 [%r6], %r9; bar.sync 0; xor.b32 %r7, %r4, 252; add.u32 %r7, %r7, %r5;
         ld.shared.u32 %r8, [%r7]; add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 5; @%p3 bra L;",
        "a race on shared memory",
    ),
    wrong("all threads write one word", (1, 64), "st.shared.u32 [s], %r0;", "a thread writes what another one writes"),
    wrong("lanes write one word", (1, 2), "st.shared.u32 [s], %r0;", "a thread writes what another one writes"),
    wrong(
        "an atomic operation and a load",
        (1, 64),
        "atom.shared.add.u32 %r7, [s], 1; ld.shared.u32 %r8, [s];",
        "a race on shared memory",
    ),
    wrong(
        "a shuffle is no barrier",
        (1, 32),
        "st.shared.u32 [%r6], %r0; shfl.sync.bfly.b32 %r8, %r0, 1, 31, 0xffffffff; xor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
        "a race on shared memory",
    ),
    right(
        "a matrix after a barrier of the warp",
        (1, 32),
        "st.shared.u32 [%r6], %r0; bar.warp.sync -1; and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r7]; bar.warp.sync -1;
         stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r8}; bar.warp.sync -1; ld.shared.u32 %r9, [%r6];",
    ),
    right(
        "addresses of lanes that name no row",
        (1, 32),
        "st.shared.u32 [%r6+1024], %r0; bar.warp.sync -1; shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5;
         st.shared.u32 [%r6+256], %r0; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r8, %r9}, [%r7];",
    ),
    wrong(
        "a matrix before a barrier of the warp",
        (1, 32),
        "st.shared.u32 [%r6], %r0; and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r7];",
        "a race on shared memory",
    ),
    right(
        "a matrix of wmma between barriers of the warp",
        (1, 32),
        "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5; st.shared.v4.u32 [%r7], {%r0, %r0, %r0, %r0}; bar.warp.sync -1;
         wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r20, %r21, %r22, %r23}, [%r5], 16; bar.warp.sync -1;
         wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r5], {%r20, %r21, %r22, %r23}, 16; bar.warp.sync -1;
         ld.shared.u32 %r8, [%r7];",
    ),
    wrong(
        "a matrix of wmma before a barrier of the warp",
        (1, 32),
        "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5; st.shared.v4.u32 [%r7], {%r0, %r0, %r0, %r0};
         wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r8, %r21, %r22, %r23}, [%r5], 16;",
        "a race on shared memory",
    ),
    wrong(
        "a matrix of wmma that another warp stores",
        (1, 64),
        "@!%p2 bra R; wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r5], {%r0, %r0, %r0, %r0}, 16; bra E;
         R: wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r8, %r21, %r22, %r23}, [%r5], 16; E:",
        "a race on shared memory",
    ),
    wrong(
        "a matrix that another warp stores",
        (1, 64),
        "and.b32 %r7, %r0, 31; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5; @!%p2 bra R;
         stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r7], {%r0, %r0, %r0, %r0}; bra E;
         R: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r7]; E:",
        "a race on shared memory",
    ),
    wrong(
        "the producer does not wait",
        (1, 64),
        "@%p2 bra C; bar.arrive 1, 64; st.shared.u32 [%r6], %r0; bra E;
         C: bar.sync 1, 64; ld.shared.u32 %r8, [%r6+128]; E:",
        "a race on shared memory",
    ),
    wrong(
        "the barrier of another part of the block",
        (1, 128),
        "st.shared.u32 [%r6], %r0; shr.u32 %r7, %r0, 6; add.u32 %r7, %r7, 1; barrier.sync %r7, 64;
         xor.b32 %r7, %r4, 256; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];",
        "a race on shared memory",
    ),
    wrong(
        "an mbarrier that is initialized without a barrier",
        (1, 64),
        "@%p0 mbarrier.init.shared.b64 [bar], 1;
         @%p2 bra E; mov.u32 %r7, 0; mbarrier.test_wait.parity.shared.b64 %p3, [bar], %r7; E:",
        "a race on shared memory",
    ),
];

pub(super) const GLOBAL: Class =
    Class { name: "global memory", check: Check::Racecheck, rows: GLOBAL_ROWS, tail: "" };

/// `%d0` is data, and the words from 8192 on are flags.
const GLOBAL_ROWS: &[Row] = &[
    right("own words", (4, 96), "st.global.u32 [%d1], %r0; ld.global.u32 %r7, [%d1];"),
    right("all threads read", (4, 96), "ld.global.u32 %r7, [%d0];"),
    right("atomic operations", (4, 96), "atom.global.add.u32 %r7, [%d0], 1; red.global.max.u32 [%d0+4], %r0;"),
    right("volatile accesses", (4, 32), "st.volatile.global.u32 [%d0], %r0; ld.volatile.global.u32 %r7, [%d0];"),
    right(
        "a flag with fences",
        (2, 32),
        "@!%p0 exit; setp.eq.u32 %p3, %r1, 1; @%p3 bra R; st.global.u32 [%d0], 7; fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d0+8192], 1; exit;
         R: ld.relaxed.gpu.global.u32 %r7, [%d0+8192]; setp.eq.u32 %p4, %r7, 0; @%p4 bra R; fence.acq_rel.gpu; ld.global.u32 %r8, [%d0];",
    ),
    right(
        "a flag with release and acquire",
        (2, 32),
        "@!%p0 exit; setp.eq.u32 %p3, %r1, 1; @%p3 bra R; st.global.u32 [%d0], 7; st.release.gpu.global.u32 [%d0+8192], 1; exit;
         R: ld.acquire.gpu.global.u32 %r7, [%d0+8192]; setp.eq.u32 %p4, %r7, 0; @%p4 bra R; ld.global.u32 %r8, [%d0];",
    ),
    right(
        "the last block reads what all wrote",
        (4, 64),
        "st.global.u32 [%d1], %r0; membar.gl; bar.sync 0; @!%p0 bra W; atom.global.add.u32 %r7, [%d0+8192], 1; membar.gl; st.shared.u32 [s], %r7;
         W: bar.sync 0; ld.shared.u32 %r7, [s]; setp.ne.u32 %p3, %r7, 3; @%p3 exit; ld.global.u32 %r8, [%d0]; ld.global.u32 %r8, [%d0+256]; ld.global.u32 %r8, [%d0+1020];",
    ),
    wrong(
        "the last block, with fences that are not in one order",
        (4, 64),
        "st.global.u32 [%d1], %r0; fence.acq_rel.gpu; bar.sync 0; @!%p0 bra W; atom.global.add.u32 %r7, [%d0+8192], 1; fence.acq_rel.gpu; st.shared.u32 [s], %r7;
         W: bar.sync 0; ld.shared.u32 %r7, [s]; setp.ne.u32 %p3, %r7, 3; @%p3 exit; ld.global.u32 %r8, [%d0+4]; ld.global.u32 %r8, [%d0+260]; ld.global.u32 %r8, [%d0+1020];",
        "a race on global memory: a thread reads what another one writes",
    ),
    right(
        "a lock",
        (4, 32),
        "@!%p0 exit; L: atom.acquire.gpu.global.cas.b32 %r7, [%d0+8192], 0, 1; setp.ne.u32 %p3, %r7, 0; @%p3 bra L;
         ld.global.u32 %r8, [%d0]; add.u32 %r8, %r8, 1; st.global.u32 [%d0], %r8;
         atom.release.gpu.global.exch.b32 %r7, [%d0+8192], 0;",
    ),
    pairs(right(
            "a cluster",
            (2, 32),
            "st.global.u32 [%d1], %r0; barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r7, %r3, 32; mul.wide.u32 %d2, %r7, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r8, [%d2];",
        )),
    wrong("blocks write one word", (4, 1), "st.global.u32 [%d0], %r1;", "a race on global memory: a thread writes what another one writes"),
    wrong(
        "a barrier does not order blocks",
        (2, 64),
        "st.global.u32 [%d1], %r0; bar.sync 0; xor.b32 %r7, %r3, 64; mul.wide.u32 %d2, %r7, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r8, [%d2];",
        "a race on global memory",
    ),
    wrong(
        "a flag without a fence of the writer",
        (2, 32),
        "@!%p0 exit; setp.eq.u32 %p3, %r1, 1; @%p3 bra R; st.global.u32 [%d0], 7; st.relaxed.gpu.global.u32 [%d0+8192], 1; exit;
         R: ld.relaxed.gpu.global.u32 %r7, [%d0+8192]; setp.eq.u32 %p4, %r7, 0; @%p4 bra R; fence.acq_rel.gpu; ld.global.u32 %r8, [%d0];",
        "a race on global memory: a thread reads what another one writes",
    ),
    wrong(
        "a flag without a fence of the reader",
        (2, 32),
        "@!%p0 exit; setp.eq.u32 %p3, %r1, 1; @%p3 bra R; st.global.u32 [%d0], 7; membar.gl; st.volatile.global.u32 [%d0+8192], 1; exit;
         R: ld.volatile.global.u32 %r7, [%d0+8192]; setp.eq.u32 %p4, %r7, 0; @%p4 bra R; ld.global.u32 %r8, [%d0];",
        "a race on global memory: a thread reads what another one writes",
    ),
    wrong(
        "the thread that reads the flag has no fence",
        (4, 64),
        "st.global.u32 [%d1], %r0; membar.gl; bar.sync 0; @!%p0 bra W; atom.global.add.u32 %r7, [%d0+8192], 1; st.shared.u32 [s], %r7;
         W: bar.sync 0; ld.shared.u32 %r7, [s]; setp.ne.u32 %p3, %r7, 3; @%p3 exit; ld.global.u32 %r8, [%d0]; ld.global.u32 %r8, [%d0+256]; ld.global.u32 %r8, [%d0+1020];",
        "a race on global memory: a thread reads what another one writes",
    ),
    wrong(
        "a fence of the block only",
        (2, 32),
        "@!%p0 exit; setp.eq.u32 %p3, %r1, 1; @%p3 bra R; st.global.u32 [%d0], 7; membar.cta; st.volatile.global.u32 [%d0+8192], 1; exit;
         R: ld.volatile.global.u32 %r7, [%d0+8192]; setp.eq.u32 %p4, %r7, 0; @%p4 bra R; membar.gl; ld.global.u32 %r8, [%d0];",
        "a race on global memory: a thread reads what another one writes",
    ),
    wrong(
        "an atomic operation of the block only",
        (2, 32),
        "atom.relaxed.cta.global.add.u32 %r7, [%d0], 1;",
        "a race on global memory: a thread writes atomically what another one writes atomically",
    ),
    wrong(
        "a lock without acquire",
        (4, 32),
        "@!%p0 exit; L: atom.global.cas.b32 %r7, [%d0+8192], 0, 1; setp.ne.u32 %p3, %r7, 0; @%p3 bra L;
         ld.global.u32 %r8, [%d0]; add.u32 %r8, %r8, 1; st.global.u32 [%d0], %r8;
         atom.release.gpu.global.exch.b32 %r7, [%d0+8192], 0;",
        "a race on global memory",
    ),
    pairs(wrong(
            "a relaxed arrival",
            (2, 32),
            "st.global.u32 [%d1], %r0; barrier.cluster.arrive.relaxed; barrier.cluster.wait; xor.b32 %r7, %r3, 32; mul.wide.u32 %d2, %r7, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r8, [%d2];",
            "a race on global memory",
        )),
];
