//! Video instructions: parts of registers, saturation and a second operation.

use crate::form::Kind::{self, U32};
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    scalar(forms);
    for name in expand(
        "{vadd2,vsub2,vavrg2,vabsdiff2,vmin2,vmax2}{.u32,.s32}{.u32.s32,.s32.s32}{,.sat,.add}",
    )
    .into_iter()
    .chain(expand(
        "{vadd4,vsub4,vavrg4,vabsdiff4,vmin4,vmax4}{.u32,.s32}{.u32.s32,.s32.s32}{,.sat,.add}",
    )) {
        simd(forms, &name);
    }
    for name in expand("{vset2,vset4}{.u32.u32,.s32.s32,.u32.s32}.{eq,ne,lt,le,gt,ge}{,.add}") {
        simd(forms, &name);
    }
    // Selected parts and masks.
    for (name, code) in [
        ("vadd2.s32.s32.s32 parts", "vadd2.s32.s32.s32 %d0.h10, %a0.h13, %a1.h20, %a2;"),
        ("vsub2.u32.u32.u32 mask", "vsub2.u32.u32.u32 %d0.h0, %a0.h10, %a1.h32, %a2;"),
        ("vmax2.s32.s32.s32 mask", "vmax2.s32.s32.s32 %d0.h1, %a0.h33, %a1.h01, %a2;"),
        ("vadd4.u32.u32.u32 parts", "vadd4.u32.u32.u32 %d0.b3210, %a0.b7654, %a1.b0123, %a2;"),
        ("vabsdiff4.s32.s32.s32 mask", "vabsdiff4.s32.s32.s32 %d0.b20, %a0.b3210, %a1.b7531, %a2;"),
        ("vmin4.u32.u32.u32 mask", "vmin4.u32.u32.u32 %d0.b3, %a0, %a1, %a2;"),
    ] {
        forms.code(name, code, &[U32; 3], &[U32]);
    }
}

fn simd(forms: &mut Forms, name: &str) {
    forms.code(name, &format!("{name} %d0, %a0, %a1, %a2;"), &[U32; 3], &[U32]);
}

fn scalar(forms: &mut Forms) {
    const TYPES: &str = "{u32,s32}.{u32,s32}.{u32,s32}";
    let two = [U32; 2];
    let three = [U32; 3];
    for name in expand(&format!("{{vadd,vsub,vabsdiff,vmin,vmax}}.{TYPES}{{,.sat}}")) {
        forms.code(&name, &format!("{name} %d0, %a0, %a1;"), &two, &[U32]);
    }
    for name in expand("{vshl,vshr}.{u32,s32}.{u32,s32}.u32{,.sat}{.clamp,.wrap}") {
        forms.code(&name, &format!("{name} %d0, %a0, %a1;"), &[U32, Kind::Shift], &[U32]);
    }
    for name in expand("vset.{u32,s32}.{u32,s32}.{eq,ne,lt,le,gt,ge}") {
        forms.code(&name, &format!("{name} %d0, %a0, %a1;"), &two, &[U32]);
    }
    for name in expand("vmad.{u32,s32}.{u32,s32}.{u32,s32}{,.sat}{,.shr7,.shr15}") {
        forms.code(&name, &format!("{name} %d0, %a0, %a1, %a2;"), &three, &[U32]);
    }
    for name in expand("vmad.s32.s32.s32{,.sat}{,.shr7,.shr15}") {
        let code = format!("{name} %d0, -%a0, %a1, %a2;");
        forms.code(&format!("{name} -a"), &code, &three, &[U32]);
        let code = format!("{name} %d0, %a0, %a1, -%a2;");
        forms.code(&format!("{name} -c"), &code, &three, &[U32]);
    }
    for name in expand("vmad.{u32.u32.u32,s32.s32.s32}.po{,.shr15}") {
        forms.code(&name, &format!("{name} %d0, %a0, %a1, %a2;"), &three, &[U32]);
    }
    // Parts of the operands, of the result, and the second operation.
    let parts = [("b0", "b3"), ("b1", "h0"), ("b2", "b1"), ("h1", "h0"), ("h0", "b2")];
    for (index, name) in expand(
        "{vadd,vsub,vabsdiff,vmin,vmax}.{s32.u32.s32,u32.s32.s32,s32.s32.u32,u32.u32.u32}{,.sat}",
    )
    .iter()
    .enumerate()
    {
        let (a, b) = parts[index % parts.len()];
        let code = format!("{name} %d0, %a0.{a}, %a1.{b};");
        forms.code(&format!("{name} of {a}, {b}"), &code, &two, &[U32]);
        let second = ["add", "min", "max"][index % 3];
        let code = format!("{name}.{second} %d0, %a0.{b}, %a1.{a}, %a2;");
        forms.code(&format!("{name}.{second}"), &code, &three, &[U32]);
        let part = ["b0", "b1", "b2", "b3", "h0", "h1"][index % 6];
        let code = format!("{name} %d0.{part}, %a0.{a}, %a1, %a2;");
        forms.code(&format!("{name} into {part}"), &code, &three, &[U32]);
    }
    for name in expand("{vshl,vshr}.{u32.s32,s32.u32}.u32{.clamp,.wrap}") {
        let code = format!("{name}.add %d0, %a0.h1, %a1.b0, %a2;");
        forms.code(&format!("{name}.add"), &code, &three, &[U32]);
        let code = format!("{name} %d0.h1, %a0.b2, %a1.b0, %a2;");
        forms.code(&format!("{name} into h1"), &code, &three, &[U32]);
    }
    for name in expand("vset.{u32.s32,s32.s32}.{lt,ge}") {
        let code = format!("{name}.max %d0, %a0.b1, %a1.h0, %a2;");
        forms.code(&format!("{name}.max"), &code, &three, &[U32]);
        let code = format!("{name} %d0.b2, %a0.h1, %a1.b0, %a2;");
        forms.code(&format!("{name} into b2"), &code, &three, &[U32]);
    }
    for name in expand("vmad.s32.{u32,s32}.s32{,.sat}") {
        let code = format!("{name} %d0, %a0.b1, %a1.h1, %a2;");
        forms.code(&format!("{name} of parts"), &code, &three, &[U32]);
    }
}
