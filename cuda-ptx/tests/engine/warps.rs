//! Functions of a warp, barriers and clusters.

use crate::device::{Memory, kernel, launch, launch_with, link};

#[test]
fn a_block_sums_in_shared_memory() {
    let text = kernel(
        1,
        ".shared .align 4 .b32 buffer[256];
         mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, buffer; add.u32 %r4, %r3, %r2;
         st.shared.u32 [%r4], %r1; bar.sync 0;
         mov.u32 %r5, 128;
         LOOP: setp.ge.u32 %p1, %r1, %r5; @%p1 bra SKIP;
         shl.b32 %r6, %r5, 2; add.u32 %r7, %r4, %r6;
         ld.shared.u32 %r8, [%r7]; ld.shared.u32 %r9, [%r4]; add.u32 %r9, %r9, %r8;
         st.shared.u32 [%r4], %r9;
         SKIP: bar.sync 0; shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LOOP;
         setp.ne.u32 %p3, %r1, 0; @%p3 bra DONE;
         ld.shared.u32 %r10, [buffer]; ld.param.u64 %d1, [p0]; mov.u32 %r11, %ctaid.x;
         mul.wide.u32 %d2, %r11, 4; add.s64 %d1, %d1, %d2; st.global.u32 [%d1], %r10;
         DONE:",
    );
    for seed in 0..20 {
        let mut memory = Memory::default();
        let out = memory.words(&[0; 5]);
        launch_with(&text, &memory, (5, 256), &[out], |launch| launch.seed = seed).unwrap();
        assert_eq!(memory.read(out), [255 * 128; 5], "seed {seed}");
    }
}

#[test]
fn a_shuffle_sums_the_lanes_of_a_warp() {
    let text = kernel(
        1,
        "mov.u32 %r1, %tid.x; mov.u32 %r2, 16;
         LOOP: shfl.sync.bfly.b32 %r3|%p1, %r1, %r2, 31, -1; add.u32 %r1, %r1, %r3;
         shr.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra LOOP;
         vote.sync.all.pred %p3, %p1, -1; selp.u32 %r4, 1000, 0, %p3; add.u32 %r1, %r1, %r4;
         ld.param.u64 %d1, [p0]; mov.u32 %r5, %tid.x; mul.wide.u32 %d2, %r5, 4;
         add.s64 %d1, %d1, %d2; st.global.u32 [%d1], %r1;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 32]);
    launch(&text, &memory, (1, 32), &[out]).unwrap();
    assert_eq!(memory.read(out), [496 + 1000; 32]);
}

#[test]
fn lanes_synchronize_from_different_places() {
    let text = kernel(
        1,
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW;
         bar.warp.sync -1; mov.u32 %r2, 1; bra OUT;
         LOW: bar.warp.sync -1; mov.u32 %r2, 2;
         OUT: ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r2;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 32]);
    launch(&text, &memory, (1, 32), &[out]).unwrap();
    assert_eq!(memory.read(out), [[2; 16], [1; 16]].concat());
}

#[test]
fn lanes_that_synchronized_at_different_places_run_before_they_synchronize_again() {
    let text = kernel(
        1,
        ".shared .align 4 .b32 buffer[32];
         mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, buffer; add.u32 %r4, %r3, %r2;
         setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW;
         bar.warp.sync -1; st.shared.u32 [%r4], %r1; bar.warp.sync -1; bra OUT;
         LOW: bar.warp.sync -1; st.shared.u32 [%r4], %r1; bar.warp.sync -1;
         OUT: xor.b32 %r5, %r2, 64; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5];
         ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r6;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 32]);
    launch(&text, &memory, (1, 32), &[out]).unwrap();
    assert_eq!(memory.read(out), (0..32).map(|lane| lane ^ 16).collect::<Vec<_>>());
}

#[test]
fn a_reduction_of_floats_may_ignore_signs() {
    // The number with the greatest magnitude is in the first lane or in the last one.
    for (first, step) in [(-40f32, 1f32), (-9.0, -1.0)] {
        let text = kernel(
            1,
            &format!(
                "mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f{:08x};
                 mov.f32 %f3, 0f{:08x}; fma.rn.f32 %f1, %f1, %f2, %f3;
                 redux.sync.max.abs.f32 %f4, %f1, -1; redux.sync.min.abs.f32 %f5, %f1, -1;
                 redux.sync.max.f32 %f6, %f1, -1; redux.sync.min.f32 %f7, %f1, -1;
                 ld.param.u64 %d1, [p0]; st.global.v4.f32 [%d1], {{%f4, %f5, %f6, %f7}};",
                step.to_bits(),
                first.to_bits()
            ),
        );
        let mut memory = Memory::default();
        let out = memory.words(&[0; 4]);
        launch(&text, &memory, (1, 32), &[out]).unwrap();
        assert_eq!(memory.read(out), [40f32, 9.0, -9.0, -40.0].map(f32::to_bits), "{first}");
    }
}

#[test]
fn a_barrier_of_some_threads_waits_for_the_last_of_them() {
    // The last lane of the first warp arrives after thousands of instructions, and the second warp never.
    let text = kernel(
        1,
        ".shared .align 4 .b32 value;
         mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 exit;
         setp.eq.u32 %p2, %r1, 31; @%p2 bra LAST;
         barrier.sync 1, 32; ld.shared.u32 %r2, [value];
         ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r2; exit;
         LAST: mov.u32 %r3, 20000; LOOP: sub.u32 %r3, %r3, 1; setp.ne.u32 %p3, %r3, 0; @%p3 bra LOOP;
         st.shared.u32 [value], 7; barrier.sync 1, 32;",
    );
    for seed in 0..20 {
        let mut memory = Memory::default();
        let out = memory.words(&[0; 31]);
        launch_with(&text, &memory, (1, 64), &[out], |launch| launch.seed = seed).unwrap();
        assert_eq!(memory.read(out), [7; 31], "seed {seed}");
    }
}

#[test]
fn a_barrier_of_some_warps_and_a_reduction() {
    // The first two warps wait for each other at barrier 1; all warps count their odd threads at barrier 2.
    let text = kernel(
        1,
        "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 64; @%p1 bra ALL;
         bar.sync 1, 64;
         ALL: and.b32 %r2, %r1, 1; setp.ne.u32 %p2, %r2, 0;
         bar.red.popc.u32 %r6, 2, %p2; bar.red.and.pred %p3, 2, %p2; bar.red.or.pred %p4, 2, %p2;
         bar.red.popc.u32 %r3, 2, %p2; sub.u32 %r6, %r6, %r3; mul.lo.u32 %r6, %r6, 10000;
         add.u32 %r3, %r3, %r6;
         selp.u32 %r4, 1000, 0, %p3; selp.u32 %r5, 100, 0, %p4;
         add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5;
         ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r3;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 100]);
    launch(&text, &memory, (1, 100), &[out]).unwrap();
    assert_eq!(memory.read(out), [150; 100]);
}

#[test]
fn blocks_of_a_cluster_read_the_shared_memory_of_each_other() {
    let text = kernel(
        1,
        ".shared .align 4 .b32 value;
         mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %ctaid.x; st.shared.u32 [value], %r2;
         barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
         xor.b32 %r3, %r1, 1; mov.u32 %r4, value;
         mapa.shared::cluster.u32 %r5, %r4, %r3; ld.shared::cluster.u32 %r6, [%r5];
         barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
         ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r2, 4; add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r6;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[9; 4]);
    launch_with(&text, &memory, (4, 1), &[out], |launch| launch.cluster = [2, 1, 1]).unwrap();
    assert_eq!(memory.read(out), [1, 0, 3, 2]);
}

#[test]
fn atomic_operations_of_all_threads_add_up() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; red.global.add.u32 [%d1], 1;
         atom.global.max.u32 %r2, [%d1+4], %r1; atom.global.inc.u32 %r3, [%d1+8], 9;
         atom.global.add.f32 %f1, [%d1+12], 0f3F800000;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 4]);
    launch_with(&text, &memory, (10, 100), &[out], |launch| launch.threads = 2).unwrap();
    assert_eq!(memory.read(out), [1000, 99, 0, 1000f32.to_bits()]);
}

#[test]
fn atomic_operations_of_each_kind_depend_on_the_order_of_blocks() {
    let depends = |body: &str| {
        let program = link(&kernel(1, &format!("ld.param.u64 %d1, [p0]; {body}")));
        program.kernels()[0].depends_on_order()
    };
    assert!(!depends("st.global.u32 [%d1], 1;"));
    assert!(depends("red.global.add.u32 [%d1], 1;"));
    assert!(depends("atom.global.add.v2.f32 {%f1, %f2}, [%d1], {%f3, %f4};"));
    assert!(depends("ld.volatile.global.u32 %r1, [%d1];"));
}

#[test]
fn registers_are_zero_before_they_are_written() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;
         cvt.u32.u64 %r4, %d9; add.u32 %r4, %r4, %r9; @%p9 add.u32 %r4, %r4, 1;
         st.global.u32 [%d1], %r4;
         mov.u32 %r9, 7; mov.u64 %d9, 9; setp.eq.u32 %p9, %r9, 7;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[u32::MAX; 512]);
    launch(&text, &memory, (4, 128), &[out]).unwrap();
    assert_eq!(memory.read(out), [0; 512]);
}

#[test]
fn lanes_without_a_thread_are_in_no_mask_of_a_match() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, 7; mov.u32 %r2, %tid.x;
         match.all.sync.b32 %r3|%p1, %r1, 0xffffffff; match.any.sync.b32 %r4, %r1, 0xffffffff;
         mul.wide.u32 %d2, %r2, 8; add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r3; st.global.u32 [%d1+4], %r4;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 20]);
    launch(&text, &memory, (1, 10), &[out]).unwrap();
    assert_eq!(memory.read(out), [0x3ff; 20]);
}
