//! Logic, shifts, permutations and moves.

use crate::form::Kind::{self, F32, F64, Pred, Shift, U16, U32, U64};
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    forms.same("{and,or,xor}.{pred,b16,b32,b64}", 2);
    forms.same("not.{pred,b16,b32,b64}", 1);
    forms.same("cnot.{b16,b32,b64}", 1);
    forms.each("{shl.b,shr.b,shr.u,shr.s}{16,32,64}", |name| {
        (vec![Kind::of(name), Shift], vec![Kind::of(name)])
    });
    forms.typed("shf.{l,r}.{wrap,clamp}.b32", &[U32, U32, Shift], &[U32]);
    forms.typed("prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", &[U32; 3], &[U32]);
    for table in [0x00, 0x01, 0x1b, 0x3c, 0x6a, 0x80, 0x96, 0xca, 0xd8, 0xe8, 0xf8, 0xfe, 0xff] {
        let code = format!("lop3.b32 %d0, %a0, %a1, %a2, {table};");
        forms.code(&format!("lop3.b32 {table:#04x}"), &code, &[U32; 3], &[U32]);
    }
    for name in ["lop3.or.b32", "lop3.and.b32"] {
        let code = format!("{name} %d0|%d1, %a0, %a1, %a2, 0x80, %a3;");
        forms.code(name, &code, &[U32, U32, U32, Pred], &[U32, Pred]);
    }
    predicates(forms);
    moves(forms);
}

/// Adds guards, negated operands and constants of predicates.
fn predicates(forms: &mut Forms) {
    for (name, code) in [
        ("guard", "mov.pred %d0, %a0;\n@%a1 xor.pred %d0, %d0, %a1;"),
        ("negated guard", "mov.pred %d0, %a0;\n@!%a1 not.pred %d0, %d0;"),
        ("mov.pred", "mov.pred %d0, %a0;"),
        ("and.pred negated", "not.pred %d0, %a1;\nand.pred %d0, %a0, %d0;"),
    ] {
        forms.code(name, code, &[Pred, Pred], &[Pred]);
    }
    let guarded = "mov.b32 %d0, %a0;\n@%a1 add.u32 %d0, %d0, 7;\n@!%a1 mul.lo.u32 %d0, %d0, 3;";
    forms.code("guards of both values", guarded, &[U32, Pred], &[U32]);
}

fn moves(forms: &mut Forms) {
    forms.same("mov.{b16,u16,s16,b32,u32,s32,b64,u64,s64,f32,f64}", 1);
    for (name, code, operands, results) in [
        ("mov.b32 pack", "mov.b32 %d0, {%a0, %a1};", vec![U16; 2], vec![U32]),
        ("mov.b32 unpack", "mov.b32 {%d0, %d1}, %a0;", vec![U32], vec![U16; 2]),
        ("mov.b64 pack", "mov.b64 %d0, {%a0, %a1};", vec![U32; 2], vec![U64]),
        ("mov.b64 unpack", "mov.b64 {%d0, %d1}, %a0;", vec![U64], vec![U32; 2]),
        ("mov.b64 pack 4", "mov.b64 %d0, {%a0, %a1, %a2, %a3};", vec![U16; 4], vec![U64]),
        ("mov.b64 unpack 4", "mov.b64 {%d0, %d1, %d2, %d3}, %a0;", vec![U64], vec![U16; 4]),
        ("mov.b64 sink", "mov.b64 {_, %d0}, %a0;", vec![U64], vec![U32]),
        (
            "mov.b128",
            ".reg .b128 %x;\nmov.b128 %x, {%a0, %a1};\nmov.b128 {%d1, %d0}, %x;",
            vec![U64; 2],
            vec![U64; 2],
        ),
    ] {
        forms.code(name, code, &operands, &results);
    }
    for (name, value) in [
        ("0f", "0fffc12345"),
        ("0d", "0d3ff0000010000001"),
        ("decimal", "-1.5"),
        ("exponent", "1.25e-3"),
        ("0F", "0F40400000"),
    ] {
        forms.code(&format!("mov.f32 {name}"), &format!("mov.f32 %d0, {value};"), &[], &[F32]);
        let add = format!("add.rn.f32 %d0, %a0, {value};");
        forms.code(&format!("add.rn.f32 {name}"), &add, &[F32], &[F32]);
    }
    for (name, value) in [
        ("0d", "0dfff8123456789abc"),
        ("decimal", "0.1"),
        ("exponent", "1e300"),
        ("0f", "0f3f800001"),
    ] {
        forms.code(&format!("mov.f64 {name}"), &format!("mov.f64 %d0, {value};"), &[], &[F64]);
        let add = format!("add.rn.f64 %d0, %a0, {value};");
        forms.code(&format!("add.rn.f64 {name}"), &add, &[F64], &[F64]);
    }
    forms.code("mov.b32 of 33 bits", "mov.b32 %d0, 0x123456789;", &[], &[U32]);
    forms.code("mov.b32 of -33 bits", "mov.b32 %d0, -0x123456789;", &[], &[U32]);
    for name in expand("selp.{b16,u16,s16,b32,u32,s32,b64,u64,s64,f32,f64}") {
        let kind = Kind::of(&name);
        let code = format!("{name} %d0, %a0, %a1, %a2;");
        forms.code(&name, &code, &[kind, kind, Pred], &[kind]);
    }
    for name in expand("slct.{b16,u16,s16,b32,u32,s32,b64,u64,s64,f32,f64}{.s32,.f32,.ftz.f32}") {
        let kind = Kind::of(name.split('.').nth(1).unwrap_or_default());
        let code = format!("{} %d0, %a0, %a1, %a2;", ftz_second(&name));
        forms.code(&name, &code, &[kind, kind, Kind::of(&name)], &[kind]);
    }
}

/// Moves `.ftz` of `slct` to its place behind the opcode.
fn ftz_second(name: &str) -> String {
    match name.contains(".ftz") {
        true => name.replace(".ftz", "").replace("slct", "slct.ftz"),
        false => name.to_owned(),
    }
}
