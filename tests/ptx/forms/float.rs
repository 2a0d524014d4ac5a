//! Arithmetic of f32 and f64.

use crate::form::Bound::{Circular, Either, Relative, Ulp};
use crate::form::Kind::{self, F32, Pred};
use crate::form::{Forms, bounded};

pub(super) fn add(forms: &mut Forms) {
    for pattern in [
        "{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
        "{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64",
        "div.{rn,rz,rm,rp}{,.ftz}.f32",
        "div.{rn,rz,rm,rp}.f64",
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32",
        "{min,max}.f64",
        "copysign.{f32,f64}",
    ] {
        forms.same(pattern, 2);
    }
    // The compiler takes a modifier behind the type.
    forms.typed("add.f32.sat", &[F32; 2], &[F32]);
    forms.same("{fma,mad}.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32", 3);
    forms.same("{fma,mad}.{rn,rz,rm,rp}.f64", 3);
    forms.same("{abs,neg}{.f32,.ftz.f32,.f64}", 1);
    forms.same("{rcp,sqrt}.{rn,rz,rm,rp}{.f32,.ftz.f32,.f64}", 1);
    forms.each("testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}", |name| {
        (vec![Kind::of(name)], vec![Pred])
    });
    approximations(forms);
}

/// Adds the approximations with the bounds of the manual.
fn approximations(forms: &mut Forms) {
    bounded(forms.same("div.{approx,full}{,.ftz}.f32", 2), Ulp(2));
    bounded(forms.same("rcp.approx{,.ftz}.f32", 1), Ulp(1));
    bounded(forms.same("sqrt.approx{,.ftz}.f32", 1), Relative(2f64.powi(-23)));
    bounded(forms.same("rsqrt.approx{,.ftz}.f32", 1), Relative(2f64.powf(-22.9)));
    bounded(forms.same("{sin,cos}.approx{,.ftz}.f32", 1), Circular);
    bounded(forms.same("lg2.approx{,.ftz}.f32", 1), Either(2f64.powi(-22), 2f64.powi(-22)));
    bounded(forms.same("ex2.approx{,.ftz}.f32", 1), Ulp(2));
    bounded(forms.typed("tanh.approx.f32", &[F32], &[F32]), Relative(2f64.powi(-11)));
    // Of the result, only the high word is computed.
    bounded(forms.same("{rcp,rsqrt}.approx.ftz.f64", 1), Relative(2f64.powi(-20)));
    bounded(forms.same("rsqrt.approx.f64", 1), Relative(2f64.powi(-20)));
}
