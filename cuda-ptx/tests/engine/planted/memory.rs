//! Accesses to memory that the kernel may not access.

use super::{Class, Row, missed, right, wrong};
use cuda_ptx::check::Check;

pub(super) const OUT_OF_BOUNDS: Class =
    Class { name: "out of bounds", check: Check::Memcheck, rows: BOUNDS, tail: "" };

const BOUNDS: &[Row] = &[
    right("the last word", (1, 32), "@%p0 ld.global.u32 %r7, [%d0+16380]; @%p0 st.global.u32 [%d0+16380], %r7;"),
    right("a vector at the end", (1, 32), "ld.global.v4.u32 {%r7, %r8, %r10, %r11}, [%d0+16368];"),
    right("a guard", (1, 64), "setp.lt.u32 %p3, %r0, 40; add.u64 %d2, %d1, 16224; @%p3 st.global.u32 [%d2], %r0;"),
    right("a generic address", (1, 32), "st.u32 [%d1], %r0; ld.u32 %r7, [%d1];"),
    right("the last byte of shared memory", (1, 32), "@%p0 st.shared.u8 [s+4095], %r0;"),
    right("local memory", (1, 32), "st.local.u32 [l+60], %r0; ld.local.u32 %r7, [l+60];"),
    right("memory of the host", (1, 32), "st.global.u32 [%d21], %r0; ld.global.u32 %r7, [%d21];"),
    right("an access that no thread executes", (1, 32), "setp.gt.u32 %p3, %r0, 32; @%p3 ld.global.u32 %r7, [%d0+16384];"),
    wrong("a load after the end", (1, 32), "ld.global.u32 %r7, [%d0+16384];", "nothing is"),
    wrong("a store after the end", (1, 32), "@%p0 st.global.u32 [%d0+16384], %r0;", "nothing is"),
    wrong("a load before the start", (1, 32), "ld.global.u32 %r7, [%d0+-4];", "nothing is"),
    wrong("a guard with one thread too many", (1, 64), "setp.le.u32 %p3, %r0, 40; add.u64 %d2, %d1, 16224; @%p3 st.global.u32 [%d2], %r0;", "nothing is"),
    wrong("a vector after the end", (1, 32), "ld.global.v2.u32 {%r7, %r8}, [%d0+16384];", "nothing is"),
    wrong("an index with the wrong factor", (1, 64), "mul.wide.u32 %d2, %r0, 1024; add.u64 %d2, %d0, %d2; ld.global.u32 %r7, [%d2];", "nothing is"),
    wrong("a negative index", (1, 64), "sub.u32 %r7, %r0, 1; mul.wide.s32 %d2, %r7, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r8, [%d2];", "nothing is"),
    wrong("an unsigned index that wraps", (1, 64), "sub.u32 %r7, %r0, 1; mul.wide.u32 %d2, %r7, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r8, [%d2];", "nothing is"),
    wrong("a null pointer", (1, 32), "mov.u64 %d2, 0; ld.global.u32 %r7, [%d2];", "nothing is"),
    wrong("a field of a null pointer", (1, 32), "mov.u64 %d2, 0; st.u32 [%d2+8], %r0;", "nothing is"),
    wrong("an address of 32 bits", (1, 32), "cvt.u32.u64 %r7, %d0; cvt.u64.u32 %d2, %r7; ld.global.u32 %r8, [%d2];", "nothing is"),
    wrong("a generic address after the end", (1, 32), "add.u64 %d2, %d0, 16384; ld.u32 %r7, [%d2];", "nothing is"),
    wrong("an atomic operation after the end", (1, 32), "atom.global.add.u32 %r7, [%d0+16384], 1;", "nothing is"),
    wrong("a reduction after the end", (1, 32), "red.global.add.u32 [%d0+16384], 1;", "nothing is"),
    wrong("the source of cp.async after the end", (1, 32), "cp.async.ca.shared.global [%r6], [%d0+16384], 4; cp.async.wait_all;", "nothing is"),
    wrong("the source of a bulk copy after the end", (1, 1),
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 64; add.u64 %d3, %d0, 16352;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d3], 64, [bar];
         L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L; ld.shared.u32 %r7, [s+60];", "nothing is"),
    wrong("memory of the host after the end", (1, 32), "ld.global.u32 %r7, [%d20+16384];", "nothing is"),
    wrong("a load of shared memory after the end", (1, 32), "ld.shared.u32 %r7, [%r5+65536];", "of shared memory of"),
    wrong("a store to shared memory after the end", (1, 64), "mul.lo.u32 %r7, %r0, 1024; add.u32 %r7, %r5, %r7; st.shared.u32 [%r7], %r0;", "of shared memory of"),
    wrong("shared memory before the start", (1, 32), "ld.shared.u32 %r7, [%r5+-4096];", "of shared memory of"),
    wrong("an atomic operation on shared memory after the end", (1, 32), "atom.shared.add.u32 %r7, [%r5+65536], 1;", "of shared memory of"),
    wrong("a generic address in shared memory after the end", (1, 32), "cvt.u64.u32 %d2, %r5; cvta.shared.u64 %d2, %d2; ld.u32 %r7, [%d2+65536];", "of shared memory of"),
    wrong("local memory after the end", (1, 32), "mov.u64 %d2, l; cvt.u64.u32 %d3, %r4; add.u64 %d2, %d2, %d3; ld.local.u32 %r7, [%d2+1048576];", "of local memory of"),
    missed(
        "another array of the block",
        (1, 32),
        "@%p0 st.shared.u32 [s+4096], %r0;",
        "the address belongs to another variable of the block",
    ),
    missed(
        "another array of the thread",
        (1, 32),
        ".local .align 16 .b8 m[64]; .local .align 16 .b8 n[64]; st.local.u32 [l], %r0; st.local.u32 [n], %r0;
         ld.local.u32 %r7, [m+64];",
        "the address belongs to another variable of the thread",
    ),
    missed(
        "an address from another allocation",
        (1, 32),
        "sub.u64 %d2, %d10, %d0; add.u64 %d2, %d2, %d1; @%p0 st.global.u32 [%d2], %r0;",
        "the address belongs to another allocation",
    ),
];

pub(super) const FREED: Class =
    Class { name: "freed memory", check: Check::Memcheck, rows: AFTER_FREE, tail: "" };

const AFTER_FREE: &[Row] = &[
    right("its address is not used", (1, 32), "cvt.u32.u64 %r7, %d50;"),
    wrong("a load", (1, 32), "ld.global.u32 %r7, [%d50];", "nothing is"),
    wrong("a store", (1, 32), "@%p0 st.global.u32 [%d50], %r0;", "nothing is"),
    wrong("an atomic operation", (1, 32), "red.global.add.u32 [%d50+64], 1;", "nothing is"),
];

pub(super) const MISALIGNED: Class =
    Class { name: "misaligned", check: Check::Memcheck, rows: ALIGNMENT, tail: "" };

const ALIGNMENT: &[Row] = &[
    right("bytes at odd addresses", (1, 32), "ld.global.u8 %r7, [%d0+3]; ld.shared.u8 %r8, [s+5];"),
    right("a vector", (1, 32), "ld.global.v2.u32 {%r7, %r8}, [%d0+8];"),
    wrong(
        "a word of global memory",
        (1, 32),
        "add.u64 %d2, %d0, 2; ld.global.u32 %r7, [%d2];",
        "which is not a multiple of",
    ),
    wrong(
        "a store of one thread",
        (1, 64),
        "cvt.u64.u32 %d2, %r0; add.u64 %d2, %d0, %d2; setp.eq.u32 %p3, %r0, 37; @%p3 st.global.u32 [%d2], %r0;",
        "which is not a multiple of",
    ),
    wrong(
        "a vector of two words",
        (1, 32),
        "add.u64 %d2, %d0, 4; ld.global.v2.u32 {%r7, %r8}, [%d2];",
        "which is not a multiple of",
    ),
    wrong(
        "a vector of four words",
        (1, 32),
        "add.u64 %d2, %d0, 8; ld.global.v4.u32 {%r7, %r8, %r10, %r11}, [%d2];",
        "which is not a multiple of",
    ),
    wrong(
        "a generic address",
        (1, 32),
        "add.u64 %d2, %d0, 1; ld.u16 %r7, [%d2];",
        "which is not a multiple of",
    ),
    wrong(
        "an atomic operation",
        (1, 32),
        "add.u64 %d2, %d0, 4; atom.global.add.u64 %d3, [%d2], 1;",
        "which is not a multiple of",
    ),
    wrong(
        "a word of shared memory",
        (1, 32),
        "add.u32 %r7, %r5, 2; ld.shared.u32 %r8, [%r7];",
        "which is not a multiple of",
    ),
    wrong(
        "a double word of shared memory",
        (1, 32),
        "st.shared.u64 [%r6], %d0;",
        "which is not a multiple of",
    ),
    wrong(
        "a word of local memory",
        (1, 32),
        "mov.u64 %d2, l; add.u64 %d2, %d2, 2; st.local.u32 [l], %r0; st.local.u32 [l+4], %r0; ld.local.u32 %r7, [%d2];",
        "which is not a multiple of",
    ),
];
