//! initcheck.

use super::Run;
use crate::planted::{HEAD, module};
use cuda_ptx::check::{Address, Check, Checks};

const CONDITION: &str = "a condition depends on memory that was never written";
const ADDRESS: &str = "an address depends on memory that was never written";

/// Runs a text with the check.
fn run(text: &str, shape: (u32, u32), seed: u64) -> Run {
    let run = super::run(text, (shape, 1), Checks::MEMCHECK.with(Check::Initcheck), seed);
    assert_eq!(run.fault, None, "{text}");
    run
}

/// A function that writes its local memory if its argument is 1, and returns a word of it, and recursive ones.
const FUNCTIONS: &str = ".version 8.3\n.target sm_90\n.address_size 64
.func (.reg .b32 %x) local(.reg .b32 %a) {
    .local .align 4 .b8 l[8]; .reg .pred %p;
    setp.eq.u32 %p, %a, 1; @%p st.local.u32 [l], %a; ld.local.u32 %x, [l]; ret;
}
.func (.param .b32 x) depth(.param .b32 a, .param .align 8 .b8 pair[8]) {
    .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<2>; .param .b32 y; .param .b32 b; .param .align 8 .b8 q[8];
    ld.param.u32 %r0, [a]; ld.param.u32 %r1, [pair+4]; setp.eq.u32 %p, %r0, 0; @%p bra E;
    sub.u32 %r2, %r0, 1; ld.param.u64 %d0, [pair];
    { st.param.b32 [b], %r2; st.param.b64 [q], %d0; call (y), depth, (b, q); ld.param.b32 %r3, [y]; }
    add.u32 %r1, %r1, %r3;
E:  st.param.b32 [x], %r1; ret;
}
.func (.reg .b32 %x) own(.reg .b32 %a) {
    .local .align 4 .b8 l[8]; .reg .pred %p; .reg .b32 %r<3>;
    mov.u32 %r0, %a; setp.eq.u32 %p, %a, 0; @%p ld.local.u32 %r0, [l]; mov.u32 %x, 1; @%p ret;
    sub.u32 %r1, %a, 1; call (%x), own, (%r1);
    setp.eq.u32 %p, %r0, 9; @%p add.u32 %x, %x, 1; ret;
}
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4) {
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [p1];\n";

#[test]
fn frames_of_functions_are_not_written_when_they_begin() {
    let cases: &[(&str, Option<&str>)] = &[
        ("mov.u32 %r0, 1; call (%r1), local, (%r0);", None),
        ("mov.u32 %r0, 2; call (%r1), local, (%r0);", Some(CONDITION)),
        (
            "mov.u32 %r0, 1; call (%r1), local, (%r0); mov.u32 %r0, 0; call (%r1), local, (%r0);",
            Some(CONDITION),
        ),
        // The caller has its own value of a register that is undefined in the callee.
        ("mov.u32 %r0, 2; call (%r1), own, (%r0);", None),
        // Only the upper word of the pair is used.
        (
            "st.global.u32 [%d0+4], %r0; ld.global.u64 %d1, [%d0]; .param .b32 y; .param .b32 b; .param .align 8 .b8 q[8];
             st.param.b32 [b], 3; st.param.b64 [q], %d1; call (y), depth, (b, q); ld.param.b32 %r1, [y];",
            None,
        ),
        (
            "st.global.u32 [%d0], %r0; ld.global.u64 %d1, [%d0]; .param .b32 y; .param .b32 b; .param .align 8 .b8 q[8];
             st.param.b32 [b], 3; st.param.b64 [q], %d1; call (y), depth, (b, q); ld.param.b32 %r1, [y];",
            Some(CONDITION),
        ),
        (
            "ld.global.u32 %r0, [%d0]; .param .b32 y; .param .b32 b; .param .align 8 .b8 q[8];
             st.param.b32 [b], %r0; st.param.b64 [q], 0; call (y), depth, (b, q); ld.param.b32 %r1, [y];",
            Some(CONDITION),
        ),
    ];
    for (body, expected) in cases {
        let branch = "setp.eq.u32 %p1, %r1, 7; @%p1 bra E; add.u32 %r2, %r1, 1; E: ret; }";
        for seed in 0..=super::SEEDS {
            let found = run(&format!("{FUNCTIONS}{body}{branch}"), (1, 40), seed).findings;
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            match expected {
                None => assert!(texts.is_empty(), "{body}: {texts:#?}"),
                Some(text) => {
                    assert!(texts.len() == 1 && texts[0].contains(text), "{body}: {texts:#?}");
                }
            }
        }
    }
}

#[test]
fn a_finding_has_the_use_the_load_and_the_address() {
    let body = "ld.shared.u8 %r10, [s+5]; @%p0 bra E; E:\nld.global.u32 %r12, [%d11];\nadd.u32 %r12, %r12, %r10;\n\
                setp.eq.u32 %p1, %r12, 0;\n@%p1 bra F; F:\n@%p1 bra G; G:";
    let run_of = |body: &str, shape| run(&module("k", &format!("{HEAD}{body}")), shape, 0);
    let Run { findings: found, parameters, .. } = run_of(body, (2, 48));
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding.check, Check::Initcheck);
    assert_eq!((finding.site.instruction.as_str(), finding.site.thread), ("bra", [0, 0, 0]));
    let load = finding.other.as_ref().unwrap();
    assert_eq!((load.instruction.as_str(), load.thread), ("ld.global.u32", [0, 0, 0]));
    assert_eq!(finding.site.line, load.line + 3);
    assert_eq!(finding.address, Some(Address::Global(parameters[1])));
    let text = finding.to_string();
    let start = format!(
        "initcheck: kernel `k`: {CONDITION}, which another instruction has loaded: `bra` at"
    );
    assert!(text.starts_with(&start), "{text}");

    let places = |space: &str| {
        let body = format!(
            "setp.eq.u32 %p1, %r0, 33; @!%p1 bra E; ld.{space}; setp.eq.u32 %p2, %r10, 0; @%p2 bra E; E:"
        );
        run_of(&body, (1, 64)).findings.iter().filter_map(|its| its.address).collect::<Vec<_>>()
    };
    assert_eq!(places("shared.u32 %r10, [s+20]"), [Address::Shared { block: [0; 3], offset: 20 }]);
    // The first byte of the word that has no value.
    let local = places("local.u32 %r10, [l+4]");
    assert!(
        matches!(local[..], [Address::Local { thread: [33, 0, 0], offset: 4, .. }]),
        "{local:?}"
    );
}

#[test]
fn a_kernel_computes_the_same_with_the_check() {
    let body = "ld.global.u32 %r10, [%d11]; add.u32 %r10, %r10, %r3; st.global.u32 [%d1], %r10;";
    let run = run(&module("k", &format!("{HEAD}{body}")), (2, 64), 0);
    assert_eq!(run.findings, []);
    let written = run.memory.read(run.parameters[0]);
    assert!(written[..128].iter().zip(0..).all(|(word, thread)| *word == thread));
}

/// Returns what the check finds in a body with one thread.
fn found(body: &str) -> Vec<String> {
    let run = run(&module("k", &format!("{HEAD}{body}")), (1, 1), 0);
    run.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_reversal_of_bits_moves_those_without_a_value() {
    let of = |bits: &str| {
        found(&format!(
            "st.global.u8 [%d11+3], %r0; ld.global.u32 %r10, [%d11]; brev.b32 %r10, %r10;
             and.b32 %r10, %r10, {bits}; setp.eq.u32 %p3, %r10, 0; @%p3 bra E; E:"
        ))
    };
    assert_eq!(of("0xff"), [""; 0]);
    let texts = of("0x1ff");
    assert!(texts.len() == 1 && texts[0].contains(CONDITION), "{texts:#?}");
}

#[test]
fn the_address_of_the_target_and_of_the_object_of_a_bulk_copy_must_have_a_value() {
    for (copy, source) in [
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "[%d0], 128"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
            "[%d30, {%r8, %r9}]",
        ),
    ] {
        // `%r22` is zero, and has no value.
        for (sum, target, object) in [
            ("add.u32 %r21, %r5, %r22;", "%r21", "%r20"),
            ("add.u32 %r21, %r20, %r22;", "%r5", "%r21"),
        ] {
            let texts = found(&format!(
                "mov.u32 %r20, bar; mbarrier.init.shared.b64 [bar], 1; fence.proxy.async;
                 mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 128;
                 mov.b64 %d30, map0; cvta.param.u64 %d30, %d30; ld.global.u32 %r22, [%d11]; {sum}
                 {copy} [{target}], {source}, [{object}];
                 L: mbarrier.try_wait.shared.b64 %p3, [bar], %d2; @!%p3 bra L;"
            ));
            assert!(texts.len() == 1 && texts[0].contains(ADDRESS), "{copy} {sum}: {texts:#?}");
        }
    }
}

#[test]
fn a_mapped_address_has_a_value_if_its_operands_have() {
    for (sum, map) in [
        ("add.u32 %r21, %r5, %r22; mov.u32 %r23, 0;", "mapa.shared::cluster.u32 %r10, %r21, %r23;"),
        ("mov.u32 %r21, %r5; mov.u32 %r23, %r22;", "mapa.shared::cluster.u32 %r10, %r21, %r23;"),
        (
            "cvt.u64.u32 %d30, %r22; cvta.shared.u64 %d31, %d30; mov.u32 %r23, 0;",
            "mapa.u64 %d32, %d31, %r23; cvt.u32.u64 %r10, %d32;",
        ),
    ] {
        let texts = found(&format!(
            "ld.global.u32 %r22, [%d11]; {sum} {map} setp.eq.u32 %p3, %r10, 0; @%p3 bra E; E:"
        ));
        assert!(texts.len() == 1 && texts[0].contains(CONDITION), "{sum} {map}: {texts:#?}");
    }
}
