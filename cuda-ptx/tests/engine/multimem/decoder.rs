//! The forms of `multimem` that NVIDIA's assembler accepts for `sm_90`, and those that it rejects.

use super::text;
use cuda_ptx::{Program, syntax};

/// What the decoder does with an instruction.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Accepted,
    Refused,
    Rejected(String),
}

fn decoded(code: &str) -> Decoded {
    let text = text(code);
    let module = syntax::parse(&text).unwrap_or_else(|error| panic!("{code}: {error}"));
    match Program::link(&[module]) {
        Err(error) => Decoded::Rejected(error.to_string()),
        Ok(its) if its.kernels()[0].unsupported().next().is_some() => Decoded::Refused,
        Ok(_) => Decoded::Accepted,
    }
}

/// The types of each operation that `ptxas` accepts for `sm_90`.
const TYPES: &[(&str, &str)] = &[
    ("ld_reduce.add", "u32 s32 u64 f16x2 bf16x2 f32 f64 v2.f32 v4.f32"),
    ("ld_reduce.min", "u32 s32 u64 s64 f16x2 bf16x2"),
    ("ld_reduce.max", "u32 s32 u64 s64 f16x2 bf16x2"),
    ("ld_reduce.and", "b32 b64"),
    ("ld_reduce.or", "b32 b64"),
    ("ld_reduce.xor", "b32 b64"),
    ("ld_reduce.add.acc::f32", "f16x2 bf16x2"),
    ("st", "b32 b64 u32 s32 u64 s64 f16x2 bf16x2 f32 f64 v2.f32 v4.f32"),
    ("red.add", "u32 s32 u64 f16x2 bf16x2 f32 f64 v2.f32 v4.f32"),
    ("red.min", "u32 s32 u64 s64"),
    ("red.max", "u32 s32 u64 s64"),
    ("red.and", "b32 b64"),
    ("red.or", "b32 b64"),
    ("red.xor", "b32 b64"),
];

/// The vectors of halves that each of these has, except for the bitwise ones.
const VECTORS: &str =
    "v2.f16 v4.f16 v8.f16 v2.f16x2 v4.f16x2 v2.bf16 v4.bf16 v8.bf16 v2.bf16x2 v4.bf16x2";

#[test]
fn the_decoder_accepts_the_types_that_the_assembler_accepts() {
    let all = ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"];
    let all = all.into_iter().chain(["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"]);
    let all: Vec<&str> = all.collect();
    let mut accepted = 0;
    for kind in ["ld_reduce", "st", "red"] {
        for function in ["", ".add", ".min", ".max", ".and", ".or", ".xor", ".inc", ".dec", ".exch"]
        {
            for precision in ["", ".acc::f32"].iter().take(if kind == "ld_reduce" { 2 } else { 1 })
            {
                let name = format!("{kind}{function}{precision}");
                for (vector, count) in [("", 1), ("v2.", 2), ("v4.", 4), ("v8.", 8)] {
                    for ty in &all {
                        let register = match *ty {
                            "f32" => "%f",
                            "f64" => "%g",
                            _ if ty.ends_with("64") => "%d",
                            _ if ty.ends_with("16") => "%h",
                            _ => "%r",
                        };
                        let list: Vec<_> =
                            (1..=count).map(|at| format!("{register}{at}")).collect();
                        let list = match vector {
                            "" => list.concat(),
                            _ => format!("{{{}}}", list.join(", ")),
                        };
                        let form = format!("{vector}{ty}");
                        let operands = match kind {
                            "ld_reduce" => format!("{list}, [%d0]"),
                            _ => format!("[%d0], {list}"),
                        };
                        let its = TYPES.iter().find(|its| its.0 == name);
                        let has = |types: &str| types.split(' ').any(|its| its == form);
                        let is_bitwise = [".and", ".or", ".xor"].contains(&function);
                        let expected =
                            its.is_some_and(|its| has(its.1) || !is_bitwise && has(VECTORS));
                        let code = format!("multimem.{name}.{form} {operands};");
                        let found = decoded(&code);
                        assert_eq!(found == Decoded::Accepted, expected, "{code} {found:?}");
                        assert_ne!(found, Decoded::Refused, "{code}");
                        accepted += u32::from(expected);
                    }
                }
            }
        }
    }
    assert_eq!(accepted, 144);
}

#[test]
fn the_decoder_rejects_the_modifiers_and_operands_that_the_assembler_rejects() {
    let load = |modifiers: &str| format!("multimem.ld_reduce{modifiers}.add.u32 %r5, [%d0];");
    let store = |modifiers: &str| format!("multimem.st{modifiers}.u32 [%d0], %r5;");
    let reduce = |modifiers: &str| format!("multimem.red{modifiers}.add.u32 [%d0], %r5;");
    for semantics in
        ["", ".weak", ".relaxed", ".acquire", ".release", ".acq_rel", ".volatile", ".sc"]
    {
        for scope in ["", ".cta", ".cluster", ".gpu", ".sys"] {
            for space in ["", ".global"] {
                let modifiers = format!("{semantics}{scope}{space}");
                let is_pair = match semantics {
                    "" | ".weak" => scope.is_empty(),
                    _ => !scope.is_empty(),
                };
                for (code, others) in [
                    (load(&modifiers), ["", ".weak", ".relaxed", ".acquire"]),
                    (store(&modifiers), ["", ".weak", ".relaxed", ".release"]),
                    (reduce(&modifiers), ["", "", ".relaxed", ".release"]),
                ] {
                    let is_right = is_pair && others.contains(&semantics);
                    let found = decoded(&code);
                    assert_eq!(found == Decoded::Accepted, is_right, "{code} {found:?}");
                    assert_ne!(found, Decoded::Refused, "{code}");
                }
            }
        }
    }
    for (code, why) in [
        ("multimem.add.u32 %r5, [%d0];", "`.ld_reduce`, `.st` or `.red`"),
        ("multimem.ld_reduce.u32 %r5, [%d0];", "no such operation"),
        ("multimem.st.add.u32 [%d0], %r5;", "no such operation"),
        ("multimem.ld_reduce.relaxed.gpu.shared.add.u32 %r5, [%d0];", "modifier `.shared`"),
        ("multimem.ld_reduce.add.ca.u32 %r5, [%d0];", "modifier `.ca`"),
        ("multimem.red.add.noftz.v2.f16 [%d0], {%h1, %h2};", "modifier `.noftz`"),
        ("multimem.st.L2::cache_hint.u32 [%d0], %r5, %d1;", "modifier `.L2::cache_hint`"),
        ("multimem.ld_reduce.add.u32 %r5;", "two operands"),
        ("multimem.ld_reduce.add.u32 %r5, [%d0], %d1;", "two operands"),
        ("multimem.ld_reduce.add.u32 %d5, [%d0];", "64 bits"),
        ("multimem.ld_reduce.add.u32 _, [%d0];", "no register"),
        ("multimem.ld_reduce.add.v2.f32 {_, _}, [%d0];", "no register"),
        ("multimem.ld_reduce.add.v2.f32 {%f1}, [%d0];", "a vector of 2"),
        ("multimem.ld_reduce.add.v2.f32 %f1, [%d0];", "a vector of 2"),
        ("multimem.ld_reduce.add.f16x2 {%h1, %h2}, [%d0];", "a vector of 1"),
        ("multimem.ld_reduce.add.u32 %r5, [64];", "local memory"),
        ("multimem.ld_reduce.add.u32 %r5, [%r6];", "32 bits"),
        ("multimem.ld_reduce.add.u32 %r5, %d0;", "not an address"),
        ("multimem.ld_reduce.add.u32 5, [%d0];", "not a register"),
        ("multimem.st.f32 [%d0], 5;", "this constant"),
        ("multimem.st.u32 [%d0], _;", "no register"),
        ("multimem.st.v2.f32 [%d0], {%f1, _};", "neither"),
    ] {
        match decoded(code) {
            Decoded::Rejected(text) => assert!(text.contains(why), "{code}: {text}"),
            other => panic!("{code}: {other:?}"),
        }
    }
    for accepted in [
        "multimem.ld_reduce.add.f32 {%f1}, [%d0+4];",
        "multimem.st.v2.f32 [%d0], {%f1, 0f3F800000};",
        // A precision has no effect here.
        "multimem.red.add.acc::f16.v2.f16 [%d0], {%h1, %h2};",
    ] {
        assert_eq!(decoded(accepted), Decoded::Accepted, "{accepted}");
    }
    // Later architectures.
    for refused in [
        "multimem.ld_reduce.add.v4.e4m3 {%h1, %h2, %h3, %h4}, [%d0];",
        "multimem.ld_reduce.add.acc::f16.v2.e5m2x4 {%r1, %r2}, [%d0];",
        "multimem.ld_reduce.add.acc::f16.f16x2 %r5, [%d0];",
        "multimem.st.e5m2x4 [%d0], %r5;",
    ] {
        assert_eq!(decoded(refused), Decoded::Refused, "{refused}");
    }
}
