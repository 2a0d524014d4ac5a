//! Branches, calls and divergence.

use crate::device::{Memory, kernel, launch, launch_with, link, params};
use cuda_ptx::check::Checks;
use cuda_ptx::{FaultKind, Launch, Program, run, syntax};

#[test]
fn each_thread_computes_its_element() {
    let text = kernel(
        3,
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.s32 %r4, %r1, %r2, %r3;
         ld.param.u32 %r5, [p2]; setp.ge.u32 %p1, %r4, %r5; @%p1 bra DONE;
         ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1];
         mul.wide.u32 %d3, %r4, 4; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
         ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d2];
         fma.rn.f32 %f3, %f1, 0f40000000, %f2; st.global.f32 [%d2], %f3;
         DONE:",
    );
    for threads in [1, 2] {
        let mut memory = Memory::default();
        let x: Vec<u32> = (0..1000u16).map(|at| f32::from(at).to_bits()).collect();
        let y: Vec<u32> = (0..1000).map(|_| 1f32.to_bits()).collect();
        let (x, y) = (memory.words(&x), memory.words(&y));
        launch_with(&text, &memory, (8, 128), &[x, y, 1000], |launch| launch.threads = threads)
            .unwrap();
        let expected: Vec<u32> =
            (0..1000u16).map(|at| (2.0 * f32::from(at) + 1.0).to_bits()).collect();
        assert_eq!(memory.read(y), expected);
    }
}

#[test]
fn lanes_that_diverge_in_a_loop_meet_after_it() {
    // Each lane loops as often as its number says. After the loop all lanes vote.
    let text = kernel(
        1,
        "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0;
         LOOP: setp.ge.u32 %p1, %r2, %r1; @%p1 bra OUT;
         add.u32 %r3, %r3, %r2; add.u32 %r2, %r2, 1; bra LOOP;
         OUT: activemask.b32 %r4;
         ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 8; add.s64 %d1, %d1, %d2;
         st.global.v2.u32 [%d1], {%r3, %r4};",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 64]);
    launch(&text, &memory, (1, 32), &[out]).unwrap();
    let read = memory.read(out);
    for lane in 0..32u32 {
        let sum = (0..lane).sum::<u32>();
        assert_eq!(read[2 * lane as usize..][..2], [sum, u32::MAX], "lane {lane}");
    }
}

#[test]
fn a_lane_that_spins_on_another_lane_of_its_warp_ends() {
    // Each lane takes a lock, adds to a number without an atomic operation, and frees the lock.
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0];
         TRY: atom.global.cas.b32 %r1, [%d1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;
         ld.global.u32 %r2, [%d1+4]; add.u32 %r2, %r2, 1; st.global.u32 [%d1+4], %r2;
         atom.global.exch.b32 %r3, [%d1], 0;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0, 0]);
    launch(&text, &memory, (2, 64), &[out]).unwrap();
    assert_eq!(memory.read(out), [0, 128]);
}

#[test]
fn a_block_that_waits_for_a_later_block_ends() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra SET;
         WAIT: ld.volatile.global.u32 %r2, [%d1]; setp.eq.u32 %p1, %r2, 0; @%p1 bra WAIT;
         st.global.u32 [%d1+4], %r2; bra DONE;
         SET: mov.u32 %r3, 7; st.volatile.global.u32 [%d1], %r3;
         DONE:",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0, 0]);
    launch(&text, &memory, (2, 1), &[out]).unwrap();
    assert_eq!(memory.read(out), [7, 7]);
}

#[test]
fn a_recursive_function_keeps_its_registers() {
    let text = "
        .version 8.3\n.target sm_90\n.address_size 64
        .func (.param .b32 result) fib (.param .b32 n)
        {
            .reg .pred %p<2>; .reg .b32 %r<8>;
            ld.param.u32 %r1, [n];
            setp.lt.u32 %p1, %r1, 2;
            mov.u32 %r2, %r1;
            @%p1 bra DONE;
            sub.u32 %r3, %r1, 1;
            {
                .param .b32 a; .param .b32 out;
                st.param.b32 [a], %r3;
                call.uni (out), fib, (a);
                ld.param.b32 %r4, [out];
            }
            sub.u32 %r5, %r1, 2;
            {
                .param .b32 a; .param .b32 out;
                st.param.b32 [a], %r5;
                call.uni (out), fib, (a);
                ld.param.b32 %r6, [out];
            }
            add.u32 %r2, %r4, %r6;
            DONE:
            st.param.b32 [result], %r2;
            ret;
        }
        .visible .entry k(.param .u64 p0)
        {
            .reg .b32 %r<5>; .reg .b64 %d<4>;
            ld.param.u64 %d1, [p0];
            mov.u32 %r1, %tid.x;
            {
                .param .b32 a; .param .b32 out;
                st.param.b32 [a], %r1;
                call.uni (out), fib, (a);
                ld.param.b32 %r2, [out];
            }
            mul.wide.u32 %d2, %r1, 4;
            add.s64 %d1, %d1, %d2;
            st.global.u32 [%d1], %r2;
            ret;
        }";
    let mut memory = Memory::default();
    let out = memory.words(&[0; 12]);
    launch(text, &memory, (1, 12), &[out]).unwrap();
    assert_eq!(memory.read(out), [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]);
}

#[test]
fn an_indirect_call_calls_a_function_of_each_lane() {
    let text = "
        .version 8.3\n.target sm_90\n.address_size 64
        .func (.param .b32 result) twice (.param .b32 n)
        { .reg .b32 %r<3>; ld.param.u32 %r1, [n]; shl.b32 %r2, %r1, 1; st.param.b32 [result], %r2; ret; }
        .func (.param .b32 result) next (.param .b32 n)
        { .reg .b32 %r<3>; ld.param.u32 %r1, [n]; add.u32 %r2, %r1, 1; st.param.b32 [result], %r2; ret; }
        .global .u64 table[2] = {twice, next};
        .visible .entry k(.param .u64 p0)
        {
            .reg .b32 %r<5>; .reg .b64 %d<8>;
            ld.param.u64 %d1, [p0];
            mov.u32 %r1, %tid.x;
            and.b32 %r3, %r1, 1;
            mul.wide.u32 %d3, %r3, 8;
            mov.u64 %d4, table;
            add.s64 %d4, %d4, %d3;
            ld.global.u64 %d5, [%d4];
            {
                .param .b32 a; .param .b32 out;
                st.param.b32 [a], %r1;
                proto: .callprototype (.param .b32 _) _ (.param .b32 _);
                call (out), %d5, (a), proto;
                ld.param.b32 %r2, [out];
            }
            mul.wide.u32 %d2, %r1, 4;
            add.s64 %d1, %d1, %d2;
            st.global.u32 [%d1], %r2;
            ret;
        }";
    let mut memory = Memory::default();
    let out = memory.words(&[0; 6]);
    let program = link(text);
    let table = &program.variables()[0];
    let mut bytes = table.initial.clone();
    table.relocations.iter().for_each(|its| its.apply(&mut bytes, &[]));
    let table = memory.bytes(&bytes);
    launch_with(text, &memory, (1, 6), &[out], |launch| {
        launch.variables = &[table][..].to_vec().leak()[..]
    })
    .unwrap();
    assert_eq!(memory.read(out), [0, 2, 4, 4, 8, 6]);
}

#[test]
fn a_kernel_calls_a_function_whose_address_another_kernel_has_stored() {
    let text = "
        .version 8.3\n.target sm_90\n.address_size 64
        .func (.param .b32 result) twice (.param .b32 n)
        { .reg .b32 %r<3>; ld.param.u32 %r1, [n]; shl.b32 %r2, %r1, 1; st.param.b32 [result], %r2; ret; }
        .visible .entry call(.param .u64 p0)
        {
            .reg .b32 %r<2>; .reg .b64 %d<3>;
            ld.param.u64 %d1, [p0];
            ld.global.u64 %d2, [%d1];
            {
                .param .b32 a; .param .b32 out;
                st.param.b32 [a], 21;
                proto: .callprototype (.param .b32 _) _ (.param .b32 _);
                call (out), %d2, (a), proto;
                ld.param.b32 %r1, [out];
            }
            st.global.u32 [%d1], %r1;
            ret;
        }
        .visible .entry store(.param .u64 p0)
        {
            .reg .b64 %d<3>;
            ld.param.u64 %d1, [p0];
            mov.u64 %d2, twice;
            st.global.u64 [%d1], %d2;
            ret;
        }";
    let mut memory = Memory::default();
    let place = memory.words(&[0; 2]);
    let program = link(text);
    let params = params(&[place]);
    for kernel in [1, 0] {
        let mut launch = Launch::new(&program, kernel);
        launch.params = &params;
        run(&launch, &memory).unwrap();
    }
    assert_eq!(memory.read(place)[0], 42);
}

#[test]
fn all_lanes_end_after_a_guarded_instruction() {
    let text = "
        .version 8.3\n.target sm_90\n.address_size 64
        .visible .entry k(.param .u64 p0)
        {
            .reg .pred %p; .reg .b32 %r; .reg .b64 %d<3>;
            mov.u32 %r, %tid.x;
            ld.param.u64 %d1, [p0];
            mul.wide.u32 %d2, %r, 4;
            add.s64 %d1, %d1, %d2;
            setp.eq.u32 %p, %r, 0;
            st.global.u32 [%d1], 7;
            @%p st.global.u32 [%d1], 9;
        }";
    let mut memory = Memory::default();
    let out = memory.words(&[0; 4]);
    launch(text, &memory, (1, 4), &[out]).unwrap();
    assert_eq!(memory.read(out), [9, 7, 7, 7]);
}

#[test]
fn an_indirect_branch_goes_to_the_label_of_each_lane() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 3;
         TABLE: .branchtargets A, B, C;
         brx.idx %r2, TABLE;
         A: mov.u32 %r3, 10; bra OUT; B: mov.u32 %r3, 20; bra OUT; C: mov.u32 %r3, 30;
         OUT: mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2; st.global.u32 [%d1], %r3;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 5]);
    launch(&text, &memory, (1, 5), &[out]).unwrap();
    assert_eq!(memory.read(out), [10, 20, 30, 10, 20]);
}

#[test]
fn a_call_may_expect_a_result_that_the_function_of_another_module_lacks() {
    let head = ".version 8.3\n.target sm_90\n.address_size 64\n";
    let caller = kernel(
        1,
        "ld.param.u64 %d1, [p0];
         { .param .b64 a; .param .b32 out; st.param.b64 [a], %d1; call.uni (out), store, (a); }",
    )
    .replacen(head, &format!("{head}.extern .func (.param .b32 r) store(.param .b64 a);\n"), 1);
    let callee = format!(
        "{head}.visible .func store(.param .b64 a) {{ .reg .b64 %d1; .reg .b32 %r1;
         ld.param.u64 %d1, [a]; mov.u32 %r1, 42; st.u32 [%d1], %r1; ret; }}"
    );
    let modules = [syntax::parse(&caller).unwrap(), syntax::parse(&callee).unwrap()];
    let program = Program::link(&modules).unwrap();
    let mut memory = Memory::default();
    let out = memory.words(&[0; 2]);
    let params = params(&[out]);
    let mut launch = Launch::new(&program, 0);
    launch.params = &params;
    run(&launch, &memory).unwrap();
    assert_eq!(memory.read(out)[0], 42);

    let in_one = caller.replace(".extern .func (.param .b32 r) store", ".func store");
    let in_one = in_one.replacen("(.param .b64 a);", "(.param .b64 a) { ret; }", 1);
    assert!(Program::link(&[syntax::parse(&in_one).unwrap()]).is_err());
}

/// Each thread sums the numbers of all threads of the grid, which wait for each other twice.
const ALL_SUM: &str = "
    .version 8.3\n.target sm_90\n.address_size 64
    .extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);
    .extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
    .visible .entry k(.param .u64 p0, .param .u64 p1)
    {
        .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d<9>;
        .param .b32 scope; .param .b64 handle; .param .b32 flags; .param .b32 status;
        ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1];
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
        mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d3, %r1, 4;
        add.s64 %d4, %d1, %d3; st.global.u32 [%d4], %r1;
        mov.u32 %r4, 1; st.param.b32 [scope], %r4;
        call.uni (handle), cudaCGGetIntrinsicHandle, (scope);
        mov.u32 %r4, 0; st.param.b32 [flags], %r4;
        call.uni (status), cudaCGSynchronize, (handle, flags);
        ld.param.b32 %r8, [status];
        mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r2; mov.u32 %r6, 0; mov.u64 %d5, %d1;
        SUM: ld.global.u32 %r7, [%d5]; add.u32 %r6, %r6, %r7; add.s64 %d5, %d5, 4;
        sub.u32 %r5, %r5, 1; setp.ne.u32 %p, %r5, 0; @%p bra SUM;
        call.uni (status), cudaCGSynchronize, (handle, flags);
        add.u32 %r6, %r6, %r8; st.global.u32 [%d4], %r6;
        ret;
    }";

#[test]
fn the_blocks_of_a_cooperative_grid_wait_for_each_other() {
    for seed in 0..5 {
        let mut memory = Memory::default();
        let out = memory.words(&[0; 240]);
        launch_with(ALL_SUM, &memory, (6, 40), &[out, 0], |launch| {
            launch.is_cooperative = true;
            launch.seed = seed;
            launch.checks = Checks::ALL;
        })
        .unwrap();
        assert_eq!(memory.read(out), [(0..240).sum::<u32>(); 240], "seed {seed}");
        assert_eq!(memory.findings.into_inner().unwrap(), [], "seed {seed}");
    }
}

#[test]
fn a_race_between_blocks_that_do_not_wait_for_each_other_again_is_found() {
    let (before, after) = ALL_SUM.split_once("@%p bra SUM;").unwrap();
    let after = after.split_once("(handle, flags);").unwrap().1;
    let text = format!("{before}@%p bra SUM;{after}");
    for seed in 0..5 {
        let mut memory = Memory::default();
        let out = memory.words(&[0; 240]);
        launch_with(&text, &memory, (6, 40), &[out, 0], |launch| {
            launch.is_cooperative = true;
            launch.seed = seed;
            launch.checks = Checks::ALL;
        })
        .unwrap();
        assert_ne!(memory.findings.into_inner().unwrap(), [], "seed {seed}");
    }
}

#[test]
fn a_grid_that_synchronizes_often_does_not_spin_for_long() {
    // 200 times, each of 32 blocks waits for the others. A slice of spinning in each wait would be 128 million
    // operations.
    let text = ALL_SUM.replace(
        "mov.u32 %r5, %nctaid.x;",
        "mov.u32 %r3, 200;
             AGAIN: call.uni (status), cudaCGSynchronize, (handle, flags);
             sub.u32 %r3, %r3, 1; setp.ne.u32 %p, %r3, 0; @%p bra AGAIN;
             mov.u32 %r5, %nctaid.x;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 32]);
    launch_with(&text, &memory, (32, 1), &[out, 0], |launch| {
        launch.is_cooperative = true;
        launch.steps = 4_000_000;
    })
    .unwrap();
    assert_eq!(memory.read(out), [(0..32).sum::<u32>(); 32]);
}

#[test]
fn the_environment_registers_of_a_cooperative_grid_have_the_address_of_its_memory() {
    let text = kernel(
        1,
        "mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %d2, {%r2, %r1};
         ld.param.u64 %d1, [p0]; atom.add.u32 %r3, [%d2], 5; st.global.u32 [%d1], %r3;
         atom.add.u32 %r3, [%d2], 5; st.global.u32 [%d1+4], %r3;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[9; 2]);
    launch_with(&text, &memory, (1, 1), &[out], |launch| launch.is_cooperative = true).unwrap();
    assert_eq!(memory.read(out), [0, 5]);
    // There is no such memory in other grids.
    let fault = launch(&text, &memory, (1, 1), &[out]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
}
