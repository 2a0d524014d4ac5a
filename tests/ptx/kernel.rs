//! The PTX of forms.

use std::fmt::Write;

use crate::form::{Form, Kind, Shape};

/// Returns the threads of a form with so many rows of operands: warps, unless the form says otherwise.
pub(crate) fn shape(form: &Form, rows: usize) -> Shape {
    let warps = Shape { grid: [(rows / 32) as u32, 1, 1], block: [32, 1, 1] };
    form.shape.unwrap_or(warps)
}

/// Returns the number of threads of a form: one for each row of operands.
pub(crate) fn threads(form: &Form, input: &[u8]) -> usize {
    match form.operands.len() {
        0 => form.shape.map_or(32, |shape| shape.threads()),
        count => input.len() / (8 * count),
    }
}

/// Returns a module with a kernel for each form. Kernels are named `form_NUMBER`.
pub(crate) fn module<'a>(forms: impl IntoIterator<Item = (usize, &'a Form)>) -> String {
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_owned();
    for (number, form) in forms {
        write_kernel(&mut text, number, form).expect("writing to a string");
    }
    text
}

/// Returns the name of a kernel.
pub(crate) fn name(number: usize) -> String {
    format!("form_{number}")
}

/// The parameters of a kernel whose code reads `more`, after the two addresses.
const MORE: &str = ", .param .u8 more0, .param .s16 more1, .param .f32 more2, .param .f64 more3, \
                    .param .align 16 .b8 more4[20]";

/// The values of these parameters, as they are in memory after the two addresses.
pub(crate) const MORE_VALUES: [&[u8]; 5] = [
    &[0xf1],
    &[0x34, 0x82],
    &[0x45, 0x23, 0xc1, 0xff],
    &[1, 2, 3, 4, 5, 6, 7, 0x88],
    &[9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99, 108, 117, 126, 135, 144, 153, 162, 171, 180],
];

/// Returns whether a kernel has the parameters `more0` to `more4`.
pub(crate) fn takes_more(form: &Form) -> bool {
    form.code.contains("more")
}

fn write_kernel(text: &mut String, number: usize, form: &Form) -> std::fmt::Result {
    let own = |code: &str| code.replace('#', &number.to_string());
    if !form.declarations.is_empty() {
        writeln!(text, "{}", own(&form.declarations))?;
    }
    let extra = match form.object {
        Some(_) => ", .param .u64 object",
        None if form.tensor.is_some() => ", .param .align 64 .b8 map[128]",
        None if takes_more(form) => MORE,
        None => "",
    };
    writeln!(text, ".visible .entry {}(.param .u64 in, .param .u64 out{extra})", name(number))?;
    if !form.directives.is_empty() {
        writeln!(text, "{}", form.directives)?;
    }
    text.push_str("{\n  .reg .b32 %t, %i, %n;\n  .reg .b64 %in, %out, %o;\n");
    for (index, kind) in form.operands.iter().enumerate() {
        writeln!(text, "  .reg .{} %a{index};", kind.register())?;
        if *kind == Kind::Pred {
            writeln!(text, "  .reg .b32 %w{index};")?;
        }
    }
    for (index, kind) in form.results.iter().enumerate() {
        writeln!(text, "  .reg .{} %d{index};", kind.register())?;
        if *kind == Kind::Pred {
            writeln!(text, "  .reg .b32 %v{index};")?;
        }
    }
    if form.object.is_some() {
        text.push_str("  .reg .b64 %object;\n  ld.param.u64 %object, [object];\n");
    }
    if form.tensor.is_some() {
        text.push_str("  .reg .b64 %map;\n  mov.b64 %map, map;\n  cvta.param.u64 %map, %map;\n");
    }
    text.push_str("  ld.param.u64 %in, [in];\n  ld.param.u64 %out, [out];\n");
    text.push_str("  mov.u32 %t, %tid.x;\n");
    if form.shape.is_some() {
        // The index in a block and in a grid of three dimensions.
        text.push_str("  mov.u32 %i, %tid.z;\n  mov.u32 %n, %ntid.y;\n");
        text.push_str("  mov.u32 %t, %tid.y;\n  mad.lo.u32 %t, %i, %n, %t;\n");
        text.push_str(
            "  mov.u32 %i, %tid.x;\n  mov.u32 %n, %ntid.x;\n  mad.lo.u32 %t, %t, %n, %i;\n",
        );
        text.push_str(
            "  mov.u32 %i, %ctaid.z;\n  mov.u32 %n, %nctaid.y;\n  mul.lo.u32 %i, %i, %n;\n",
        );
        text.push_str("  mov.u32 %n, %ctaid.y;\n  add.u32 %i, %i, %n;\n");
        text.push_str("  mov.u32 %n, %nctaid.x;\n  mul.lo.u32 %i, %i, %n;\n");
        text.push_str("  mov.u32 %n, %ctaid.x;\n  add.u32 %i, %i, %n;\n");
        for axis in ["x", "y", "z"] {
            writeln!(text, "  mov.u32 %n, %ntid.{axis};\n  mul.lo.u32 %i, %i, %n;")?;
        }
        text.push_str("  add.u32 %i, %i, %t;\n");
    } else {
        text.push_str("  mov.u32 %i, %ctaid.x;\n  mov.u32 %n, %ntid.x;\n");
        text.push_str("  mad.lo.u32 %i, %i, %n, %t;\n");
    }
    writeln!(text, "  mul.wide.u32 %o, %i, {};", 8 * form.operands.len())?;
    text.push_str("  add.u64 %in, %in, %o;\n");
    writeln!(text, "  mul.wide.u32 %o, %i, {};", 8 * form.results.len())?;
    text.push_str("  add.u64 %out, %out, %o;\n");
    for (index, kind) in form.operands.iter().enumerate() {
        let place = 8 * index;
        match kind {
            Kind::Pred => {
                writeln!(text, "  ld.global.b32 %w{index}, [%in+{place}];")?;
                writeln!(text, "  setp.ne.u32 %a{index}, %w{index}, 0;")?;
            }
            _ => {
                let register = kind.register();
                writeln!(text, "  ld.global.{register} %a{index}, [%in+{place}];")?;
            }
        }
    }
    writeln!(text, "  {{\n    {}\n  }}", own(&form.code).replace('\n', "\n    "))?;
    for (index, kind) in form.results.iter().enumerate() {
        let place = 8 * index;
        match kind {
            Kind::Pred => {
                writeln!(text, "  selp.u32 %v{index}, 1, 0, %d{index};")?;
                writeln!(text, "  st.global.b32 [%out+{place}], %v{index};")?;
            }
            _ => {
                let register = kind.register();
                writeln!(text, "  st.global.{register} [%out+{place}], %d{index};")?;
            }
        }
    }
    text.push_str("  ret;\n}\n");
    Ok(())
}
