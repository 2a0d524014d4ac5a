//! The modifiers of an instruction.

use super::Problem;
use crate::number::{Mode, Rounding};
use crate::program::{Fence, Float, Int, Order, Scope};
use crate::syntax::Type;

/// The modifiers of an instruction. Each is taken once; one that nothing takes is an error.
pub(super) struct Words<'a> {
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(modifiers: impl Iterator<Item = &'a str>) -> Self {
        Self { rest: modifiers.collect() }
    }

    /// Takes a modifier, and returns whether it was there.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let at = self.rest.iter().position(|its| *its == word);
        at.map(|at| self.rest.remove(at)).is_some()
    }

    /// Takes the first of the modifiers that is there.
    pub(super) fn one_of(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().find(|word| self.take(word)).copied()
    }

    /// Takes all modifiers for which `is_one` is true.
    pub(super) fn drop_all(&mut self, is_one: impl Fn(&str) -> bool) {
        self.rest.retain(|word| !is_one(word));
    }

    pub(super) fn peek(&self) -> &[&'a str] {
        &self.rest
    }

    /// Takes the first type.
    pub(super) fn try_ty(&mut self) -> Option<Type> {
        let (at, ty) =
            self.rest.iter().enumerate().find_map(|(at, word)| Some((at, type_of(word)?)))?;
        self.rest.remove(at);
        Some(ty)
    }

    pub(super) fn ty(&mut self) -> Result<Type, Problem> {
        self.try_ty().ok_or_else(|| Problem::Invalid("the instruction has no type".into()))
    }

    /// Takes the rounding, `.ftz`, `.sat` and `.relu`.
    pub(super) fn mode(&mut self) -> Mode {
        let rounding = self.rounding().unwrap_or(Rounding::NearestEven);
        Mode {
            rounding,
            flush: self.take("ftz"),
            saturate: self.take("sat"),
            relu: self.take("relu"),
        }
    }

    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        Some(match self.one_of(&["rn", "rz", "rm", "rp", "rna"])? {
            "rn" => Rounding::NearestEven,
            "rz" => Rounding::Zero,
            "rm" => Rounding::Down,
            "rp" => Rounding::Up,
            _ => Rounding::NearestAway,
        })
    }

    fn has(&self, word: &str) -> bool {
        self.rest.contains(&word)
    }

    /// Returns the order of an access, unless it is weak.
    pub(super) fn order(&self) -> Option<Order> {
        if self.has("volatile") || self.has("mmio") {
            return Some(Order::relaxed(Scope::Device));
        }
        let is_strong =
            ["relaxed", "acquire", "release", "acq_rel", "sc"].iter().any(|word| self.has(word));
        is_strong.then(|| {
            let is_both = self.has("acq_rel") || self.has("sc");
            Order {
                scope: self.scope(),
                acquires: is_both || self.has("acquire"),
                releases: is_both || self.has("release"),
            }
        })
    }

    /// Returns the order of a fence. Those of proxies order nothing here.
    pub(super) fn fence(&self) -> Option<Fence> {
        if self.rest.iter().any(|word| word.starts_with("proxy")) {
            return None;
        }
        let (acquires, releases) = (!self.has("release"), !self.has("acquire"));
        let has_order = ["acq_rel", "acquire", "release"].iter().any(|word| self.has(word));
        let order = Order { scope: self.scope(), acquires, releases };
        Some(Fence { order, is_sc: !has_order })
    }

    fn scope(&self) -> Scope {
        match () {
            () if self.has("cta") => Scope::Cta,
            () if self.has("cluster") => Scope::Cluster,
            () => Scope::Device,
        }
    }

    /// Checks that every modifier was taken.
    pub(super) fn finish(&self) -> Result<(), Problem> {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => Err(Problem::Unsupported(format!("the modifier .{word}"))),
        }
    }
}

/// Returns the type that a modifier names.
pub(super) fn type_of(word: &str) -> Option<Type> {
    Some(match word.as_bytes() {
        b"b8" => Type::B8,
        b"b16" => Type::B16,
        b"b32" => Type::B32,
        b"b64" => Type::B64,
        b"b128" => Type::B128,
        b"u8" => Type::U8,
        b"u16" => Type::U16,
        b"u32" => Type::U32,
        b"u64" => Type::U64,
        b"s8" => Type::S8,
        b"s16" => Type::S16,
        b"s32" => Type::S32,
        b"s64" => Type::S64,
        b"f16" => Type::F16,
        b"f16x2" => Type::F16x2,
        b"bf16" => Type::Bf16,
        b"bf16x2" => Type::Bf16x2,
        b"f32" => Type::F32,
        b"f32x2" => Type::F32x2,
        b"f64" => Type::F64,
        b"pred" => Type::Pred,
        _ => return None,
    })
}

/// Returns the number of bits of a value of a type. A predicate has one.
pub(super) fn bits(ty: Type) -> u32 {
    match ty {
        Type::Pred => 1,
        Type::B8 | Type::U8 | Type::S8 => 8,
        Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 16,
        Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 => 32,
        Type::B128 => 128,
        _ => 64,
    }
}

/// Returns the type of integers with the bits of a type.
pub(super) fn int(ty: Type) -> Int {
    match ty {
        Type::S8 => Int::S8,
        Type::S16 => Int::S16,
        Type::S32 => Int::S32,
        Type::S64 => Int::S64,
        ty => Int::unsigned(bits(ty)),
    }
}

/// Returns the type of floating-point numbers, if it is one.
pub(super) fn float(ty: Type) -> Option<Float> {
    Some(match ty {
        Type::F16 => Float::F16,
        Type::F16x2 => Float::F16x2,
        Type::Bf16 => Float::Bf16,
        Type::Bf16x2 => Float::Bf16x2,
        Type::F32 => Float::F32,
        Type::F32x2 => Float::F32x2,
        Type::F64 => Float::F64,
        _ => return None,
    })
}
