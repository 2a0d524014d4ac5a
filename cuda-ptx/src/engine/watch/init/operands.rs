//! The registers that an operation reads and writes.

use crate::program::{
    Address, Bank, Barrier, Base, Binary, Compare, Compared, Condition, CopyGroup, Element, Float,
    Int, LevelOf, Mbarrier, Op, Slot, SurfaceFunction, TensorAccess, Ternary, TexelPlace, Unary,
};

/// A register, of any bank.
pub(super) type Register = (Bank, Slot);

/// What an operation does with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The results depend on it.
    Read,
    /// It is a result.
    Write,
    /// It chooses what runs: the target of a branch, or the operand of a barrier.
    Condition,
    /// It is an address, or a part of one.
    Address,
}

pub(super) fn of_int(ty: Int) -> Bank {
    of_width(ty.bits() == 64)
}

fn of_float(ty: Float) -> Bank {
    match ty {
        Float::F64 | Float::F32x2 => Bank::Wide,
        Float::F16 | Float::F16x2 | Float::Bf16 | Float::Bf16x2 | Float::F32 => Bank::Narrow,
    }
}

pub(super) fn of_width(is_wide: bool) -> Bank {
    if is_wide { Bank::Wide } else { Bank::Narrow }
}

pub(super) fn of_base(base: Base) -> Option<Register> {
    match base {
        Base::None => None,
        Base::Narrow(slot) => Some((Bank::Narrow, slot)),
        Base::Wide(slot) => Some((Bank::Wide, slot)),
    }
}

pub(super) fn of_element(element: Element) -> Option<Register> {
    match element {
        Element::Discard => None,
        Element::Narrow(slot) => Some((Bank::Narrow, slot)),
        Element::Wide(slot) => Some((Bank::Wide, slot)),
    }
}

pub(super) fn of_condition(condition: Condition) -> Register {
    (Bank::Predicate, condition.slot)
}

/// Returns the banks of the result and of the operand.
fn unary(f: Unary) -> [Bank; 2] {
    match f {
        Unary::Neg(ty) | Unary::Abs(ty) | Unary::Not(ty) | Unary::Cnot(ty) | Unary::Brev(ty) => {
            [of_int(ty); 2]
        }
        Unary::Popc(ty) | Unary::Clz(ty) | Unary::Bfind(ty, _) => [Bank::Narrow, of_int(ty)],
        Unary::NegFloat(ty, _)
        | Unary::AbsFloat(ty, _)
        | Unary::Rcp(ty, _)
        | Unary::Sqrt(ty, _)
        | Unary::Approximate(_, ty, _) => [of_float(ty); 2],
        Unary::AddConstant(_) => [Bank::Wide; 2],
    }
}

/// Returns the banks of the result and of the operands.
fn binary(f: Binary) -> [Bank; 3] {
    const NARROW: [Bank; 3] = [Bank::Narrow; 3];
    match f {
        Binary::Add(ty)
        | Binary::Sub(ty)
        | Binary::Mul(ty)
        | Binary::MulHi(ty)
        | Binary::Div(ty)
        | Binary::Rem(ty)
        | Binary::Min(ty, _)
        | Binary::Max(ty, _)
        | Binary::And(ty)
        | Binary::Or(ty)
        | Binary::Xor(ty) => [of_int(ty); 3],
        Binary::MulWide(ty) => [of_width(ty.bits() >= 32), Bank::Narrow, Bank::Narrow],
        Binary::Shl(ty) | Binary::Shr(ty) => [of_int(ty), of_int(ty), Bank::Narrow],
        Binary::AddSat
        | Binary::SubSat
        | Binary::Mul24(..)
        | Binary::Extremum16x2(..)
        | Binary::Add16x2
        | Binary::Bmsk(_)
        | Binary::Szext(..)
        | Binary::DivApproximate(_)
        | Binary::DivFull(_) => NARROW,
        Binary::AddFloat(ty, _)
        | Binary::SubFloat(ty, _)
        | Binary::MulFloat(ty, _)
        | Binary::DivFloat(ty, _)
        | Binary::Extremum(ty, _)
        | Binary::Copysign(ty) => [of_float(ty); 3],
    }
}

/// Returns the banks of the result and of the operands.
fn ternary(f: Ternary) -> [Bank; 4] {
    const NARROW: [Bank; 4] = [Bank::Narrow; 4];
    match f {
        Ternary::Mad(ty) | Ternary::MadHi(ty) | Ternary::Sad(ty) => [of_int(ty); 4],
        Ternary::MadWide(ty) => {
            let sum = of_width(ty.bits() >= 32);
            [sum, Bank::Narrow, Bank::Narrow, sum]
        }
        Ternary::Bfe(ty) => [of_int(ty), of_int(ty), Bank::Narrow, Bank::Narrow],
        Ternary::Fma(ty, _) => [of_float(ty); 4],
        Ternary::Slct(bank, _) => [bank, bank, bank, Bank::Narrow],
        Ternary::MadHiSat
        | Ternary::Mad24(..)
        | Ternary::Prmt(_)
        | Ternary::Lop3(_)
        | Ternary::Shf(..)
        | Ternary::Dp4a(..)
        | Ternary::Dp2a(..)
        | Ternary::Fns
        | Ternary::Extremum3(_) => NARROW,
    }
}

/// Returns the bank of the operands of a comparison.
fn compared(ty: Compared) -> Bank {
    match ty {
        Compared::Int(ty) => of_int(ty),
        Compared::Float(ty, _) => of_float(ty),
    }
}

/// The registers that a comparison reads.
fn comparison(compare: &Compare, f: &mut impl FnMut(Role, Register)) {
    compare.operands.iter().for_each(|slot| f(Role::Read, (compared(compare.ty), *slot)));
    if let Some((_, condition)) = compare.combine {
        f(Role::Read, of_condition(condition));
    }
}

/// The registers of an operation that may take a carry bit and give one.
fn with_carry(
    ty: Int,
    (takes, gives, carry): (bool, bool, Slot),
    d: Slot,
    a: &[Slot],
    f: &mut impl FnMut(Role, Register),
) {
    a.iter().for_each(|slot| f(Role::Read, (of_int(ty), *slot)));
    if takes {
        f(Role::Read, (Bank::Predicate, carry));
    }
    f(Role::Write, (of_int(ty), d));
    if gives {
        f(Role::Write, (Bank::Predicate, carry));
    }
}

fn texel(place: &TexelPlace, f: &mut impl FnMut(Role, Register)) {
    f(Role::Address, (Bank::Wide, place.object));
    let narrow = place.at[..place.axes.min(3)].iter().copied().chain(place.layer);
    narrow.for_each(|slot| f(Role::Address, (Bank::Narrow, slot)));
}

/// Calls `f` with each register of an operation, except for those of elements that move between memory and registers
/// and of operations of several lanes together.
pub(super) fn each_operand(op: &Op, mut f: impl FnMut(Role, Register)) {
    use Role::{Read, Write};
    const NARROW: Bank = Bank::Narrow;
    const WIDE: Bank = Bank::Wide;
    const PREDICATE: Bank = Bank::Predicate;
    let base = |f: &mut dyn FnMut(Role, Register), address: &Address| {
        if let Some(register) = of_base(address.base) {
            f(Role::Address, register);
        }
    };
    match op {
        Op::Nop
        | Op::Fence(_)
        | Op::Branch(_)
        | Op::Call { .. }
        | Op::Intrinsic { .. }
        | Op::Results(_)
        | Op::Return
        | Op::Exit
        | Op::Trap
        | Op::Sleep
        | Op::ClusterArrive { .. }
        | Op::ClusterWait
        | Op::Refused => {}
        Op::Move(bank, d, a) => {
            f(Read, (*bank, *a));
            f(Write, (*bank, *d));
        }
        Op::MovePredicate { d, a } => {
            f(Read, of_condition(*a));
            f(Write, (PREDICATE, *d));
        }
        Op::Unpack { d, a, .. } | Op::Pack { d, a, .. } => {
            a.iter().filter_map(|a| of_element(*a)).for_each(|a| f(Read, a));
            d.iter().filter_map(|d| of_element(*d)).for_each(|d| f(Write, d));
        }
        Op::Unary(function, d, a) => {
            let banks = unary(*function);
            f(Read, (banks[1], *a));
            f(Write, (banks[0], *d));
        }
        Op::Binary(function, d, ab) => {
            let [result, banks @ ..] = binary(*function);
            banks.into_iter().zip(ab).for_each(|(bank, slot)| f(Read, (bank, *slot)));
            f(Write, (result, *d));
        }
        Op::Ternary(function, d, abc) => {
            let [result, banks @ ..] = ternary(*function);
            banks.into_iter().zip(abc).for_each(|(bank, slot)| f(Read, (bank, *slot)));
            f(Write, (result, *d));
        }
        Op::Bfi { bits, d, a } => {
            let bank = of_width(*bits == 64);
            [bank, bank, NARROW, NARROW].into_iter().zip(a).for_each(|(bank, slot)| {
                f(Read, (bank, *slot));
            });
            f(Write, (bank, *d));
        }
        Op::Carry { ty, takes, gives, carry, d, a, .. } => {
            with_carry(*ty, (*takes, *gives, *carry), *d, a, &mut f);
        }
        Op::MadCarry { ty, takes, gives, carry, d, a, .. } => {
            with_carry(*ty, (*takes, *gives, *carry), *d, a, &mut f);
        }
        Op::Setp { compare, p, q } | Op::SetpPacked { compare, p, q } => {
            comparison(compare, &mut f);
            p.iter().chain(q).for_each(|slot| f(Write, (PREDICATE, *slot)));
        }
        Op::Set { compare, d, .. } | Op::SetPacked { compare, d, .. } => {
            comparison(compare, &mut f);
            f(Write, (NARROW, *d));
        }
        Op::Selp { bank, d, a, p } => {
            a.iter().for_each(|slot| f(Read, (*bank, *slot)));
            f(Read, of_condition(*p));
            f(Write, (*bank, *d));
        }
        Op::Logic { d, a, .. } => {
            a.iter().for_each(|condition| f(Read, of_condition(*condition)));
            f(Write, (PREDICATE, *d));
        }
        Op::Testp { ty, d, a, .. } => {
            f(Read, (of_float(*ty), *a));
            f(Write, (PREDICATE, *d));
        }
        Op::Convert { convert, d, a } | Op::ConvertUnpacked { convert, d, a } => {
            f(Read, (convert.from_bank, *a));
            f(Write, (convert.to_bank, *d));
        }
        Op::ConvertPacked { convert, d, a } => {
            a.iter().for_each(|slot| f(Read, (NARROW, *slot)));
            f(Write, (convert.to_bank, *d));
        }
        Op::CvtPack { d, a, .. } | Op::Video(_, d, a) => {
            a.iter().for_each(|slot| f(Read, (NARROW, *slot)));
            f(Write, (NARROW, *d));
        }
        Op::Sample(its) => {
            texel(&its.place, &mut f);
            if let LevelOf::Slot(slot) = its.level {
                f(Role::Address, (NARROW, slot));
            }
            its.d.iter().filter_map(|d| of_element(*d)).for_each(|d| f(Write, d));
            its.resident.iter().for_each(|slot| f(Write, (PREDICATE, *slot)));
        }
        Op::Surface(its) => {
            texel(&its.place, &mut f);
            if its.function == SurfaceFunction::Load {
                its.elements.iter().filter_map(|d| of_element(*d)).for_each(|d| f(Write, d));
            }
        }
        Op::Query { object, level, d, .. } => {
            f(Role::Address, (WIDE, *object));
            level.iter().for_each(|slot| f(Read, (NARROW, *slot)));
            f(Write, (NARROW, *d));
        }
        Op::Load(its) | Op::Store(its) => base(&mut f, &its.address),
        Op::Atomic(its) => base(&mut f, &its.address),
        Op::AtomicWide(its) => base(&mut f, &its.address),
        Op::Multimem(its) => base(&mut f, &its.address),
        Op::CopyBulk(its) => {
            base(&mut f, &its.to);
            base(&mut f, &its.from);
            f(Role::Address, (NARROW, its.size));
            if let Some(barrier) = &its.barrier {
                base(&mut f, barrier);
            }
            its.multicast.iter().for_each(|slot| f(Role::Address, (NARROW, *slot)));
        }
        Op::CopyTensor(its) => {
            base(&mut f, &its.map);
            let places = its.coordinates.iter().chain(its.offsets.iter().flatten());
            places.for_each(|slot| f(Role::Address, (NARROW, *slot)));
            match &its.access {
                TensorAccess::Load { to, barrier, multicast, .. } => {
                    base(&mut f, to);
                    base(&mut f, barrier);
                    multicast.iter().for_each(|slot| f(Role::Address, (NARROW, *slot)));
                }
                TensorAccess::Store { from, .. } => base(&mut f, from),
                TensorAccess::Prefetch => {}
            }
        }
        Op::PrefetchBulk { from, size } => {
            base(&mut f, from);
            f(Role::Address, (NARROW, *size));
        }
        Op::FrameAddress { d, is_wide, .. } => f(Write, (of_width(*is_wide), *d)),
        Op::IsSpace { p, a, .. } => {
            of_base(*a).into_iter().for_each(|a| f(Read, a));
            f(Write, (PREDICATE, *p));
        }
        Op::CopyAsync { to, from, read, ignore, .. } => {
            base(&mut f, to);
            base(&mut f, from);
            read.iter().for_each(|slot| f(Role::Address, (NARROW, *slot)));
            ignore.iter().for_each(|its| f(Role::Condition, of_condition(*its)));
        }
        Op::CopyGroup(CopyGroup::Arrive(address)) => base(&mut f, address),
        Op::CopyGroup(_) => {}
        Op::Mbarrier { address, operation, .. } => {
            base(&mut f, address);
            let mut condition = |slot: &Slot| f(Role::Condition, (NARROW, *slot));
            match operation {
                Mbarrier::Init { count } => condition(count),
                Mbarrier::Inval => {}
                Mbarrier::ExpectTx { bytes } | Mbarrier::CompleteTx { bytes } => condition(bytes),
                Mbarrier::Arrive { state, count, expect, .. } => {
                    count.iter().chain(expect).for_each(condition);
                    state.iter().for_each(|slot| f(Write, (WIDE, *slot)));
                }
                Mbarrier::TestWait { p, state } => {
                    f(Role::Condition, (WIDE, *state));
                    f(Write, (PREDICATE, *p));
                }
                Mbarrier::TestParity { p, parity } => {
                    condition(parity);
                    f(Write, (PREDICATE, *p));
                }
                Mbarrier::PendingCount { d, state } => {
                    f(Read, (WIDE, *state));
                    f(Write, (NARROW, *d));
                }
            }
        }
        Op::MapShared { d, a, rank, is_wide, .. } => {
            f(Read, (of_width(*is_wide), *a));
            f(Read, (NARROW, *rank));
            f(Write, (of_width(*is_wide), *d));
        }
        Op::RankOf { d, a, .. } => {
            of_base(*a).into_iter().for_each(|a| f(Read, a));
            f(Write, (NARROW, *d));
        }
        Op::Clock { d, is_wide, .. } | Op::StackSave { d, is_wide } => {
            f(Write, (of_width(*is_wide), *d));
        }
        Op::Activemask { d } => f(Write, (NARROW, *d)),
        Op::BranchTable { index, .. } => f(Role::Condition, (NARROW, *index)),
        Op::CallIndirect { target, .. } => f(Role::Condition, (WIDE, *target)),
        Op::Together { mask, .. } => f(Role::Condition, (NARROW, *mask)),
        Op::Barrier { id, count, barrier, .. } => {
            f(Role::Condition, (NARROW, *id));
            count.iter().for_each(|slot| f(Role::Condition, (NARROW, *slot)));
            match barrier {
                Barrier::Sync | Barrier::Arrive => {}
                Barrier::Popc { d, a } => {
                    f(Role::Condition, of_condition(*a));
                    f(Write, (NARROW, *d));
                }
                Barrier::And { d, a } | Barrier::Or { d, a } => {
                    f(Role::Condition, of_condition(*a));
                    f(Write, (PREDICATE, *d));
                }
            }
        }
        Op::Alloca { d, size, is_wide, .. } => {
            f(Role::Address, (of_width(*is_wide), *size));
            f(Write, (of_width(*is_wide), *d));
        }
        Op::StackRestore { a, is_wide } => f(Role::Address, (of_width(*is_wide), *a)),
    }
}
