//! Operands of instructions.

use super::Problem;
use super::function::{Decoder, Symbol, bank};
use super::link::{Global, immediate};
use super::special;
use super::words::{bits, float};
use crate::program::{
    Address, Bank, Base, Condition, Constant, Element, FUNCTION_STEP, FUNCTION_WINDOW, Op, Slot,
    Space, Special,
};
use crate::syntax::{Address as Written, Immediate, Operand, Type};

impl<'a> Decoder<'_, '_, 'a> {
    /// Returns the register of a name, with its type.
    fn named(&mut self, name: &str) -> Result<Option<(Slot, Type)>, Problem> {
        if let Some(Symbol::Register { slot, ty }) = self.symbol(name) {
            return Ok(Some((slot, ty)));
        }
        if let Some((vector, component)) = name.rsplit_once('.') {
            if let Some(Symbol::Vector { slots, ty }) = self.symbol(vector) {
                let index = match component {
                    "x" | "r" => 0,
                    "y" | "g" => 1,
                    "z" | "b" => 2,
                    _ => 3,
                };
                let slot = slots.get(index).copied();
                let slot = slot
                    .ok_or_else(|| Problem::Invalid(format!("`{name}` has no such component")))?;
                return Ok(Some((slot, ty)));
            }
        }
        if let Some((special, is_wide)) = special::register(name) {
            let bank = if is_wide { Bank::Wide } else { Bank::Narrow };
            let slot = self.builder.constant(bank, Constant::Special(special));
            return Ok(Some((slot, if is_wide { Type::U64 } else { Type::U32 })));
        }
        Ok(None)
    }

    /// Returns the constant of the address of a symbol, if it is one.
    fn address_constant(&mut self, name: &str, offset: i64) -> Result<Option<Constant>, Problem> {
        Ok(match self.symbol(name) {
            Some(Symbol::Shared { offset: at } | Symbol::Param { offset: at }) => {
                Some(Constant::Bits((i64::from(at) + offset) as u64))
            }
            Some(_) => None,
            None => match self.global(name) {
                Some(Global::Variable(index)) => Some(Constant::Variable(index, offset)),
                Some(Global::Shared(index)) => Some(self.builder.shared(index, offset)),
                Some(Global::Function(index)) => {
                    Some(Constant::Bits(FUNCTION_WINDOW + FUNCTION_STEP * index as u64))
                }
                Some(Global::Intrinsic(..)) => {
                    return Problem::unsupported("the address of a function of the driver");
                }
                Some(Global::Undefined) => return Problem::unsupported("an undefined symbol"),
                Some(Global::Texture) => return Problem::unsupported("a texture reference"),
                None => None,
            },
        })
    }

    /// Returns the register that holds an operand of this type, which is read.
    pub(super) fn source(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Slot, Problem> {
        let wanted = bank(ty)?;
        let is_wide = wanted == Bank::Wide;
        let (name, offset) = match operand {
            Operand::Immediate(value) => {
                if wanted == Bank::Predicate {
                    return Problem::unsupported("a constant predicate");
                }
                let value = constant(*value, ty)?;
                return Ok(self.builder.constant(wanted, Constant::Bits(value)));
            }
            Operand::Name(name) => (*name, 0),
            Operand::Offset(name, offset) => (*name, *offset),
            _ => return Problem::invalid("an operand is neither a register nor a constant"),
        };
        if let Some((slot, its)) = self.named(name)? {
            if offset != 0 {
                return Problem::invalid("a register with an offset outside of an address");
            }
            check(name, its, ty)?;
            return Ok(slot);
        }
        if name.starts_with("%reserved_smem_offset_") {
            return Problem::unsupported("this offset of reserved shared memory");
        }
        if name == "WARP_SZ" {
            return Ok(self.builder.constant(wanted, Constant::Bits(32)));
        }
        match self.address_constant(name, offset)? {
            Some(constant) => Ok(self.builder.constant(wanted, constant)),
            None => match self.symbol(name) {
                Some(Symbol::Frame { offset: at, .. }) => {
                    let d = self.builder.register(wanted);
                    let at = (i64::from(at) + offset) as u32;
                    self.emit(Op::FrameAddress { d, offset: at, is_wide, is_generic: false });
                    Ok(d)
                }
                _ => Problem::invalid(format!("`{name}` is not defined")),
            },
        }
    }

    /// Returns the register that an operand of this type names, which is written. A discarded result gets a
    /// register that nothing reads.
    pub(super) fn target(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Slot, Problem> {
        match operand {
            Operand::Discard => Ok(self.builder.register(bank(ty)?)),
            Operand::Name(name) => match self.named(name)? {
                Some((slot, its)) => {
                    check(name, its, ty)?;
                    Ok(slot)
                }
                None => Problem::invalid(format!("`{name}` is not a register")),
            },
            _ => Problem::invalid("the result is not a register"),
        }
    }

    /// Returns the register of a load, store or conversion, which may be wider than the value.
    pub(super) fn element(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Element, Problem> {
        let name = match operand {
            Operand::Discard => return Ok(Element::Discard),
            Operand::Name(name) => *name,
            Operand::Immediate(value) => {
                let value = constant(*value, ty)?;
                let bank = bank(ty)?;
                let is_wide = bank == Bank::Wide;
                let slot = self.builder.constant(bank, Constant::Bits(value));
                return Ok(if is_wide { Element::Wide(slot) } else { Element::Narrow(slot) });
            }
            _ => return Problem::invalid("an operand is not a register"),
        };
        match self.named(name)? {
            Some((slot, its)) => {
                if bits(its) < bits(ty) {
                    return Problem::invalid(format!("the register `{name}` is too small"));
                }
                match bank(its)? {
                    Bank::Narrow => Ok(Element::Narrow(slot)),
                    Bank::Wide => Ok(Element::Wide(slot)),
                    Bank::Predicate => Problem::invalid(format!("`{name}` is a predicate")),
                }
            }
            None => {
                let slot = self.source(operand, ty)?;
                Ok(if bank(ty)? == Bank::Wide {
                    Element::Wide(slot)
                } else {
                    Element::Narrow(slot)
                })
            }
        }
    }

    /// Returns whether an operand is a register of 8 bits.
    pub(super) fn is_byte(&mut self, operand: &Operand<'a>) -> Result<bool, Problem> {
        let Operand::Name(name) = operand else { return Ok(false) };
        Ok(self.named(name)?.is_some_and(|(_, ty)| bits(ty) == 8))
    }

    /// Returns the registers of a vector or of a single operand.
    pub(super) fn elements(
        &mut self,
        operand: &Operand<'a>,
        ty: Type,
    ) -> Result<Vec<Element>, Problem> {
        match operand {
            Operand::Vector(list) => list.iter().map(|its| self.element(its, ty)).collect(),
            Operand::Name(name) => match self.symbol(name) {
                Some(Symbol::Vector { slots, ty }) => {
                    let is_wide = ty == Type::B128 || bank(ty)? == Bank::Wide;
                    let one =
                        |slot| if is_wide { Element::Wide(slot) } else { Element::Narrow(slot) };
                    Ok(slots.into_iter().map(one).collect())
                }
                _ => Ok(vec![self.element(operand, ty)?]),
            },
            operand => Ok(vec![self.element(operand, ty)?]),
        }
    }

    /// Returns the register of a load or conversion that is written, and may be wider than the value.
    pub(super) fn element_target(
        &mut self,
        operand: &Operand<'a>,
        ty: Type,
    ) -> Result<Element, Problem> {
        is_target(operand)?;
        self.element(operand, ty)
    }

    /// Returns the registers of a vector or of a single operand that are written.
    pub(super) fn element_targets(
        &mut self,
        operand: &Operand<'a>,
        ty: Type,
    ) -> Result<Vec<Element>, Problem> {
        match operand {
            Operand::Vector(list) => list.iter().try_for_each(is_target)?,
            operand => is_target(operand)?,
        }
        self.elements(operand, ty)
    }

    /// Returns the predicate of an operand, or its negation.
    pub(super) fn predicate(&mut self, operand: &Operand<'a>) -> Result<Condition, Problem> {
        let (name, is_negated) = match operand {
            Operand::Name(name) => (*name, false),
            Operand::Not(name) => (*name, true),
            Operand::Immediate(Immediate::Integer { bits, .. }) => {
                let slot = self.builder.register(Bank::Predicate);
                // The register is never written, and is false in all lanes.
                return Ok(Condition { slot, is_negated: *bits != 0 });
            }
            _ => return Problem::invalid("an operand is not a predicate"),
        };
        if name == "%is_explicit_cluster" {
            let constant = Constant::Special(Special::IsExplicitCluster);
            let slot = self.builder.constant(Bank::Predicate, constant);
            return Ok(Condition { slot, is_negated });
        }
        match self.named(name)? {
            Some((slot, Type::Pred)) => Ok(Condition { slot, is_negated }),
            _ => Problem::invalid(format!("`{name}` is not a predicate register")),
        }
    }

    /// Returns the operand with this index.
    pub(super) fn operand<'o>(
        &self,
        operands: &'o [Operand<'a>],
        index: usize,
    ) -> Result<&'o Operand<'a>, Problem> {
        operands
            .get(index)
            .ok_or_else(|| Problem::Invalid(format!("operand {} is missing", index + 1)))
    }

    /// Returns the address in brackets. `space` is the space of the instruction.
    pub(super) fn address(
        &mut self,
        operand: &Operand<'a>,
        space: Space,
    ) -> Result<Address, Problem> {
        let Operand::Address(written) = operand else {
            return Problem::invalid("an operand is not an address");
        };
        let Written { base, offset, rest } = &**written;
        if !rest.is_empty() {
            return Problem::unsupported("an address with coordinates");
        }
        self.address_of(base, *offset, space)
    }

    pub(super) fn address_of(
        &mut self,
        base: &Operand<'a>,
        offset: i64,
        space: Space,
    ) -> Result<Address, Problem> {
        let (name, offset) = match base {
            Operand::Name(name) => (*name, offset),
            Operand::Offset(name, more) => (*name, offset.wrapping_add(*more)),
            Operand::Immediate(Immediate::Integer { bits, .. }) => {
                if space != Space::Local {
                    return Problem::invalid("only an address in local memory may be a constant");
                }
                let offset = offset.wrapping_add(*bits as i64);
                return Ok(Address { space, base: Base::None, offset });
            }
            _ => return Problem::invalid("the base of an address is not a register"),
        };
        if let Some((slot, ty)) = self.named(name)? {
            let base = match bank(ty)? {
                Bank::Narrow if matches!(space, Space::Generic | Space::Global) => {
                    return Problem::invalid(format!("the address `{name}` has 32 bits"));
                }
                Bank::Narrow => Base::Narrow(slot),
                Bank::Wide => Base::Wide(slot),
                Bank::Predicate => return Problem::invalid("an address is a predicate"),
            };
            // The address of a parameter of a function is that of local memory.
            let space = match space {
                Space::Param if !self.function.is_entry => Space::Local,
                space => space,
            };
            return Ok(Address { space, base, offset });
        }
        if let Some(Symbol::Frame { offset: at, .. }) = self.symbol(name) {
            let offset = i64::from(at).wrapping_add(offset);
            return Ok(Address { space: Space::Frame, base: Base::None, offset });
        }
        let is_shared = matches!(self.symbol(name), Some(Symbol::Shared { .. }))
            || matches!(self.global(name), Some(Global::Shared(_)));
        match self.address_constant(name, offset)? {
            Some(Constant::Bits(value)) => {
                // A generic access to a variable in shared memory by its name.
                let space = if is_shared { Space::Shared } else { space };
                Ok(Address { space, base: Base::None, offset: value as i64 })
            }
            Some(constant) => {
                let space = match constant {
                    Constant::DynamicShared(_) => Space::Shared,
                    _ => space,
                };
                let slot = self.builder.constant(Bank::Wide, constant);
                Ok(Address { space, base: Base::Wide(slot), offset: 0 })
            }
            None => Problem::invalid(format!("`{name}` is not defined")),
        }
    }
}

/// Checks that an operand that is written is no constant.
fn is_target(operand: &Operand) -> Result<(), Problem> {
    match operand {
        Operand::Immediate(_) => Problem::invalid("the result is not a register"),
        _ => Ok(()),
    }
}

/// Returns the bits of a constant that is an operand of this type.
fn constant(value: Immediate, ty: Type) -> Result<u64, Problem> {
    let is_right = match (ty, value) {
        (Type::F32 | Type::F64, value) => !matches!(value, Immediate::Integer { .. }),
        (_, Immediate::Integer { .. }) => float(ty).is_none(),
        (_, Immediate::Single(_)) => ty == Type::B32,
        (_, Immediate::Double(_)) => ty == Type::B64,
    };
    match is_right {
        true => Ok(immediate(value, ty)),
        false => Problem::invalid("the type does not have this constant"),
    }
}

/// Checks that a register of one type can be an operand of another.
fn check(name: &str, its: Type, wanted: Type) -> Result<(), Problem> {
    // Special registers of 32 bits may be read into 16 and 64 bits by old code.
    if bits(its) == bits(wanted) || its == Type::U32 && name.starts_with('%') && bits(wanted) == 16
    {
        return Ok(());
    }
    Problem::invalid(format!(
        "`{name}` has {} bits, and the operand has {}",
        bits(its),
        bits(wanted)
    ))
}
