//! Conversions.

use crate::form::Kind::{self, Bf16x2, F16x2, F32, Fp8x2, S32, U16, U32};
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    integers(forms);
    floats(forms);
    pairs(forms);
    packs(forms);
}

/// Returns the register of a type: integers of 8 bits are in one of 16 bits.
fn register(name: &str) -> Kind {
    match Kind::of(name) {
        Kind::U8 => U16,
        Kind::S8 => Kind::S16,
        kind => kind,
    }
}

/// Returns the kinds of the second last and of the last type of a name.
fn kinds(name: &str) -> (Vec<Kind>, Vec<Kind>) {
    let (before, last) = name.rsplit_once('.').unwrap_or_default();
    (vec![register(last)], vec![register(before)])
}

fn integers(forms: &mut Forms) {
    forms.each("cvt{,.sat}.{u8,s8,u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64}", kinds);
    forms.each("cvt.{rn,rz,rm,rp}.{f16,f32,f64}.{u8,s8,u16,s16,u32,s32,u64,s64}", kinds);
    forms.each("cvt.{rn,rz,rm,rp}.bf16.{u16,s16,u32,s32,u64,s64}", kinds);
    forms.each("cvt.rn.bf16.{u8,s8}", kinds);
    forms.each("cvt.rn.sat.{f16,f32,f64}.{u8,s32,u64}", kinds);
    forms.each("cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32,u64,s64}{.f16,.f32,.f64}", kinds);
    forms.each("cvt.{rni,rzi,rmi,rpi}.ftz.{u8,s8,u16,s16,u32,s32,u64,s64}.f32", kinds);
    forms.each("cvt.{rni,rzi,rmi,rpi}.{u16,s16,u32,s32,u64,s64}.bf16", kinds);
    forms.each("cvt.rni.{u8,s8}.bf16", kinds);
    forms.each("cvt.rzi.sat.{u8,s8,u16,s16,u32,s32,u64,s64}.{f16,f32,f64}", kinds);
    // Wider registers hold the sign or zeros above the result, and anything above the operand.
    for name in expand("cvt.{u8,s8,u16,s16}.{u32,s32}") {
        let code = format!("{name} %d0, %a0;");
        forms.code(&format!("{name} to 32 bits"), &code, &[U32], &[U32]);
    }
    for name in expand("cvt.{u32,s32}.{u8,s8,u16,s16}") {
        let code = format!("{name} %d0, %a0;");
        forms.code(&format!("{name} from 32 bits"), &code, &[U32], &[U32]);
    }
    for name in expand("cvt.rn.f32.{u8,s8,u16,s16}") {
        let code = format!("{name} %d0, %a0;");
        forms.code(&format!("{name} from 32 bits"), &code, &[U32], &[F32]);
    }
    for name in expand("cvt.rzi.{u8,s8,u16,s16}.f32") {
        let code = format!("{name} %d0, %a0;");
        forms.code(&format!("{name} to 32 bits"), &code, &[F32], &[U32]);
    }
}

fn floats(forms: &mut Forms) {
    for pattern in [
        "cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32",
        "cvt.{rni,rzi,rmi,rpi}{,.sat}.f64.f64",
        "cvt.{rni,rzi,rmi,rpi}{,.ftz,.sat}.f16.f16",
        "cvt.{rni,rzi,rmi,rpi}.bf16.bf16",
        "cvt{,.ftz}{,.sat}.f32.f32",
        "cvt{,.sat}.f64.f64",
        "cvt{,.sat}.f16.f16",
        "cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64",
        "cvt{,.ftz}{,.sat}.f64.f32",
        "cvt{,.ftz}{,.sat}.f32.f16",
        "cvt{,.sat}.f64.f16",
        "cvt{,.sat}.{f32,f64}.bf16",
        "cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f16.f32",
        "cvt.{rn,rz,rm,rp}{,.sat}.f16.f64",
        "cvt.{rn,rz}.relu.f16.f32",
        "cvt.{rn,rz}{,.relu}.satfinite.f16.f32",
        "cvt.{rn,rz}{,.relu}{,.satfinite}.bf16.f32",
        "cvt.{rm,rp}.bf16.f32",
        "cvt.{rn,rz,rm,rp}.bf16.f64",
        "cvt.{rn,rz,rm,rp}.bf16.f16",
        "cvt.{rn,rz,rm,rp}{,.sat}.f16.bf16",
    ] {
        forms.each(pattern, kinds);
    }
    forms.typed("cvt.rna{,.satfinite}.tf32.f32", &[F32], &[U32]);
    forms.typed("cvt.{rn,rz}{,.relu}.tf32.f32", &[F32], &[U32]);
    forms.typed("cvt.rn.satfinite.tf32.f32", &[F32], &[U32]);
}

/// Adds the conversions of two values at once.
fn pairs(forms: &mut Forms) {
    forms.typed("cvt.{rn,rz}{,.relu}{,.satfinite}.f16x2.f32", &[F32; 2], &[F16x2]);
    forms.typed("cvt.{rn,rz}{,.relu}{,.satfinite}.bf16x2.f32", &[F32; 2], &[Bf16x2]);
    forms.typed("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32", &[F32; 2], &[U16]);
    forms.typed("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2", &[F16x2], &[U16]);
    forms.typed("cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}", &[Fp8x2], &[F16x2]);
}

fn packs(forms: &mut Forms) {
    forms.typed("cvt.pack.sat.{u16,s16}.s32", &[S32; 2], &[U32]);
    forms.typed("cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32", &[S32, S32, U32], &[U32]);
}
