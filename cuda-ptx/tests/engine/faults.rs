//! What ends a kernel, and its report.

use crate::device::{Memory, kernel, launch, launch_with};
use cuda_ptx::check::Checks;
use cuda_ptx::{FaultKind, Program, syntax};
use std::error::Error;

#[test]
fn an_access_out_of_bounds_names_its_place() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4;
         add.s64 %d1, %d1, %d2;
         st.global.u32 [%d1], %r1;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 10]);
    let fault = launch(&text, &memory, (1, 32), &[out]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!(fault.address, Some(out + 40));
    assert_eq!((fault.instruction.as_str(), fault.thread), ("st.global.u32", [10, 0, 0]));
    assert_eq!(fault.line, 10, "{fault}");
}

#[test]
fn a_misaligned_access_is_an_error() {
    let text = kernel(1, "ld.param.u64 %d1, [p0]; ld.global.v2.u32 {%r1, %r2}, [%d1+4];");
    let mut memory = Memory::default();
    let out = memory.words(&[0; 10]);
    let fault = launch(&text, &memory, (1, 1), &[out]).unwrap_err();
    assert_eq!((fault.kind, fault.address), (FaultKind::MisalignedAddress, Some(out + 4)));
}

#[test]
fn an_access_beyond_shared_memory_is_an_error() {
    let text = kernel(1, ".shared .b32 x[4]; ld.shared.u32 %r1, [x+16];");
    let fault = launch(&text, &Memory::default(), (1, 1), &[0]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress, "{fault}");
}

#[test]
fn a_block_that_the_cluster_does_not_have_has_no_shared_memory() {
    let text = kernel(
        0,
        ".shared .b32 x[4]; mov.u32 %r1, x; mapa.shared::cluster.u32 %r2, %r1, 5;
         ld.shared::cluster.u8 %r3, [%r2];",
    );
    let fault = launch(&text, &Memory::default(), (1, 1), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress, "{fault}");
    assert!(fault.text.contains("of 0 bytes"), "{fault}");
}

#[test]
fn a_trap_ends_the_kernel() {
    let fault = launch(&kernel(0, "trap;"), &Memory::default(), (1, 1), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
}

#[test]
fn threads_that_wait_without_end_are_a_deadlock() {
    let text = kernel(
        0,
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; @%p1 bra A; bar.sync 1; bra OUT;
         A: bar.sync 0; OUT:",
    );
    let fault = launch(&text, &Memory::default(), (1, 64), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock, "{fault}");
    let text = kernel(0, "mov.u32 %r1, %tid.x; bar.warp.sync 3; bar.warp.sync 7;");
    let fault = launch(&text, &Memory::default(), (1, 2), &[]);
    assert!(fault.is_ok(), "lanes without a thread do not take part");
}

#[test]
fn a_kernel_without_end_reaches_the_limit() {
    let text = kernel(0, "LOOP: bra LOOP;");
    let fault =
        launch_with(&text, &Memory::default(), (1, 1), &[], |launch| launch.steps = 100_000)
            .unwrap_err();
    assert_eq!(fault.kind, FaultKind::StepLimit);
}

#[test]
fn an_instruction_that_is_not_supported_is_named_when_it_is_reached() {
    let text = kernel(0, "setp.eq.u32 %p1, 0, 1; @!%p1 bra OUT; wgmma.fence.sync.aligned; OUT:");
    launch(&text, &Memory::default(), (1, 1), &[]).unwrap();
    let text = kernel(0, "wgmma.fence.sync.aligned;");
    let fault = launch(&text, &Memory::default(), (1, 1), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
    assert_eq!(fault.instruction, "wgmma.fence.sync.aligned");
}

#[test]
fn debug_formats_the_text_of_an_error_and_its_alternate_form_the_fields() {
    let text = kernel(0, "add.s32 %r1, %r2, missing;");
    let module = syntax::parse(&text).unwrap();
    let errors: [(Box<dyn Error>, &[&str]); 4] = [
        (
            Box::new(launch(&kernel(0, "trap;"), &Memory::default(), (1, 1), &[]).unwrap_err()),
            &["Fault {", "kind: Trap", "text: \"", "instruction: \"trap\"", "address: None"],
        ),
        (
            Box::new(Program::link(&[module]).map(drop).unwrap_err()),
            &["LinkError {", "module: 0", "position: Position {", "text: \""],
        ),
        (
            Box::new(syntax::parse("").map(drop).unwrap_err()),
            &["ParseError {", "position: Position {", "expected: \"`.version`\"", "found: \""],
        ),
        (
            Box::new("synchcheck".parse::<Checks>().unwrap_err()),
            &["UnknownCheck {", "name: \"synchcheck\""],
        ),
    ];
    for (error, parts) in errors {
        assert_eq!(format!("{error:?}"), error.to_string());
        let fields = format!("{error:#?}");
        assert_ne!(fields, error.to_string());
        for part in parts {
            assert!(fields.contains(part), "{fields}");
        }
    }
}
