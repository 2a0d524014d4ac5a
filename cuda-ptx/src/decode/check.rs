//! Modifiers that an instruction does not have for its types.

use super::Problem;
use super::words::{bits, float, int, type_of};
use crate::syntax::Type;

/// A rounding of floating-point numbers.
fn is_rounding(word: &&str) -> bool {
    matches!(*word, "rn" | "rz" | "rm" | "rp" | "rna" | "rs")
}

/// Checks that an instruction has its modifiers for these types. Instructions that are not looked at pass.
pub(super) fn check(opcode: &str, words: &[&str]) -> Result<(), Problem> {
    let has = |word: &str| words.contains(&word);
    let types: Vec<Type> = words.iter().filter_map(|word| type_of(word)).collect();
    let Some(&ty) = types.first() else { return Ok(()) };
    let is_float = float(ty).is_some();
    let is_signed = matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64);
    let is_unsigned = matches!(ty, Type::U8 | Type::U16 | Type::U32 | Type::U64);
    let is_number = is_float || is_signed || is_unsigned;
    let has_rounding = words.iter().any(is_rounding);
    let has_type = match opcode {
        "and" | "or" | "xor" | "not" => !is_number,
        "cnot" | "shl" | "popc" | "clz" | "brev" => !is_number && ty != Type::Pred,
        "add" | "sub" | "mul" | "mad" | "div" | "min" | "max" => is_number,
        "neg" | "abs" => is_float || is_signed,
        "rem" => is_signed || is_unsigned,
        "atom" | "red" => !(ty == Type::S64 && has("add")),
        _ => true,
    };
    if !has_type {
        return Problem::invalid("the instruction does not have this type");
    }
    match opcode {
        "add" | "sub" if !is_float && (has_rounding || has("sat") && ty != Type::S32) => {
            Problem::invalid("integers have no such modifier")
        }
        "mul" | "mad" if !(is_float || has("lo") || has("hi") || has("wide")) => {
            Problem::invalid("a product needs `.lo`, `.hi` or `.wide`")
        }
        "mul" if !is_float && has("sat") => Problem::invalid("a product is not clamped"),
        "div" | "sqrt" | "rcp" | "fma"
            if is_float && !(has_rounding || has("approx") || has("full")) =>
        {
            Problem::invalid("the rounding is missing")
        }
        "set" | "setp" => {
            let ty = types.last().copied().unwrap_or(ty);
            let is_unsigned = matches!(ty, Type::U16 | Type::U32 | Type::U64);
            let only_unsigned = ["lo", "ls", "hi", "hs"].into_iter().any(has);
            let only_float =
                ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"].into_iter().any(has);
            if only_unsigned && !is_unsigned || only_float && float(ty).is_none() {
                return Problem::invalid("the type does not have this comparison");
            }
            Ok(())
        }
        "cvt" => match types[..] {
            [to, from] => conversion(to, from, words),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Checks the modifiers of a conversion of one number.
fn conversion(to: Type, from: Type, words: &[&str]) -> Result<(), Problem> {
    let has = |word: &str| words.contains(&word);
    let has_rounding = words.iter().any(is_rounding);
    let is_integral = ["rni", "rzi", "rmi", "rpi"].into_iter().any(has);
    let is_brain = |ty| ty == Type::Bf16;
    let wrong = match (float(to).is_some(), float(from).is_some()) {
        (false, false) => has_rounding || is_integral || has("sat") && holds_all(to, from),
        (true, false) => !has_rounding || is_brain(to) && bits(from) == 8,
        (false, true) => !is_integral || is_brain(from) && bits(to) == 8,
        (true, true) => {
            let is_narrower = bits(to) < bits(from);
            let is_wider = bits(to) > bits(from);
            is_narrower && !has_rounding
                || is_wider && has_rounding
                || is_brain(from) && has("sat")
                || has("ftz") && to == Type::F16 && from == Type::F16
        }
    };
    match wrong {
        true => Problem::invalid("there is no conversion with these modifiers"),
        false => Ok(()),
    }
}

/// Returns whether a type of integers has all values of another.
fn holds_all(to: Type, from: Type) -> bool {
    match (int(to).is_signed(), int(from).is_signed()) {
        (true, false) => bits(to) > bits(from),
        (false, true) => false,
        _ => bits(to) >= bits(from),
    }
}
