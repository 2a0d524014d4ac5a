//! Uses of memory that nothing has written.

use super::{Class, Row, pairs, right, wrong};
use cuda_ptx::check::Check;

/// A branch that depends on `%r10`.
const BRANCH: &str = "\nsetp.eq.u32 %p19, %r10, 1; @%p19 bra USED; add.u32 %r11, %r10, 1; USED:";

const CONDITION: &str = "a condition depends on memory that was never written";
const ADDRESS: &str = "an address depends on memory that was never written";
const STORE: &str = "a store to memory of the host writes a value that depends on memory";

pub(super) const LOADED: Class =
    Class { name: "values of loads", check: Check::Initcheck, rows: LOADS, tail: BRANCH };

/// Cases that use `%r10` in a branch.
const LOADS: &[Row] = &[
    right("global memory", (2, 64), "ld.global.u32 %r10, [%d1];"),
    wrong("global memory, not written", (2, 64), "ld.global.u32 %r10, [%d11];", CONDITION),
    right(
        "global memory that the kernel writes",
        (2, 64),
        "st.global.u32 [%d11], %r0; ld.global.u32 %r10, [%d11];",
    ),
    wrong(
        "the word of the last thread",
        (1, 64),
        "st.global.u32 [%d11], %r0; bar.sync 0; ld.global.u32 %r10, [%d11+4];",
        CONDITION,
    ),
    wrong(
        "a generic address",
        (1, 32),
        "mov.u64 %d30, %d11; ld.u32 %r10, [%d30];",
        CONDITION,
    ),
    right(
        "a matrix",
        (1, 32),
        "st.shared.u32 [%r6], %r0; bar.warp.sync -1; and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];",
    ),
    right(
        "a matrix, and an address that names no row",
        (1, 32),
        "st.shared.u32 [%r6], %r0; bar.warp.sync -1; shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5;
         setp.lt.u32 %p2, %r0, 8; @!%p2 ld.global.u32 %r7, [%d11];
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];",
    ),
    wrong(
        "a matrix whose rows are named by memory that was not written",
        (1, 32),
        "st.shared.u32 [%r6], %r0; bar.warp.sync -1; shl.b32 %r7, %r0, 4; ld.global.u32 %r8, [%d11];
         add.u32 %r7, %r7, %r5; add.u32 %r7, %r7, %r8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];",
        ADDRESS,
    ),
    wrong(
        "a matrix without its last element",
        (1, 32),
        "setp.lt.u32 %p2, %r0, 31; @%p2 st.shared.u32 [%r6], %r0; @!%p2 st.shared.u16 [%r6], %h0; bar.warp.sync -1;
         and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];",
        CONDITION,
    ),
    right(
        "the other elements of such a matrix",
        (1, 32),
        "setp.lt.u32 %p2, %r0, 31; @%p2 st.shared.u32 [%r6], %r0; @!%p2 st.shared.u16 [%r6], %h0; bar.warp.sync -1;
         and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r10}, [%r7]; and.b32 %r10, %r10, 0xffff;",
    ),
    wrong(
        "a transposed matrix",
        (1, 32),
        "setp.eq.u32 %p2, %r0, 4; mov.u32 %r8, 0; @%p2 ld.global.u32 %r8, [%d11];
         movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r8; setp.ne.u32 %p2, %r0, 0; @%p2 mov.u32 %r10, 0;",
        CONDITION,
    ),
    right(
        "the other lanes of a transposed matrix",
        (1, 32),
        "setp.eq.u32 %p2, %r0, 4; mov.u32 %r8, 0; @%p2 ld.global.u32 %r8, [%d11];
         movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r8; and.b32 %r8, %r0, 27; setp.eq.u32 %p2, %r8, 0;
         @%p2 mov.u32 %r10, 0;",
    ),
    right(
        "a matrix of wmma",
        (1, 32),
        "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5; st.shared.v4.u32 [%r7], {%r0, %r0, %r0, %r0}; bar.warp.sync -1;
         wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r20, %r10, %r21, %r22, %r23, %r24, %r25, %r26}, [%r5], 16;",
    ),
    wrong(
        "a matrix of wmma without its last row",
        (1, 32),
        "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5; setp.lt.u32 %p2, %r0, 30;
         @%p2 st.shared.v4.u32 [%r7], {%r0, %r0, %r0, %r0}; bar.warp.sync -1;
         wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r20, %r10, %r21, %r22, %r23, %r24, %r25, %r26}, [%r5], 16;",
        CONDITION,
    ),
    right(
        "the other rows of such a matrix of wmma",
        (1, 32),
        "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5; setp.lt.u32 %p2, %r0, 30;
         @%p2 st.shared.v4.u32 [%r7], {%r0, %r0, %r0, %r0}; bar.warp.sync -1;
         wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r10, %r20, %r21, %r22, %r23, %r24, %r25, %r26}, [%r5], 16;",
    ),
    wrong(
        "a sum of wmma with memory that was not written",
        (1, 32),
        "ld.global.u32 %r7, [%d11]; wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16 {%r10, %r20, %r21, %r22},
         {%r0, %r0, %r0, %r0, %r0, %r0, %r0, %r0}, {%r0, %r0, %r0, %r0, %r0, %r0, %r0, %r0}, {%r7, %r0, %r0, %r0};",
        CONDITION,
    ),
    wrong(
        "a matrix that is stored and loaded",
        (1, 32),
        "ld.global.u32 %r8, [%d11]; and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r8}; bar.warp.sync -1; ld.shared.u32 %r10, [%r6];",
        CONDITION,
    ),
    right(
        "a matrix that is stored",
        (1, 32),
        "and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5;
         stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r0}; bar.warp.sync -1; ld.shared.u32 %r10, [%r6];",
    ),
    wrong(
        "a product of a row that was not written",
        (1, 32),
        "mov.u32 %r8, 0; setp.eq.u32 %p2, %r0, 13; @%p2 ld.global.u32 %r8, [%d11];
         mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r9, %r10}, {%r8}, {%r0}, {%r0, %r0};
         setp.ne.u32 %p2, %r0, 15; @%p2 mov.u32 %r10, 0;",
        CONDITION,
    ),
    right(
        "the products of other rows",
        (1, 32),
        "mov.u32 %r8, 0; setp.eq.u32 %p2, %r0, 13; @%p2 ld.global.u32 %r8, [%d11];
         mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r9, %r10}, {%r8}, {%r0}, {%r0, %r0};
         shr.u32 %r8, %r0, 2; setp.eq.u32 %p2, %r8, 3; @%p2 mov.u32 %r10, 0;",
    ),
    wrong(
        "a product of a column that was not written",
        (1, 32),
        "mov.u32 %r8, 0; setp.eq.u32 %p2, %r0, 13; @%p2 ld.global.u32 %r8, [%d11];
         mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r9, %r10}, {%r0}, {%r8}, {%r0, %r0};
         setp.ne.u32 %p2, %r0, 21; @%p2 mov.u32 %r10, 0;",
        CONDITION,
    ),
    right(
        "the products of other columns",
        (1, 32),
        "mov.u32 %r8, 0; setp.eq.u32 %p2, %r0, 13; @%p2 ld.global.u32 %r8, [%d11];
         mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r10, %r9}, {%r0}, {%r8}, {%r0, %r0};",
    ),
    right(
        "the sums of other elements",
        (1, 32),
        "ld.global.u32 %r8, [%d11]; mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r10, %r9}, {%r0}, {%r0}, {%r0, %r8};",
    ),
    wrong(
        "a half of a sum",
        (1, 32),
        "ld.global.u32 %r8, [%d11]; and.b32 %r8, %r8, 0x10000; mov.u32 %r9, 0;
         mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r12, %r10}, {%r9, %r9}, {%r9}, {%r9, %r8};
         and.b32 %r10, %r10, 0x80000000;",
        CONDITION,
    ),
    right(
        "the other half of a sum",
        (1, 32),
        "ld.global.u32 %r8, [%d11]; and.b32 %r8, %r8, 0x10000; mov.u32 %r9, 0;
         mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r12, %r10}, {%r9, %r9}, {%r9}, {%r9, %r8};
         and.b32 %r10, %r10, 0xffff;",
    ),
    wrong("a byte of a word", (1, 32), "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11];", CONDITION),
    right(
        "each byte of a word",
        (1, 32),
        "st.global.u8 [%d11+1], %r0; st.global.u8 [%d11], %r0; st.global.u16 [%d11+2], %h0; ld.global.u32 %r10, [%d11];",
    ),
    right(
        "a word with a mask of its byte",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; and.b32 %r10, %r10, 255;",
    ),
    wrong(
        "a word with another mask",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; and.b32 %r10, %r10, 511;",
        CONDITION,
    ),
    right(
        "a word whose other bytes are set",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; or.b32 %r10, %r10, 0xffffff00;",
    ),
    right(
        "a field by bfe",
        (1, 32),
        "st.global.u8 [%d11+1], %r0; ld.global.u32 %r10, [%d11]; bfe.u32 %r10, %r10, 8, 8;",
    ),
    wrong(
        "another field by bfe",
        (1, 32),
        "st.global.u8 [%d11+1], %r0; ld.global.u32 %r10, [%d11]; bfe.s32 %r10, %r10, 8, 9;",
        CONDITION,
    ),
    right(
        "a field by a shift",
        (1, 32),
        "st.global.u8 [%d11+3], %r0; ld.global.u32 %r10, [%d11]; shr.u32 %r10, %r10, 24;",
    ),
    wrong(
        "a shift too short",
        (1, 32),
        "st.global.u8 [%d11+3], %r0; ld.global.u32 %r10, [%d11]; shr.u32 %r10, %r10, 23;",
        CONDITION,
    ),
    right(
        "a byte by prmt",
        (1, 32),
        "st.global.u8 [%d11+2], %r0; ld.global.u32 %r10, [%d11]; prmt.b32 %r10, %r10, 0, 0x4442;",
    ),
    right(
        "a byte by lop3",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; lop3.b32 %r10, %r10, 0xff, 0, 0xc0;",
    ),
    right(
        "all bytes by bfi",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; bfi.b32 %r10, %r0, %r10, 8, 24;",
    ),
    wrong(
        "a byte too few by bfi",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; bfi.b32 %r10, %r0, %r10, 8, 16;",
        CONDITION,
    ),
    right(
        "a narrow conversion",
        (1, 32),
        "st.global.u8 [%d11], %r0; ld.global.u32 %r10, [%d11]; cvt.u32.u8 %r10, %r10;",
    ),
    wrong(
        "the sign of a byte that was not written",
        (1, 32),
        "st.global.u8 [%d11+1], %r0; ld.global.s8 %r10, [%d11]; shr.u32 %r10, %r10, 31;",
        CONDITION,
    ),
    right(
        "two elements of a vector",
        (1, 32),
        "mul.wide.u32 %d30, %r0, 16; add.u64 %d30, %d10, %d30; st.global.v2.u32 [%d30], {%r0, %r1};
         ld.global.v4.u32 {%r20, %r10, %r21, %r22}, [%d30];",
    ),
    wrong(
        "the last element of a vector",
        (1, 32),
        "mul.wide.u32 %d30, %r0, 16; add.u64 %d30, %d10, %d30; st.global.v2.u32 [%d30], {%r0, %r1};
         ld.global.v4.u32 {%r20, %r21, %r22, %r10}, [%d30];",
        CONDITION,
    ),
    wrong(
        "one row of a column",
        (1, 32),
        "mul.wide.u32 %d30, %r0, 256; add.u64 %d30, %d10, %d30; setp.ne.u32 %p1, %r0, 31;
         @%p1 st.global.u32 [%d30], %r0; ld.global.u32 %r10, [%d30];",
        CONDITION,
    ),
    right(
        "each row of a column",
        (1, 32),
        "mul.wide.u32 %d30, %r0, 256; add.u64 %d30, %d10, %d30; st.global.u32 [%d30], %r0; ld.global.u32 %r10, [%d30];",
    ),
    wrong(
        "a sum of floats",
        (1, 32),
        "ld.global.f32 %f1, [%d11]; add.f32 %f2, %f1, 0f3f800000; cvt.rzi.u32.f32 %r10, %f2;",
        CONDITION,
    ),
    right(
        "the defined side of a selection",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; setp.lt.u32 %p1, %r0, 64; selp.u32 %r10, %r0, %r20, %p1;",
    ),
    wrong(
        "the other side of a selection",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; setp.lt.u32 %p1, %r0, 64; selp.u32 %r10, %r20, %r0, %p1;",
        CONDITION,
    ),
    wrong(
        "the predicate of a selection",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; setp.lt.u32 %p1, %r20, 64; selp.u32 %r10, 0, 1, %p1;",
        CONDITION,
    ),
    wrong(
        "a carry",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; add.cc.u32 %r21, %r20, 1; addc.u32 %r10, 0, 0;",
        CONDITION,
    ),
    right(
        "a copy over the undefined value",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; mov.u32 %r10, %r0;",
    ),
    wrong("an undefined value in device memory", (1, 64),
        "ld.global.u32 %r20, [%d11]; st.global.u32 [%d1], %r20; ld.global.u32 %r10, [%d1];", CONDITION),
    // Atomic operations.
    right("an atomic sum", (1, 64), "atom.global.add.u32 %r10, [%d0], 1;"),
    wrong("an atomic sum, not written", (1, 64), "atom.global.add.u32 %r10, [%d11], 1;", CONDITION),
    wrong("a reduction", (1, 64), "red.global.max.u32 [%d11], 1; ld.global.u32 %r10, [%d11];", CONDITION),
    right(
        "an exchange",
        (1, 64),
        "atom.global.exch.b32 %r20, [%d11], 1; atom.global.add.u32 %r10, [%d11], 1;",
    ),
    wrong("a lock", (1, 64), "atom.global.cas.b32 %r10, [%d11], 5, 1;", CONDITION),
    right("a swap of written words", (1, 64), "atom.global.cas.b32 %r20, [%d1], 0, 1; ld.global.u32 %r10, [%d1];"),
    wrong(
        "a swap in of an undefined value",
        (1, 64),
        "ld.global.u32 %r20, [%d11]; atom.global.cas.b32 %r21, [%d1], 0, %r20; ld.global.u32 %r10, [%d1];",
        CONDITION,
    ),
    right(
        "a failed swap of an undefined value",
        (1, 64),
        "ld.global.u32 %r20, [%d11]; atom.global.cas.b32 %r21, [%d1], 9, %r20; ld.global.u32 %r10, [%d1];",
    ),
    wrong(
        "a wide exchange",
        (1, 1),
        ".reg .b128 %q0, %q1; mov.b128 %q0, {%d0, %d0}; atom.global.exch.b128 %q1, [%d10], %q0; mov.b128 {%d30, %d31}, %q1;
         cvt.u32.u64 %r10, %d31;",
        CONDITION,
    ),
    right(
        "after a wide exchange",
        (1, 1),
        ".reg .b128 %q0, %q1; mov.b128 %q0, {%d0, %d0}; atom.global.exch.b128 %q1, [%d10], %q0; ld.global.u32 %r10, [%d10+12];",
    ),
    // Shared memory.
    right("shared memory", (2, 64), "st.shared.u32 [%r6], %r0; ld.shared.u32 %r10, [%r6];"),
    wrong("shared memory, not written", (2, 64), "ld.shared.u32 %r10, [%r6];", CONDITION),
    wrong(
        "shared memory of the last block",
        (2, 64),
        "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r6], %r0; ld.shared.u32 %r10, [%r6];",
        CONDITION,
    ),
    wrong(
        "a generic address in shared memory",
        (1, 64),
        "cvt.u64.u32 %d30, %r6; cvta.shared.u64 %d30, %d30; ld.u32 %r10, [%d30];",
        CONDITION,
    ),
    right(
        "a sum in shared memory",
        (1, 64),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 32;
         L: bar.sync 0; setp.ge.u32 %p1, %r0, %r20; @%p1 bra N; shl.b32 %r21, %r20, 2; add.u32 %r21, %r6, %r21;
         ld.shared.u32 %r22, [%r21]; ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22;
         N: shr.u32 %r20, %r20, 1; setp.ne.u32 %p2, %r20, 0; @%p2 bra L; bar.sync 0; ld.shared.u32 %r10, [s];",
    ),
    wrong(
        "a sum of more words than threads",
        (1, 48),
        "st.shared.u32 [%r6], %r0; mov.u32 %r20, 32;
         L: bar.sync 0; setp.ge.u32 %p1, %r0, %r20; @%p1 bra N; shl.b32 %r21, %r20, 2; add.u32 %r21, %r6, %r21;
         ld.shared.u32 %r22, [%r21]; ld.shared.u32 %r23, [%r6]; add.u32 %r22, %r22, %r23; st.shared.u32 [%r6], %r22;
         N: shr.u32 %r20, %r20, 1; setp.ne.u32 %p2, %r20, 0; @%p2 bra L; bar.sync 0; ld.shared.u32 %r10, [s];",
        CONDITION,
    ),
    wrong(
        "a counter in shared memory",
        (1, 64),
        "atom.shared.add.u32 %r20, [s], 1; bar.sync 0; ld.shared.u32 %r10, [s];",
        CONDITION,
    ),
    right(
        "a counter in shared memory that one thread sets",
        (1, 64),
        "@%p0 st.shared.u32 [s], 0; bar.sync 0; atom.shared.add.u32 %r10, [s], 1;",
    ),
    pairs(right(
            "shared memory of the other block",
            (2, 32),
            "st.shared.u32 [%r6], %r0; barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r20, %r1, 1;
             mapa.shared::cluster.u32 %r21, %r6, %r20; ld.shared::cluster.u32 %r10, [%r21];
             barrier.cluster.arrive; barrier.cluster.wait;",
        )),
    pairs(wrong(
            "shared memory that the other block did not write",
            (2, 32),
            "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r6], %r0; barrier.cluster.arrive; barrier.cluster.wait;
             xor.b32 %r20, %r1, 1; mapa.shared::cluster.u32 %r21, %r6, %r20; ld.shared::cluster.u32 %r10, [%r21];
             barrier.cluster.arrive; barrier.cluster.wait;",
            CONDITION,
        )),
    // Local memory.
    right("local memory", (1, 64), "st.local.u32 [l+8], %r0; ld.local.u32 %r10, [l+8];"),
    wrong("local memory, not written", (1, 64), "st.local.u32 [l+8], %r0; ld.local.u32 %r10, [l+4];", CONDITION),
    wrong(
        "local memory of some lanes",
        (1, 64),
        "@%p0 st.local.u32 [l], %r0; ld.local.u32 %r10, [l];",
        CONDITION,
    ),
    right(
        "a generic address in local memory",
        (1, 64),
        "mov.u64 %d30, l; cvta.local.u64 %d30, %d30; st.u32 [%d30], %r0; ld.local.u32 %r10, [l];",
    ),
    // Copies.
    right(
        "cp.async",
        (1, 32),
        "cp.async.ca.shared.global [%r6], [%d1], 4; cp.async.wait_all; ld.shared.u32 %r10, [%r6];",
    ),
    wrong(
        "cp.async of memory that was not written",
        (1, 32),
        "cp.async.ca.shared.global [%r6], [%d11], 4; cp.async.wait_all; ld.shared.u32 %r10, [%r6];",
        CONDITION,
    ),
    right(
        "cp.async of no bytes",
        (1, 32),
        "cp.async.ca.shared.global [%r6], [%d11], 4, 0; cp.async.wait_all; ld.shared.u32 %r10, [%r6];",
    ),
    right(
        "a bulk copy",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 %d30, [bar], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 64, [bar];
         W: mbarrier.try_wait.shared.b64 %p1, [bar], %d30; @!%p1 bra W; ld.shared.u32 %r10, [s+60];",
    ),
    wrong(
        "a bulk copy of memory that was not written",
        (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 %d30, [bar], 64;
         st.global.v2.u64 [%d10], {%d0, %d0};
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d10], 64, [bar];
         W: mbarrier.try_wait.shared.b64 %p1, [bar], %d30; @!%p1 bra W; ld.shared.u32 %r8, [s]; ld.shared.u32 %r10, [s+16];",
        CONDITION,
    ),
    // Operations of a warp.
    right(
        "a shuffle from the lane with a value",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; selp.u32 %r20, %r0, %r20, %p0; shfl.sync.idx.b32 %r10, %r20, 0, 31, 0xffffffff;",
    ),
    wrong(
        "a shuffle from another lane",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; selp.u32 %r20, %r0, %r20, %p0; shfl.sync.idx.b32 %r10, %r20, 7, 31, 0xffffffff;",
        CONDITION,
    ),
    wrong(
        "a sum of a warp",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; selp.u32 %r20, %r20, %r0, %p0; redux.sync.add.u32 %r10, %r20, 0xffffffff;",
        CONDITION,
    ),
    wrong(
        "a ballot",
        (1, 32),
        "ld.global.u32 %r20, [%d11]; setp.eq.u32 %p1, %r20, 0; vote.sync.ballot.b32 %r10, %p1, 0xffffffff;",
        CONDITION,
    ),
    // Padding: a byte and a word at an offset of 4.
    right(
        "the fields of a structure that is copied",
        (1, 1),
        "st.global.u8 [%d10], %r0; st.global.u32 [%d10+4], %r0; ld.global.u64 %d30, [%d10]; st.shared.u64 [s], %d30;
         ld.shared.u64 %d31, [s]; st.local.u64 [l], %d31; ld.local.u64 %d32, [l]; st.global.u64 [%d0], %d32;
         st.global.u64 [%d20], %d32; ld.global.u8 %r20, [%d0]; ld.global.u32 %r21, [%d0+4]; add.u32 %r10, %r20, %r21;",
    ),
    wrong(
        "the padding of a structure that is copied",
        (1, 1),
        "st.global.u8 [%d10], %r0; st.global.u32 [%d10+4], %r0; ld.global.u64 %d30, [%d10]; st.shared.u64 [s], %d30;
         ld.shared.u64 %d31, [s]; st.local.u64 [l], %d31; ld.local.u64 %d32, [l]; st.global.u64 [%d0], %d32;
         ld.global.u8 %r10, [%d0+1];",
        CONDITION,
    ),
    right(
        "the fields of a structure in registers",
        (1, 1),
        "st.global.u8 [%d10], %r0; st.global.u32 [%d10+4], %r0; ld.global.u64 %d30, [%d10];
         mov.b64 {%r20, %r21}, %d30; shr.u64 %d31, %d30, 32; cvt.u32.u64 %r22, %d31; cvt.u32.u8 %r23, %r20;
         mov.b64 %d32, {%r20, %r22}; mov.b64 {%r24, %r25}, %d32; add.u32 %r10, %r23, %r21; add.u32 %r10, %r10, %r25;",
    ),
    wrong(
        "the padding of a structure in registers",
        (1, 1),
        "st.global.u8 [%d10], %r0; st.global.u32 [%d10+4], %r0; ld.global.u64 %d30, [%d10]; mov.b64 {%r10, %r21}, %d30;",
        CONDITION,
    ),
];

pub(super) const USED: Class =
    Class { name: "uses of values", check: Check::Initcheck, rows: USES, tail: "" };

const USES: &[Row] = &[
    right("a copy in device memory", (2, 64), "ld.global.u32 %r10, [%d11]; st.global.u32 [%d11+8192], %r10;"),
    right("a store of a word to the host", (2, 64), "st.global.u32 [%d21], %r0;"),
    wrong("a store to the host", (2, 64), "ld.global.u32 %r10, [%d11]; st.global.u32 [%d21], %r10;", STORE),
    wrong(
        "a store of a sum to the host",
        (1, 1),
        "ld.global.u32 %r10, [%d11]; add.u32 %r10, %r10, %r0; st.u32 [%d21], %r10;",
        STORE,
    ),
    right(
        "a store of a vector with padding to the host",
        (1, 1),
        "ld.global.u32 %r10, [%d11]; st.global.v4.u32 [%d20], {%r10, %r0, %r10, %r0};",
    ),
    wrong(
        "an address",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; mul.wide.u32 %d30, %r10, 4; add.u64 %d30, %d0, %d30; ld.global.u32 %r11, [%d30];",
        ADDRESS,
    ),
    wrong(
        "the address of a store",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; and.b32 %r10, %r10, 63; add.u32 %r10, %r5, %r10; st.shared.u8 [%r10], %r0;",
        ADDRESS,
    ),
    wrong(
        "the address of an atomic operation",
        (1, 32),
        "ld.global.u64 %d30, [%d10]; add.u64 %d30, %d0, %d30; red.global.add.u32 [%d30], 1;",
        ADDRESS,
    ),
    wrong(
        "a guard",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; setp.eq.u32 %p1, %r10, 0; @%p1 st.global.u32 [%d1], %r0;",
        CONDITION,
    ),
    wrong(
        "the predicate of a barrier",
        (1, 64),
        "ld.global.u32 %r10, [%d11]; setp.eq.u32 %p1, %r10, 0; bar.red.popc.u32 %r11, 0, %p1;",
        CONDITION,
    ),
    wrong(
        "a table of branches",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; T: .branchtargets A, B; brx.idx %r10, T; A: mov.u32 %r11, 0; B:",
        CONDITION,
    ),
    wrong(
        "the count of a loop",
        (1, 32),
        "ld.shared.u32 %r10, [s]; mov.u32 %r11, 0; L: add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, %r10; @%p1 bra L;",
        CONDITION,
    ),
    right(
        "a condition that another one decides",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; setp.gt.u32 %p1, %r0, 64; setp.eq.and.u32 %p2, %r10, 0, %p1; @%p2 bra E; E:
         setp.eq.u32 %p3, %r10, 0; and.pred %p4, %p3, %p1; @%p4 bra F; F: not.pred %p5, %p1; or.pred %p6, %p3, %p5;
         @%p6 bra G; G:",
    ),
    wrong(
        "a condition that another one does not decide",
        (1, 32),
        "ld.global.u32 %r10, [%d11]; setp.lt.u32 %p1, %r0, 64; setp.eq.and.u32 %p2, %r10, 0, %p1; @%p2 bra E; E:",
        CONDITION,
    ),
];
