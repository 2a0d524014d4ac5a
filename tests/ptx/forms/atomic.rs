//! Atomic operations and reductions.

use crate::form::Kind::{self, F32, U16, U32, U64};
use crate::form::{Forms, expand};

/// Operations and types.
const OPERATIONS: [&str; 8] = [
    "{and,or,xor,exch}.{b32,b64}",
    "add.{u32,s32,u64}",
    "{inc,dec}.u32",
    "{min,max}.{u32,s32,u64,s64}",
    "add.{f32,f64}",
    "add.noftz.{f16,f16x2,bf16,bf16x2}",
    "cas.{b16,b32,b64}",
    // There is no signed addition of 64 bits.
    "add.s64",
];

pub(super) fn add(forms: &mut Forms) {
    for space in [".global", ".shared", ""] {
        for operation in OPERATIONS.iter().flat_map(|pattern| expand(pattern)) {
            own(forms, space, &operation);
        }
    }
    wide(forms, ".global");
    wide(forms, ".shared");
    orders(forms);
    vectors(forms);
    together(forms);
}

/// Code that makes `%s` the address of the thread's cell: its first result or a part of shared memory.
fn cell(space: &str) -> String {
    match space {
        ".shared" => ".shared .align 16 .b8 cells[1024];\n.reg .b64 %s, %x;\nmov.u64 %s, cells;\n\
                      mul.wide.u32 %x, %t, 32;\nadd.u64 %s, %s, %x;\n"
            .to_owned(),
        _ => ".reg .b64 %s;\nmov.b64 %s, %out;\n".to_owned(),
    }
}

/// Adds an atomic operation and a reduction on a cell for each thread: results are the old value and the
/// new.
fn own(forms: &mut Forms, space: &str, operation: &str) {
    let kind = Kind::of(operation);
    let register = kind.register();
    let cell = cell(space);
    let swap = operation.starts_with("cas");
    let operands = vec![kind; if swap { 3 } else { 2 }];
    let list = if swap { "%a1, %a2" } else { "%a1" };
    let before = format!("{cell}st{space}.{register} [%s], %a0;\n");
    let after = format!("ld{space}.{register} %d0, [%s];");
    let code = format!("{before}atom{space}.{operation} %d1, [%s], {list};\n{after}");
    forms.code(&format!("atom{space}.{operation}"), &code, &operands, &[kind; 2]);
    if !swap && !operation.starts_with("exch") {
        let code = format!("{before}red{space}.{operation} [%s], {list};\n{after}");
        forms.code(&format!("red{space}.{operation}"), &code, &operands, &[kind]);
    }
}

/// Adds the operations on 128 bits.
fn wide(forms: &mut Forms, space: &str) {
    let before =
        format!("{}.reg .b128 %b, %c, %d;\nst{space}.v2.b64 [%s], {{%a0, %a1}};\n", cell(space));
    let after = format!("mov.b128 {{%d2, %d3}}, %d;\nld{space}.v2.b64 {{%d0, %d1}}, [%s];");
    let code =
        format!("{before}mov.b128 %b, {{%a2, %a3}};\natom{space}.exch.b128 %d, [%s], %b;\n{after}");
    forms.code(&format!("atom{space}.exch.b128"), &code, &[U64; 4], &[U64; 4]);
    let code = format!(
        "{before}mov.b128 %b, {{%a2, %a3}};\nmov.b128 %c, {{%a3, %a2}};\n\
         atom{space}.cas.b128 %d, [%s], %b, %c;\n{after}"
    );
    forms.code(&format!("atom{space}.cas.b128"), &code, &[U64; 4], &[U64; 4]);
}

fn orders(forms: &mut Forms) {
    for order in expand("{.relaxed,.acquire,.release,.acq_rel}{.cta,.cluster,.gpu,.sys}") {
        let code = format!(
            "st.global.b32 [%out], %a0;\natom{order}.global.add.u32 %d1, [%out], %a1;\n\
             ld.global.b32 %d0, [%out];"
        );
        forms.code(&format!("atom{order}.global.add.u32"), &code, &[U32; 2], &[U32; 2]);
    }
    for name in expand("red{.relaxed,.release}{.cta,.gpu,.sys}.global.add.u32") {
        let code =
            format!("st.global.b32 [%out], %a0;\n{name} [%out], %a1;\nld.global.b32 %d0, [%out];");
        forms.code(&name, &code, &[U32; 2], &[U32]);
    }
    // Other orders of the modifiers.
    for name in [
        "atom.global.sys.add.u32",
        "atom.add.release.gpu.u32",
        "atom.add.acq_rel.gpu.s32",
        "atom.cta.global.add.u32",
    ] {
        let code = format!(
            "st.global.b32 [%out], %a0;\n{name} %d1, [%out], %a1;\nld.global.b32 %d0, [%out];"
        );
        forms.code(name, &code, &[U32; 2], &[U32; 2]);
    }
    let code = "st.global.b32 [%out], %a0;\natom.global.sys.cas.b32 %d1, [%out], %a1, %a2;\n\
                ld.global.b32 %d0, [%out];";
    forms.code("atom.global.sys.cas.b32", code, &[U32; 3], &[U32; 2]);
    for space in ["shared::cta", "shared::cluster"] {
        let code = format!(
            "{}st.shared.b32 [%s], %a0;\natom.{space}.add.u32 %d1, [%s], %a1;\nld.shared.b32 %d0, [%s];",
            cell(".shared")
        );
        forms.code(&format!("atom.{space}.add.u32"), &code, &[U32; 2], &[U32; 2]);
    }
    // The result is not used.
    let code = "st.global.b32 [%out], %a0;\natom.global.add.u32 _, [%out], %a1;\nld.global.b32 %d0, [%out];";
    forms.code("atom.global.add.u32 sink", code, &[U32; 2], &[U32]);
}

/// Adds the operations on vectors in global memory.
fn vectors(forms: &mut Forms) {
    for (name, kind, count) in [
        ("add.v2.f32", F32, 2),
        ("add.v4.f32", F32, 4),
        ("add.noftz.v2.f16", U16, 2),
        ("max.noftz.v4.f16", U16, 4),
        ("min.noftz.v2.bf16", U16, 2),
        ("add.noftz.v2.f16x2", Kind::F16x2, 2),
        ("max.noftz.v4.bf16x2", Kind::Bf16x2, 4),
        ("min.noftz.v2.f16x2", Kind::F16x2, 2),
    ] {
        let (operation, rest) = name.split_once(".v").unwrap_or_default();
        let element = name.rsplit('.').next().unwrap_or_default();
        let vector = &rest[..1];
        let (base, noftz) = match operation.strip_suffix(".noftz") {
            Some(base) => (base, ".noftz"),
            None => (operation, ""),
        };
        let register = kind.register();
        let bytes = kind.bytes();
        let kind =
            if element.contains("bf16") && !element.contains("x2") { Kind::Bf16 } else { kind };
        let kind = if element == "f16" { Kind::F16 } else { kind };
        let mut code = String::new();
        for index in 0..count {
            code += &format!("st.global.{register} [%out+{}], %a{index};\n", index * bytes);
        }
        let list = |letter: &str, from: usize| {
            let names: Vec<_> = (from..from + count).map(|i| format!("%{letter}{i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let (old, operand) = (list("d", count), list("a", count));
        code +=
            &format!("atom.global.v{vector}.{element}.{base}{noftz} {old}, [%out], {operand};\n");
        for index in 0..count {
            code += &format!("ld.global.{register} %d{index}, [%out+{}];\n", index * bytes);
        }
        let form = format!("atom.global.v{vector}.{element}.{base}{noftz}");
        forms.code(&form, code.trim_end(), &vec![kind; 2 * count], &vec![kind; 2 * count]);
    }
}

/// Adds operations of all lanes of a warp on one cell, with a result that does not depend on their order.
fn together(forms: &mut Forms) {
    for space in ["global", "shared"] {
        for operation in expand("{and,or,xor}.{b32,b64}")
            .into_iter()
            .chain(expand("add.{u32,u64}"))
            .chain(expand("{min,max}.{u32,s32,u64,s64}"))
        {
            let kind = Kind::of(&operation);
            let register = kind.register();
            let address = match space {
                "shared" => ".shared .align 8 .b64 cells;\nmov.u64 %s, cells;\n".to_owned(),
                // The first result of the warp's first lane.
                _ => "mul.wide.u32 %x, %t, 8;\nsub.u64 %s, %out, %x;\n".to_owned(),
            };
            let code = format!(
                ".reg .b64 %s, %x;\n.reg .pred %p;\n{address}setp.eq.u32 %p, %t, 0;\n\
                 @%p st.{space}.{register} [%s], %a0;\nbar.warp.sync 0xffffffff;\n\
                 @!%p red.{space}.{operation} [%s], %a0;\nbar.warp.sync 0xffffffff;\n\
                 ld.{space}.{register} %d0, [%s];\nbar.warp.sync 0xffffffff;"
            );
            forms.code(&format!("red.{space}.{operation} of a warp"), &code, &[kind], &[kind]);
        }
    }
    // Each old value occurs once, so that their sum is known.
    for (name, operand) in [("add.u32", "1"), ("inc.u32", "100"), ("dec.u32", "100")] {
        let code = format!(
            ".shared .align 4 .b32 cell;\n.shared .align 4 .b32 sum;\n.reg .b32 %x;\n.reg .pred %p;\n\
             setp.eq.u32 %p, %t, 0;\n@%p st.shared.b32 [cell], 50;\n@%p st.shared.b32 [sum], 0;\n\
             bar.warp.sync -1;\natom.shared.{name} %x, [cell], {operand};\n\
             red.shared.add.u32 [sum], %x;\nbar.warp.sync -1;\nld.shared.b32 %d0, [sum];\n\
             ld.shared.b32 %d1, [cell];"
        );
        forms.code(&format!("atom.shared.{name} of a warp"), &code, &[], &[U32; 2]);
    }
}
