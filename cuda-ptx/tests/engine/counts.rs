//! The counts of executions, and the list of instructions that they belong to.

use crate::device::{Memory, kernel, link};
use cuda_ptx::check::Checks;
use cuda_ptx::{Instruction, Launch, Program, run, syntax};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the first kernel of a program and returns the number of executions of each instruction.
fn counts(program: &Program, change: impl Fn(&mut Launch<'_>)) -> Vec<u64> {
    let counts: Vec<AtomicU64> = program.instructions(0).map(|_| AtomicU64::default()).collect();
    let mut launch = Launch::new(program, 0);
    launch.counts = Some(&counts);
    change(&mut launch);
    // A test of a fault looks at the counts alone.
    let _ = run(&launch, &Memory::default());
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

/// Returns the instructions of the body of a kernel without parameters, each with its executions. The last one is that
/// of [`kernel`].
fn body(text: &str, change: impl Fn(&mut Launch<'_>)) -> Vec<(String, u64)> {
    let program = link(&kernel(0, text));
    let counts = counts(&program, change);
    let names = program.instructions(0).map(|its| its.name.to_owned());
    names.zip(counts).collect()
}

#[track_caller]
fn assert_counts(text: &str, change: impl Fn(&mut Launch<'_>), expected: &[(&str, u64)]) {
    let found = body(text, change);
    let found: Vec<(&str, u64)> = found.iter().map(|(name, count)| (&**name, *count)).collect();
    // The engine ends each kernel with a `ret` that the text does not have.
    assert_eq!(found.split_last(), Some((&("ret", 0), expected)));
}

#[test]
fn each_thread_counts_and_a_false_guard_counts_for_branches_alone() {
    // 40 threads: the first 3 take the branch, and 5 more do not execute the addition.
    let text = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 3; setp.lt.u32 %p1, %r0, 8;
        @%p0 bra L; @!%p1 add.u32 %r1, %r0, 1; L: mov.u32 %r2, %r1;";
    for checks in [Checks::default(), Checks::ALL] {
        let change = |launch: &mut Launch<'_>| {
            launch.block = [40, 1, 1];
            launch.checks = checks;
        };
        let expected = [
            ("mov.u32", 40),
            ("setp.lt.u32", 40),
            ("setp.lt.u32", 40),
            ("bra", 40),
            ("add.u32", 32),
            ("mov.u32", 40),
            ("ret", 40),
        ];
        assert_counts(text, change, &expected);
    }
}

#[test]
fn the_blocks_of_all_host_threads_count() {
    let text =
        "mov.u32 %r0, %ctaid.x; L: add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 100; @%p0 bra L;";
    for threads in [1, 4] {
        let change = |launch: &mut Launch<'_>| {
            (launch.grid, launch.block, launch.threads) = ([100, 1, 1], [64, 1, 1], threads);
        };
        // The loop has 100 turns in the first block and one in the last.
        let turns = 64 * (100 * 101) / 2;
        let expected = [
            ("mov.u32", 6400),
            ("add.u32", turns),
            ("setp.lt.u32", turns),
            ("bra", turns),
            ("ret", 6400),
        ];
        assert_counts(text, change, &expected);
    }
}

#[test]
fn a_launch_adds_to_the_counters() {
    let program = link(&kernel(0, "mov.u32 %r0, 1;"));
    let counts = [const { AtomicU64::new(7) }; 2];
    let mut launch = Launch::new(&program, 0);
    launch.counts = Some(&counts);
    run(&launch, &Memory::default()).unwrap();
    assert_eq!(counts.map(AtomicU64::into_inner), [8, 8]);
}

#[test]
fn lanes_that_wait_for_others_count_once() {
    let block = |launch: &mut Launch<'_>| launch.block = [32, 1, 1];
    // Half of the warp comes later to the shuffle.
    let late =
        "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 bra A; add.u32 %r1, %r0, 1; bra.uni B;
        A: add.u32 %r1, %r0, 2; B: shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; bar.sync 0;";
    let expected = [
        ("mov.u32", 32),
        ("setp.lt.u32", 32),
        ("bra", 32),
        ("add.u32", 16),
        ("bra.uni", 16),
        ("add.u32", 16),
        ("shfl.sync.bfly.b32", 32),
        ("bar.sync", 32),
        ("ret", 32),
    ];
    assert_counts(late, block, &expected);
    // Lanes synchronize from two places.
    let places =
        "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 10; @%p0 bra A; bar.warp.sync -1; bra.uni B;
        A: bar.warp.sync -1; B: mov.u32 %r1, %r0;";
    let expected = [
        ("mov.u32", 32),
        ("setp.lt.u32", 32),
        ("bra", 32),
        ("bar.warp.sync", 22),
        ("bra.uni", 22),
        ("bar.warp.sync", 10),
        ("mov.u32", 32),
        ("ret", 32),
    ];
    assert_counts(places, block, &expected);
}

#[test]
fn a_wait_for_a_cluster_counts_once() {
    let change = |launch: &mut Launch<'_>| {
        (launch.grid, launch.cluster, launch.block) = ([2, 1, 1], [2, 1, 1], [48, 1, 1]);
        launch.is_clustered = true;
    };
    let text = "barrier.cluster.arrive; barrier.cluster.wait;";
    let expected = [("barrier.cluster.arrive", 96), ("barrier.cluster.wait", 96), ("ret", 96)];
    assert_counts(text, change, &expected);
}

#[test]
fn a_kernel_that_a_fault_ends_has_counted_the_instruction() {
    let block = |launch: &mut Launch<'_>| launch.block = [8, 1, 1];
    let text = "mov.u64 %d0, 8; ld.global.u32 %r0, [%d0]; mov.u32 %r1, %r0;";
    assert_counts(text, block, &[("mov.u64", 8), ("ld.global.u32", 8), ("mov.u32", 0), ("ret", 0)]);
    assert_counts("trap;", block, &[("trap", 8), ("ret", 0)]);
}

#[test]
fn a_kernel_without_effect_counts_its_threads() {
    let program = link(".version 8.0 .target sm_80 .address_size 64 .entry k() { ret; }");
    let change = |launch: &mut Launch<'_>| {
        (launch.grid, launch.block) = ([1 << 30, 1000, 1], [1024, 1, 1]);
    };
    assert_eq!(counts(&program, change), [(1 << 30) * 1000 * 1024, 0]);
}

const FIRST: &str = ".version 8.0
.target sm_80
.address_size 64
.file 1 \"first.cu\"
.file 2 \"inlined.h\"
.extern .func (.param .b32 r) twice(.param .b32 x);
.func nobody()
{
    .loc 1 3 1
    ret;
}
.visible .entry k()
{
    .reg .b32 %r<4>;
    .loc 1 10 5
    mov.u32 %r0, %tid.x;
    .loc 2 77 9, function_name f, inlined_at 1 11 5
    add.u32 %r1, %r0, 1;
    {
        .param .b32 x;
        .param .b32 r;
        st.param.b32 [x], %r1;
        call (r), twice, (x);
        ld.param.b32 %r2, [r];
    }
    .loc 1 12 1
    ret;
}
.section .debug_str { f: .b8 107, 0 }
";

const SECOND: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .func (.reg .b32 r) twice(.reg .b32 x)
{
    add.u32 r, x, x;
    ret;
}
";

#[test]
fn instructions_have_their_lines_in_the_text_and_the_source() {
    let modules = [FIRST, SECOND].map(|text| syntax::parse(text).unwrap());
    let program = Program::link(&modules).unwrap();
    let list: Vec<Instruction<'_>> = program.instructions(0).collect();
    let counts = counts(&program, |launch| launch.block = [5, 1, 1]);
    assert_eq!(list.len(), counts.len());
    let rows = |name: &str| {
        let with_counts = list.iter().zip(&counts).filter(|(its, _)| its.name == name);
        let row = |(its, count): (&Instruction<'_>, &u64)| {
            (its.module, its.function.to_owned(), its.function_line, its.line, *count)
        };
        with_counts.map(row).collect::<Vec<_>>()
    };
    assert_eq!(rows("mov.u32"), [(0, "k".to_owned(), 12, 16, 5)]);
    let adds = [(0, "k".to_owned(), 12, 18, 5), (1, "twice".to_owned(), 4, 6, 5)];
    assert_eq!(rows("add.u32"), adds);
    assert_eq!(rows("call").first(), Some(&(0, "k".to_owned(), 12, 23, 5)));
    let source = |line: u32| {
        let mut all = list.iter().filter(|its| its.module == 0 && its.line == line);
        all.next().and_then(|its| its.source)
    };
    assert_eq!(source(16), Some(("first.cu", 10)));
    assert_eq!(source(18), Some(("inlined.h", 77)));
    assert_eq!(source(27), Some(("first.cu", 12)));
    // Another module starts without a place in the source.
    assert!(list.iter().all(|its| its.module == 0 || its.source.is_none()));
    // The parameter in a register is loaded by no instruction of the text.
    assert!(list.iter().any(|its| its.module == 1 && its.line == 0));
    // There is no second kernel.
    assert_eq!(program.instructions(1).count(), 0);

    let uncalled: Vec<_> = program
        .uncalled()
        .map(|its| (its.function, its.function_line, its.line, its.source))
        .collect();
    assert_eq!(uncalled[0], ("nobody", 7, 10, Some(("first.cu", 3))));
    assert!(uncalled.iter().all(|its| its.0 == "nobody"), "{uncalled:?}");
}

#[test]
fn functions_of_the_engine_have_the_number_of_modules() {
    let text = kernel(0, "call cudaCGSynchronize, (%d0, %r0);").replace(
        ".visible .entry",
        ".extern .func cudaCGSynchronize(.param .b64 g, .param .b32 f);\n.visible .entry",
    );
    let program = link(&text);
    let modules: Vec<_> =
        program.instructions(0).map(|its| (its.function.to_owned(), its.module)).collect();
    assert!(modules.contains(&("k".to_owned(), 0)), "{modules:?}");
    assert!(modules.contains(&("cudaCGSynchronize".to_owned(), 1)), "{modules:?}");
}
