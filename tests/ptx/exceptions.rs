//! Forms whose recorded results the engine does not give.

/// Returns whether the results of a form are different each time.
pub(crate) fn is_unpredictable(name: &str) -> bool {
    // The number of a warp on its SM depends on the warps that ran before.
    name == "%warpid"
}

/// Returns whether the results of a form have no rule that is known. They are not compared.
pub(crate) fn is_unknown(name: &str) -> bool {
    // The filter over the edges of a cube, and the one over several texels along a line.
    name.starts_with("tex.") && name.contains("cube") && name.ends_with("linear clamp seamless")
        || name.starts_with("tex.grad.") && name.ends_with(" anisotropic")
}

/// Returns whether the compiler rejects a form only for some targets or in some modes. The engine accepts it.
pub(crate) fn is_accepted(name: &str) -> bool {
    [
        // Targets before sm_70, and after sm_90.
        "vote.all.pred",
        "vote.ballot.b32",
        "shfl.up.b32",
        "min.f32 of three",
        "cvt.rn.satfinite.tf32.f32",
        // Functions without a stack.
        "call with u8",
        "call with u16",
    ]
    .contains(&name)
}

/// Returns why the engine refuses a form, if it does. GPUs emulate video instructions, and some deviate from the
/// manual without a rule.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    if name == "tex.2d of no texture" {
        return Some("a handle of no texture is a fault");
    }
    if name.ends_with("of 8 bytes") && name.starts_with("cp.async.bulk with") {
        return Some("a size that is not a multiple of 16 is a fault");
    }
    if name.starts_with("cp.async.bulk.tensor") && name.ends_with("to memory outside") {
        return Some("shared memory beyond that of the block is a fault");
    }
    if name.ends_with("cp_fenceproxy copies") {
        return Some("a kernel must not change a tensor map");
    }
    let words: Vec<&str> = name.split(['.', ' ']).collect();
    let has = |word| words.contains(&word);
    let is_clamped = has("sat");
    let [
        opcode @ ("vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vmad"),
        ty,
        ..,
    ] = words[..]
    else {
        return None;
    };
    match opcode {
        "vmad" if has("u32") && !has("parts") && (is_clamped || has("shr7") || has("shr15")) => {
            Some("a clamped or shifted product of unsigned numbers has no rule")
        }
        "vshl" if is_clamped => Some("a clamped shift to the left has no rule"),
        "vshl" | "vshr" if has("into") => Some("a shift into a part has no rule"),
        _ if has("into") && is_clamped => Some("a clamped part has no rule"),
        _ if ty == "u32" && (has("min") || has("max")) => {
            Some("the second comparison of unsigned numbers has no rule")
        }
        _ => None,
    }
}
