//! Arithmetic of integers.

use crate::form::Forms;
use crate::form::Kind::{self, Bit, S32, S64, Shift, U16, U32, U64};

pub(super) fn add(forms: &mut Forms) {
    for pattern in [
        "{add,sub}.{u16,s16,u32,s32,u64,s64}",
        "{add,sub}.sat.s32",
        "add.{u16x2,s16x2}",
        "mul.{lo,hi}.{u16,s16,u32,s32,u64,s64}",
        "mul24.{lo,hi}.{u32,s32}",
        "{div,rem,min,max}.{u16,s16,u32,s32,u64,s64}",
        "{min,max}.relu.{s32,s16x2}",
        "{min,max}.{u16x2,s16x2}",
    ] {
        forms.same(pattern, 2);
    }
    forms.same("{mad.lo,mad.hi}.{u16,s16,u32,s32,u64,s64}", 3);
    forms.same("{mad.hi,mad24.hi}.sat.s32", 3);
    forms.same("mad24.{lo,hi}.{u32,s32}", 3);
    forms.same("sad.{u16,s16,u32,s32,u64,s64}", 3);
    forms.same("{abs,neg}.{s16,s32,s64}", 1);
    forms.same("brev.{b32,b64}", 1);
    forms.each("mul.wide.{u16,s16,u32,s32}", |name| {
        let narrow = Kind::of(name);
        (vec![narrow; 2], vec![wide(narrow)])
    });
    forms.each("mad.wide.{u16,s16,u32,s32}", |name| {
        let narrow = Kind::of(name);
        (vec![narrow, narrow, wide(narrow)], vec![wide(narrow)])
    });
    forms.each("{popc,clz}.{b32,b64}", |name| (vec![Kind::of(name)], vec![U32]));
    forms.each("bfind{,.shiftamt}.{u32,s32,u64,s64}", |name| (vec![Kind::of(name)], vec![U32]));
    forms.each("bfe.{u32,s32,u64,s64}", |name| {
        (vec![Kind::of(name), Shift, Shift], vec![Kind::of(name)])
    });
    forms.each("bfi.{b32,b64}", |name| {
        (vec![Kind::of(name), Kind::of(name), Shift, Shift], vec![Kind::of(name)])
    });
    forms.typed("fns.b32", &[U32, Shift, S32], &[U32]);
    forms.typed("szext.{clamp,wrap}.{u32,s32}", &[U32, Shift], &[U32]);
    forms.typed("bmsk.{clamp,wrap}.b32", &[Shift, Shift], &[U32]);
    forms.typed("dp4a.{u32,s32}.{u32,s32}", &[U32; 3], &[U32]);
    forms.typed("dp2a.{lo,hi}.{u32,s32}.{u32,s32}", &[U32; 3], &[U32]);
    carries(forms);
    immediates(forms);
}

fn wide(kind: Kind) -> Kind {
    match kind {
        Kind::S16 => S32,
        Kind::S32 => S64,
        U16 => U32,
        _ => U64,
    }
}

/// Adds the instructions with a carry. The first operand becomes the carry, the last result is the carry
/// afterwards.
fn carries(forms: &mut Forms) {
    const WRITE: &str = ".reg .b32 %carry;\nadd.cc.u32 %carry, %a0, 0xffffffff;\n";
    const READ: &str = "\naddc.u32 %d1, 0, 0;";
    for name in crate::form::expand("{add,sub,addc,subc}.cc.{u32,s32,u64,s64}") {
        let kind = Kind::of(&name);
        let code = format!("{WRITE}{name} %d0, %a1, %a2;{READ}");
        forms.code(&name, &code, &[Bit, kind, kind], &[kind, U32]);
    }
    for name in crate::form::expand("{addc,subc}.{u32,s32,u64,s64}") {
        let kind = Kind::of(&name);
        let code = format!("{WRITE}{name} %d0, %a1, %a2;{READ}");
        forms.code(&name, &code, &[Bit, kind, kind], &[kind, U32]);
        // After a subtraction, the flag means a borrow in the manual.
        let code = format!(
            ".reg .{0} %x;\nsub.cc.{0} %x, %a1, %a2;\n{name} %d0, %a0, 5;{READ}",
            &name[5..]
        );
        forms.code(&format!("{name} after sub.cc"), &code, &[kind, kind, kind], &[kind, U32]);
    }
    for name in crate::form::expand("{mad,madc}.{lo,hi}{,.cc}.{u32,s32,u64,s64}") {
        if name.starts_with("mad.") && !name.contains(".cc") {
            continue;
        }
        let kind = Kind::of(&name);
        let code = format!("{WRITE}{name} %d0, %a1, %a2, %a3;{READ}");
        forms.code(&name, &code, &[Bit, kind, kind, kind], &[kind, U32]);
    }
}

/// Adds constants of each notation as operands.
fn immediates(forms: &mut Forms) {
    for (name, code) in [
        ("add.s32 decimal", "add.s32 %d0, %a0, -5;"),
        ("add.u32 octal", "add.u32 %d0, %a0, 0755;"),
        ("xor.b32 hexadecimal", "xor.b32 %d0, %a0, 0xF0f0aA55U;"),
        ("and.b32 binary", "and.b32 %d0, %a0, 0b1010101;"),
        ("add.u32 expression", "add.u32 %d0, %a0, (3 + 4) * 5 - (1 << 3) / 3 % 5;"),
        ("add.s32 shifted", "add.s32 %d0, %a0, -7 >> 1;"),
        ("add.u32 comparison", "add.u32 %d0, %a0, 5 > 3 ? 10 : 20;"),
        ("or.b32 logic", "or.b32 %d0, %a0, ~0xffff & 0xff00ff | 3 ^ 1;"),
        ("sub.u32 constant first", "sub.u32 %d0, 100, %a0;"),
        ("add.u32 WARP_SZ", "add.u32 %d0, %a0, WARP_SZ;"),
    ] {
        forms.code(name, code, &[U32], &[U32]);
    }
    for (name, code) in [
        ("add.s64 decimal", "add.s64 %d0, %a0, -9223372036854775808;"),
        ("xor.b64 hexadecimal", "xor.b64 %d0, %a0, 0x123456789abcdef0;"),
        ("and.b64 negative", "and.b64 %d0, %a0, -16;"),
        ("mul.lo.u64 constant", "mul.lo.u64 %d0, %a0, 18446744073709551615U;"),
    ] {
        forms.code(name, code, &[U64], &[U64]);
    }
    forms.code("add.s16 decimal", "add.s16 %d0, %a0, -3;", &[U16], &[U16]);
    forms.code("shr.s64 constant", "shr.s64 %d0, %a0, 33;", &[U64], &[U64]);
    forms.code("mul.wide.s32 constant", "mul.wide.s32 %d0, %a0, -12;", &[U32], &[U64]);
}
