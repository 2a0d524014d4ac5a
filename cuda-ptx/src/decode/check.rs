//! Modifiers that an instruction does not have for its types, and numbers of operands that it does not have.

use super::Problem;
use super::words::{bits, float, int, type_of};
use crate::syntax::Type;

/// A rounding of floating-point numbers.
fn is_rounding(word: &&str) -> bool {
    matches!(*word, "rn" | "rz" | "rm" | "rp" | "rna" | "rs")
}

/// Returns the number of operands of an instruction, if it has one number of them.
fn operands(opcode: &str, words: &[&str]) -> Option<usize> {
    let has = |word: &str| words.contains(&word);
    Some(match opcode.as_bytes() {
        // It names a tensor map and its size.
        b"fence" if has("acquire") && has("proxy") && has("tensormap::generic") => 2,
        b"exit" | b"ret" | b"trap" | b"brkpt" | b"membar" | b"fence" | b"griddepcontrol" => 0,
        b"activemask" | b"stacksave" | b"stackrestore" | b"nanosleep" | b"pmevent" => 1,
        b"abs" | b"neg" | b"not" | b"cnot" | b"popc" | b"clz" | b"brev" | b"bfind" | b"rcp"
        | b"sqrt" | b"rsqrt" | b"sin" | b"cos" | b"lg2" | b"ex2" | b"tanh" | b"testp"
        | b"isspacep" | b"mov" => 2,
        b"mul" | b"div" | b"rem" | b"mul24" | b"and" | b"or" | b"xor" | b"shl" | b"shr"
        | b"copysign" | b"bmsk" | b"szext" => 3,
        b"mad" | b"madc" | b"mad24" | b"fma" | b"sad" | b"selp" | b"slct" | b"prmt" | b"bfe"
        | b"fns" | b"shf" | b"dp2a" | b"dp4a" => 4,
        b"bfi" => 5,
        b"set" | b"setp" if ["and", "or", "xor"].into_iter().any(has) => 4,
        b"set" | b"setp" => 3,
        _ => return None,
    })
}

/// Checks that an instruction has its modifiers for these types, and its number of operands. Instructions that are not
/// looked at pass.
pub(super) fn check(opcode: &str, words: &[&str], count: usize) -> Result<(), Problem> {
    let has = |word: &str| words.contains(&word);
    if let Some(wanted) = operands(opcode, words).filter(|wanted| *wanted != count) {
        return Problem::invalid(format!("it has {wanted} operands, and {count} are given"));
    }
    let has_scope = || ["cta", "cluster", "gpu", "sys"].into_iter().any(has);
    let has_order = || ["relaxed", "acquire", "release", "sc", "acq_rel"].into_iter().any(has);
    let has_proxy = || words.iter().any(|word| word.starts_with("proxy"));
    match opcode.as_bytes() {
        b"ld" | b"st" if has_scope() != has_order() => {
            return Problem::invalid("an order needs a scope, and a scope an order");
        }
        b"fence" if !(has_scope() || has_proxy() || has("mbarrier_init")) => {
            return Problem::invalid("a fence needs a scope");
        }
        b"membar" if !(has("cta") || has("gl") || has("sys") || has_proxy()) => {
            return Problem::invalid("a fence needs a level");
        }
        b"griddepcontrol" if !(has("wait") || has("launch_dependents")) => {
            return Problem::invalid("it needs `.wait` or `.launch_dependents`");
        }
        b"redux" | b"match" | b"elect" if !has("sync") => {
            return Problem::invalid("it needs `.sync`");
        }
        b"bmsk" | b"szext" if !(has("clamp") || has("wrap")) => {
            return Problem::invalid("it needs `.clamp` or `.wrap`");
        }
        b"sin" | b"cos" | b"lg2" | b"ex2" | b"tanh" | b"rsqrt" if !has("approx") => {
            return Problem::invalid("it needs `.approx`");
        }
        b"ld" if has("nc") && (!has("global") || has("volatile") || has_order()) => {
            return Problem::invalid("`.nc` needs `.global`, and no order");
        }
        _ => {}
    }
    let types: Vec<Type> = words.iter().filter_map(|word| type_of(word)).collect();
    let Some(&ty) = types.first() else { return Ok(()) };
    let is_float = float(ty).is_some();
    let is_signed = matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64);
    let is_unsigned = matches!(ty, Type::U8 | Type::U16 | Type::U32 | Type::U64);
    let is_number = is_float || is_signed || is_unsigned;
    let has_rounding = || words.iter().any(is_rounding);
    let has_type = match opcode.as_bytes() {
        b"and" | b"or" | b"xor" | b"not" => !is_number,
        b"cnot" | b"shl" | b"popc" | b"clz" | b"brev" => !is_number && ty != Type::Pred,
        b"add" | b"sub" | b"mul" | b"mad" | b"div" | b"min" | b"max" => is_number,
        b"neg" | b"abs" => is_float || is_signed,
        b"rem" => is_signed || is_unsigned,
        b"atom" | b"red" => !(ty == Type::S64 && has("add")),
        _ => true,
    };
    if !has_type {
        return Problem::invalid("the instruction does not have this type");
    }
    match opcode.as_bytes() {
        b"add" | b"sub" if !is_float && (has_rounding() || has("sat") && ty != Type::S32) => {
            Problem::invalid("integers have no such modifier")
        }
        b"mul" | b"mad" if !(is_float || has("lo") || has("hi") || has("wide")) => {
            Problem::invalid("a product needs `.lo`, `.hi` or `.wide`")
        }
        b"mul" if !is_float && has("sat") => Problem::invalid("a product is not clamped"),
        b"add" | b"sub" | b"mul"
            if !matches!(ty, Type::F32 | Type::F64 | Type::F32x2)
                && is_float
                && ["rz", "rm", "rp"].into_iter().any(has) =>
        {
            Problem::invalid("the type does not have this rounding")
        }
        b"div" | b"sqrt" | b"rcp" | b"fma" | b"mad"
            if is_float && !(has_rounding() || has("approx") || has("full")) =>
        {
            Problem::invalid("the rounding is missing")
        }
        b"set" | b"setp" => {
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
        b"cvt" => match types[..] {
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
        (true, false) => !has_rounding,
        (false, true) => !is_integral,
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
