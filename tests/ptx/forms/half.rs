//! Arithmetic of f16 and bf16, single and in pairs.

use crate::form::Bound::{Absolute, Relative};
use crate::form::{Forms, bounded};

pub(super) fn add(forms: &mut Forms) {
    for pattern in [
        "{add,sub,mul}{,.rn}{,.ftz}{,.sat}.{f16,f16x2}",
        "{add,sub,mul}{,.rn}.{bf16,bf16x2}",
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f16,f16x2}",
        "{min,max}{,.NaN}{,.xorsign.abs}.{bf16,bf16x2}",
    ] {
        forms.same(pattern, 2);
    }
    forms.same("fma.rn{,.ftz}{,.sat,.relu}.{f16,f16x2}", 3);
    forms.same("fma.rn{,.relu}.{bf16,bf16x2}", 3);
    forms.same("fma.rn.oob{,.relu}.{f16,f16x2,bf16,bf16x2}", 3);
    forms.same("{abs,neg}{,.ftz}.{f16,f16x2}", 1);
    forms.same("{abs,neg}.{bf16,bf16x2}", 1);
    bounded(forms.same("ex2.approx.{f16,f16x2}", 1), Relative(2f64.powf(-9.9)));
    bounded(forms.same("ex2.approx.ftz.{bf16,bf16x2}", 1), Relative(2f64.powi(-7)));
    bounded(forms.same("tanh.approx.{f16,f16x2}", 1), Absolute(2f64.powf(-10.987)));
    bounded(forms.same("tanh.approx.{bf16,bf16x2}", 1), Absolute(2f64.powi(-8)));
}
