//! Instructions that NVIDIA's compiler rejects, for what the decoder must not accept.

use crate::form::Forms;
use crate::form::Kind::{F32, F64, Pred, U16, U32, U64};

pub(super) fn add(forms: &mut Forms) {
    for pattern in ["add.{sat.u32,b32,rn.s32,sat.f64}", "mul.{s32,sat.s32}", "div.{f32,f64}"] {
        let kind = if pattern.starts_with("div") { F32 } else { U32 };
        forms.typed(pattern, &[kind, kind], &[kind]);
    }
    for name in ["and.u32", "shl.u32", "min.b32", "setp.eq.u32.s32", "mul.wide.u64", "rem.f32"] {
        forms.typed(name, &[U32, U32], &[U32]);
    }
    for name in
        ["not.u32", "popc.u32", "sqrt.f32", "rcp.f32", "cvt.f32.s32", "cvt.s32.f32", "neg.u32"]
    {
        forms.typed(name, &[U32], &[U32]);
    }
    forms.typed("setp.{lo,hs}.s32", &[U32, U32], &[Pred]);
    forms.typed("setp.{ltu,num}.u32", &[U32, U32], &[Pred]);
    forms.typed("fma.f32", &[F32; 3], &[F32]);
    forms.code("min.f32 of three", "min.f32 %d0, %a0, %a1, %a2;", &[F32; 3], &[F32]);
    forms.typed("cvt.f32.f64", &[F64], &[F32]);
    forms.typed("cvt.rn.f64.f32", &[F32], &[F64]);
    forms.typed("cvt.rn.u32.u64", &[U64], &[U32]);
    // The widths of registers and of types differ.
    for (name, code) in [
        ("add.u32 of 16 bits", "add.u32 %d0, %a0, %a1;"),
        ("st.global.u64 of 16 bits", "st.global.u64 [%out], %a0;\nmov.b32 %d0, 0;"),
        ("mov.b64 of 32 bits", "mov.b64 %d0, %a0;"),
        ("mov.u8", "mov.u8 %d0, %a0;"),
        ("shl.b32 by 16 bits", "shl.b32 %d0, %d0, %a0;"),
        ("undeclared register", "mov.b32 %d0, %nothing;"),
        ("two operands for one", "not.b32 %d0, %d0, %d0;"),
        ("undeclared label", "bra $nowhere;\nmov.b32 %d0, 0;"),
        ("unknown opcode", "frobnicate.b32 %d0, %d0;"),
        ("missing semicolon", "mov.b32 %d0, 0\nmov.b32 %d0, 1;"),
        ("store to param", "st.param.b64 [in], 1;\nmov.b32 %d0, 0;"),
    ] {
        forms.code(name, code, &[U16, U16], &[U32]);
    }
}
