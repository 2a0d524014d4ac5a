//! Asynchronous accesses, which barriers in shared memory count, and instructions that PTX does not have.

use crate::device::{Memory, kernel, launch, launch_with};
use cuda_ptx::{FaultKind, Program, syntax};

/// Runs code on one thread of a cluster, after which `%r1` to `%r4` are stored, and returns them.
fn results(body: &str) -> Vec<u32> {
    let text = kernel(
        1,
        &format!(
            "{body}\nld.param.u64 %d50, [p0]; st.global.v4.u32 [%d50], {{%r1, %r2, %r3, %r4}};"
        ),
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 4]);
    launch_with(&text, &memory, (1, 1), &[out], |launch| launch.is_clustered = true).unwrap();
    memory.read(out)
}

#[test]
fn a_barrier_counts_the_bytes_of_asynchronous_stores_and_reductions() {
    let got = results(
        ".shared .align 8 .b64 gate; .shared .align 8 .b32 cells[2];
         mov.u32 %r10, gate; mov.u32 %r11, cells;
         mbarrier.init.shared.b64 [gate], 1;
         mbarrier.arrive.expect_tx.shared::cta.b64 %d1, [gate], 12;
         st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r11], {7, 8}, [%r10];
         mbarrier.test_wait.shared.b64 %p1, [gate], %d1; selp.u32 %r3, 1, 0, %p1;
         red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
             [%r11+4], 5, [%r10];
         mbarrier.test_wait.shared.b64 %p1, [gate], %d1; selp.u32 %r4, 1, 0, %p1;
         ld.shared.v2.u32 {%r1, %r2}, [cells];",
    );
    assert_eq!(got, [7, 13, 0, 1]);
}

#[test]
fn bulk_copies_between_shared_memories_complete_on_a_barrier() {
    let got = results(
        ".shared .align 8 .b64 gate; .shared .align 16 .b32 cells[8];
         mov.u32 %r10, gate; mov.u32 %r11, cells;
         mbarrier.init.shared.b64 [gate], 1; st.shared.v4.u32 [cells], {1, 2, 3, 4};
         mbarrier.arrive.expect_tx.shared::cta.b64 %d1, [gate], 16;
         add.u32 %r12, %r11, 16;
         cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
             [%r12], [%r11], 16, [%r10];
         mbarrier.test_wait.shared.b64 %p1, [gate], %d1;
         ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [cells+16]; @!%p1 mov.u32 %r4, 99;",
    );
    assert_eq!(got, [1, 2, 3, 4]);
}

#[test]
fn a_bulk_copy_of_bytes_that_are_not_aligned_is_a_fault() {
    let text = kernel(
        1,
        ".shared .align 16 .b8 cells[64]; ld.param.u64 %d1, [p0]; mov.u64 %d2, cells;
         cp.async.bulk.global.shared::cta.bulk_group [%d1], [%d2], 24;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 16]);
    let fault = launch(&text, &memory, (1, 1), &[out]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::MisalignedAddress);
}

#[test]
fn copies_to_blocks_that_the_cluster_lacks_end_the_kernel() {
    let copy = |words: &str, rest: &str| {
        let body = format!(
            ".shared .align 8 .b64 gate; .shared .align 16 .b32 cells[8]; ld.param.u64 %d1, [p0];
             mov.u32 %r1, cells; mov.u16 %h1, 3; mbarrier.init.shared.b64 [gate], 1;
             cp.{words}.mbarrier::complete_tx::bytes{rest};"
        );
        let mut memory = Memory::default();
        let out = memory.words(&[0; 8]);
        launch(&kernel(1, &body), &memory, (1, 1), &[out]).unwrap_err().kind
    };
    let to_both = ".multicast::cluster [%r1], [%d1], 16, [gate], %h1";
    let kind = copy("async.bulk.shared::cluster.global", to_both);
    assert_eq!(kind, FaultKind::Trap);
    let sum = ".add.u32 [%r1], [%r1+16], 16, [gate]";
    let kind = copy("reduce.async.bulk.shared::cluster.shared::cta", sum);
    assert_eq!(kind, FaultKind::IllegalInstruction);
    let kind = copy("async.bulk.shared::cluster.shared::cta", " [%r1], [%r1+16], 16, [gate]");
    assert_eq!(kind, FaultKind::IllegalInstruction);
}

#[test]
fn a_conversion_reads_the_low_bits_of_a_wider_register() {
    let body = "mov.u32 %r5, 7; mov.u64 %d5, 0xffffffff00000009;
         cvt.rn.f32.u32 %f1, %r5; cvt.rn.f32.u32 %f2, %d5; cvt.rn.f32.s32 %f3, %d5;
         mov.b32 %r1, %f1; mov.b32 %r2, %f2; mov.b32 %r3, %f3; mov.u32 %r4, 0;";
    assert_eq!(results(body), [7f32, 9.0, 9.0, 0.0].map(f32::to_bits));
}

#[test]
fn results_of_a_vector_reduction_may_replace_its_operands() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.f32 %f1, 0f3f800000; mov.f32 %f2, 0f40000000;
         atom.global.v2.f32.add {%f2, %f1}, [%d1], {%f1, %f2};
         st.global.v2.f32 [%d1+8], {%f1, %f2};",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0x4080_0000, 0x4100_0000, 0, 0]);
    launch(&text, &memory, (1, 1), &[out]).unwrap();
    assert_eq!(memory.read(out), [0x40a0_0000, 0x4120_0000, 0x4100_0000, 0x4080_0000]);
}

#[test]
fn halves_are_added_to_singles_without_rounding() {
    let got = results(
        "mov.b16 %h1, 0x3c01; mov.b16 %h2, 0x3f81; mov.f32 %f1, 0f3f800000;
         add.rn.f32.f16 %f2, %h1, %f1; sub.rn.f32.bf16 %f3, %h2, %f1;
         fma.rn.f32.f16 %f4, %h1, %h1, %f1;
         mov.b32 %r1, %f2; mov.b32 %r2, %f3; mov.b32 %r3, %f4; mov.u32 %r4, 0;",
    );
    let half = 1.0 + f32::powi(2.0, -10);
    let expected = [half + 1.0, f32::powi(2.0, -7), half.mul_add(half, 1.0)];
    assert_eq!(got[..3], expected.map(f32::to_bits));
}

#[test]
fn modifiers_that_a_type_does_not_have_are_errors() {
    for line in [
        "add.sat.u32 %r1, %r2, %r3;",
        "mul.s32 %r1, %r2, %r3;",
        "and.u32 %r1, %r2, %r3;",
        "setp.lo.s32 %p1, %r2, %r3;",
        "cvt.f32.s32 %f1, %r2;",
        "cvt.sat.u32.u8 %r1, %h2;",
        "not.b32 %r1, %r2, %r3;",
        "st.param.u64 [p0], %d1;",
    ] {
        let text = kernel(1, line);
        let module = syntax::parse(&text).unwrap();
        assert!(Program::link(&[module]).is_err(), "{line}");
    }
}
