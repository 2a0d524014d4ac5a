//! `multimem`: operations at multicast addresses.

use super::Problem;
use super::function::Decoder;
use super::memory::atomic_function;
use super::words::{Words, bits};
use crate::program::{Multimem, MultimemFunction, Op, Order, Scope, Space};
use crate::syntax::{Instruction, Operand, Type};

/// Returns whether PTX has a vector of so many elements of a type, for a store or a function.
fn has_type(function: Option<&str>, is_red: bool, (count, ty): (usize, Type)) -> bool {
    let is_whole = matches!(count as u32 * bits(ty), 32 | 64 | 128);
    match (ty, function) {
        (Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2, Some("min" | "max")) => {
            is_whole && (count > 1 || !is_red)
        }
        (Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32, None | Some("add")) => {
            is_whole
        }
        (Type::F64, None | Some("add"))
        | (Type::B32 | Type::B64, None | Some("and" | "or" | "xor"))
        | (Type::U32 | Type::S32 | Type::U64, None | Some("add" | "min" | "max"))
        | (Type::S64, None | Some("min" | "max")) => count == 1,
        _ => false,
    }
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes `multimem`. Returns whether the instruction is one.
    pub(super) fn multimem(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        if its.opcode() != "multimem" {
            return Ok(false);
        }
        let Some(kind) = words.one_of(&["ld_reduce", "st", "red"]) else {
            return Problem::invalid("it needs `.ld_reduce`, `.st` or `.red`");
        };
        let is_load = kind == "ld_reduce";
        let is_newer = |word: &&&str| {
            word.starts_with("e4m3") || word.starts_with("e5m2") || **word == "acc::f16" && is_load
        };
        if let Some(word) = words.peek().iter().find(is_newer) {
            return Problem::unsupported(format!("the modifier .{word}, which needs sm_100"));
        }
        let order = words.order();
        let semantics = match kind {
            "ld_reduce" => words.one_of(&["weak", "relaxed", "acquire"]),
            "st" => words.one_of(&["weak", "relaxed", "release"]),
            _ => words.one_of(&["relaxed", "release"]),
        };
        let has_scope = words.one_of(&["cta", "cluster", "gpu", "sys"]).is_some();
        if has_scope == matches!(semantics, None | Some("weak")) {
            return Problem::invalid("an order needs a scope, and a scope an order");
        }
        let space = if words.take("global") { Space::Global } else { Space::Generic };
        let count = match words.one_of(&["v2", "v4", "v8"]) {
            None => 1,
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
        };
        let name = words.one_of(&["and", "or", "xor", "add", "min", "max"]);
        // `ptxas` accepts a precision for the others too, which add at most once.
        let is_single = words.one_of(&["acc::f32", "acc::f16"]).is_some() && is_load;
        let ty = words.ty()?;
        let is_half = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
        if name.is_none() != (kind == "st")
            || !has_type(name, kind == "red", (count, ty))
            || is_single && !(is_half && name == Some("add"))
        {
            return Problem::invalid("there is no such operation of this type");
        }
        if let Some(word) = words.peek().first() {
            return Problem::invalid(format!("the operation does not have the modifier `.{word}`"));
        }
        let function = match name.and_then(|name| atomic_function(name, ty)) {
            None => MultimemFunction::Store,
            Some(function) if is_load => MultimemFunction::LoadReduce { function, is_single },
            Some(function) => MultimemFunction::Reduce(function),
        };
        let [first, second] = &its.operands[..] else {
            return Problem::invalid("it has two operands");
        };
        let (value, address) = if is_load { (first, second) } else { (second, first) };
        let single;
        let value = match value {
            Operand::Vector(_) => value,
            _ => {
                single = Operand::Vector(vec![value.clone()]);
                &single
            }
        };
        let elements = match is_load {
            true => self.vector(value, (count, ty), Decoder::target)?,
            false => self.vector(value, (count, ty), Decoder::source)?,
        };
        let address = self.address(address, space)?;
        let order = order.or((kind == "red").then_some(Order::relaxed(Scope::Device)));
        let size = bits(ty) / 8;
        self.emit(Op::Multimem(Box::new(Multimem { address, function, size, elements, order })));
        Ok(true)
    }
}
