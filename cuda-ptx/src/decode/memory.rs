//! Loads, stores, atomic operations, addresses and copies.

use super::Problem;
use super::function::{Decoder, bank};
use super::words::{Words, bits, float, int};
use crate::program::{
    Address, Atomic, AtomicFunction, AtomicWide, Bank, Base, Constant, CopyGroup, Element,
    Elements, LOCAL_WINDOW, Mbarrier, Op, Order, PARAM_WINDOW, SHARED_WINDOW, Scope, Space,
    Transfer, Unary,
};
use crate::syntax::{Instruction, Operand, Type};

/// Takes the state space of an instruction. Without one, addresses are generic.
fn space(words: &mut Words<'_>) -> Space {
    let names = [
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
        "param::func",
    ];
    match words.one_of(&names) {
        None => Space::Generic,
        Some("global") => Space::Global,
        Some("const") => Space::Const,
        Some("local") => Space::Local,
        Some("param" | "param::entry" | "param::func") => Space::Param,
        Some(_) => Space::Shared,
    }
}

/// Drops modifiers that say how caches and other threads see an access: each access of the engine is seen by all.
fn drop_order(words: &mut Words<'_>) {
    words.drop_all(|word| {
        matches!(
            word,
            "weak"
                | "relaxed"
                | "acquire"
                | "release"
                | "acq_rel"
                | "volatile"
                | "mmio"
                | "cta"
                | "cluster"
                | "gpu"
                | "sys"
                | "ca"
                | "cg"
                | "cs"
                | "lu"
                | "cv"
                | "wb"
                | "wt"
                | "nc"
                | "noftz"
                | "unified"
                | "sc"
        ) || word.starts_with("L1::")
            || word.starts_with("L2::")
            || word.starts_with("level::")
            || word.starts_with("sem::")
    });
}

/// Returns the function of an atomic operation by its name.
pub(super) fn atomic_function(name: &str, ty: Type) -> Option<AtomicFunction> {
    Some(match (name, float(ty)) {
        ("and", _) => AtomicFunction::And,
        ("or", _) => AtomicFunction::Or,
        ("xor", _) => AtomicFunction::Xor,
        ("exch", _) => AtomicFunction::Exchange,
        ("cas", _) => AtomicFunction::CompareAndSwap,
        ("inc", _) => AtomicFunction::Inc,
        ("dec", _) => AtomicFunction::Dec,
        ("add", Some(of)) => AtomicFunction::AddFloat(of),
        ("add", None) => AtomicFunction::Add(int(ty)),
        ("min", Some(of)) => AtomicFunction::MinFloat(of),
        ("max", Some(of)) => AtomicFunction::MaxFloat(of),
        ("min", None) => AtomicFunction::Min(int(ty)),
        ("max", None) => AtomicFunction::Max(int(ty)),
        _ => return None,
    })
}

/// Returns the number of groups that a wait lets pend.
pub(super) fn pending(operands: &[Operand<'_>]) -> u32 {
    match operands.first() {
        Some(Operand::Immediate(value)) => super::link::immediate(*value, Type::U32) as u32,
        _ => 0,
    }
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes an instruction that accesses memory or computes addresses. Returns whether it is one.
    pub(super) fn memory(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let operands = &its.operands;
        match its.opcode().as_bytes() {
            b"ld" | b"ldu" | b"st" => self.transfer(its, words)?,
            b"atom" | b"red" => self.atomic(its, words)?,
            b"cvta" => self.cvta(operands, words)?,
            b"isspacep" => {
                let space = space(words);
                let p = self.target(self.operand(operands, 0)?, Type::Pred)?;
                let a = self.source(self.operand(operands, 1)?, Type::B64)?;
                self.emit(Op::IsSpace { space, p, a: Base::Wide(a) });
            }
            b"prefetch" | b"prefetchu" | b"applypriority" | b"discard" => {
                words.drop_all(|word| {
                    matches!(
                        word,
                        "L1" | "L2" | "global" | "local" | "const" | "param" | "tensormap"
                    ) || word.starts_with("L2::")
                });
                self.emit(Op::Nop);
            }
            // Accesses ignore the policy.
            b"createpolicy" => {
                words.drop_all(|_| true);
                let d = self.target(self.operand(operands, 0)?, Type::B64)?;
                let zero = self.builder.constant(Bank::Wide, Constant::Bits(0));
                self.emit(Op::Move(Bank::Wide, d, zero));
            }
            b"cp" => self.copy(its, words)?,
            b"mbarrier" => self.mbarrier(operands, words)?,
            b"mapa" => {
                let is_generic = space(words) == Space::Generic;
                let ty = words.ty()?;
                let rank = self.source(self.operand(operands, 2)?, Type::U32)?;
                let a = self.source(self.operand(operands, 1)?, ty)?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                self.emit(Op::MapShared { d, a, rank, is_wide: bits(ty) == 64, is_generic });
            }
            b"getctarank" => {
                let is_generic = space(words) == Space::Generic;
                let ty = words.ty()?;
                let a = self.source(self.operand(operands, 1)?, ty)?;
                let a = if bits(ty) == 64 { Base::Wide(a) } else { Base::Narrow(a) };
                let d = self.target(self.operand(operands, 0)?, Type::U32)?;
                self.emit(Op::RankOf { d, a, is_generic });
            }
            b"alloca" => {
                let ty = words.ty()?;
                let size = self.source(self.operand(operands, 1)?, ty)?;
                let align = match operands.get(2) {
                    Some(Operand::Immediate(value)) => {
                        super::link::immediate(*value, Type::U32) as u32
                    }
                    _ => 8,
                };
                let d = self.target(self.operand(operands, 0)?, ty)?;
                self.emit(Op::Alloca { d, size, align, is_wide: bits(ty) == 64 });
            }
            b"stacksave" => {
                let ty = words.ty()?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                self.emit(Op::StackSave { d, is_wide: bits(ty) == 64 });
            }
            b"stackrestore" => {
                let ty = words.ty()?;
                let a = self.source(self.operand(operands, 0)?, ty)?;
                self.emit(Op::StackRestore { a, is_wide: bits(ty) == 64 });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn transfer(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let is_store = its.opcode() == "st";
        if words.peek().contains(&"bulk") {
            return Problem::unsupported("a bulk store");
        }
        let is_async = self.takes_barrier(words)?;
        let space = space(words);
        let order = words.order();
        drop_order(words);
        let count = match words.one_of(&["v2", "v4", "v8"]) {
            None => 1,
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
        };
        let ty = words.ty()?;
        let (value, address) = match is_store {
            true => (1, 0),
            false => (0, 1),
        };
        // The policy of caches is an optional third operand.
        let address = self.address(self.operand(&its.operands, address)?, space)?;
        if is_store && address.space == Space::Param {
            return Problem::invalid("a parameter of a kernel is not written");
        }
        let ty_of_element = if ty == Type::B128 { Type::B64 } else { ty };
        let value = self.operand(&its.operands, value)?;
        let mut elements = match is_store {
            true => self.elements(value, ty_of_element)?,
            false => self.element_targets(value, ty_of_element)?,
        };
        // A value of 128 bits is two elements.
        let of_value = if ty == Type::B128 { 2 } else { 1 };
        if elements.len() != count * of_value
            && !elements.iter().all(|its| matches!(its, Element::Discard))
        {
            return Problem::invalid(format!("the vector does not have {count} elements"));
        }
        let is_wide = |its: &Element| matches!(its, Element::Wide(_));
        let registers = || elements.iter().filter(|its| !matches!(its, Element::Discard));
        if registers().any(is_wide) && !registers().all(is_wide) {
            return Problem::invalid("the registers of a vector have different sizes");
        }
        let elements = match elements.len() {
            1 => Elements::One(elements.remove(0)),
            _ => Elements::Several(elements.into_boxed_slice()),
        };
        let transfer = Transfer {
            address,
            size: bits(ty_of_element).div_ceil(8),
            is_signed: matches!(ty, Type::S8 | Type::S16 | Type::S32),
            order,
            elements,
        };
        let bytes = transfer.bytes();
        self.emit(if is_store { Op::Store(transfer) } else { Op::Load(transfer) });
        if is_async {
            self.complete(&its.operands, bytes)?;
        }
        Ok(())
    }

    /// Takes the modifiers of an asynchronous access, and returns whether it is one: a barrier in its last operand
    /// counts its bytes.
    fn takes_barrier(&self, words: &mut Words<'a>) -> Result<bool, Problem> {
        let is_async = words.take("async");
        let has_barrier = words.take("mbarrier::complete_tx::bytes");
        if is_async != has_barrier {
            return Problem::unsupported("an asynchronous access without a barrier");
        }
        Ok(is_async)
    }

    /// Counts the bytes of an asynchronous access, which is complete when it is issued.
    fn complete(&mut self, operands: &[Operand<'a>], bytes: u32) -> Result<(), Problem> {
        let address = self.address(self.operand(operands, 2)?, Space::Shared)?;
        let bytes = self.builder.constant(Bank::Narrow, Constant::Bits(u64::from(bytes)));
        let order = Order::relaxed(Scope::Cluster);
        self.emit(Op::Mbarrier { address, operation: Mbarrier::CompleteTx { bytes }, order });
        Ok(())
    }

    /// Takes the function and the type of an atomic operation.
    pub(super) fn atomic_function(
        &self,
        words: &mut Words<'a>,
    ) -> Result<(AtomicFunction, Type), Problem> {
        let name =
            words.one_of(&["and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max"]);
        drop_order(words);
        let ty = words.ty()?;
        match name.and_then(|name| atomic_function(name, ty)) {
            Some(function) => Ok((function, ty)),
            None => Problem::invalid("the operation is missing"),
        }
    }

    fn atomic(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let is_red = its.opcode() == "red";
        let is_async = self.takes_barrier(words)?;
        let space = space(words);
        let order = words.order().unwrap_or(Order::relaxed(Scope::Device));
        let is_vector = words.one_of(&["v2", "v4", "v8"]).is_some();
        let (function, ty) = self.atomic_function(words)?;
        let operands = &its.operands;
        let first = usize::from(!is_red);
        let address = self.address(self.operand(operands, first)?, space)?;
        if ty == Type::B128 {
            return self.atomic_wide(operands, function, (address, order));
        }
        if is_vector {
            return self.atomic_vector(operands, (function, ty), (address, order), is_red);
        }
        let value = self.source(self.operand(operands, first + 1)?, ty)?;
        let new = match function {
            AtomicFunction::CompareAndSwap => {
                Some(self.source(self.operand(operands, first + 2)?, ty)?)
            }
            _ => None,
        };
        let d = match (is_red, operands.first()) {
            (true, _) | (_, Some(Operand::Discard)) => None,
            (false, Some(d)) => Some(self.target(d, ty)?),
            (false, None) => return Problem::invalid("the result is missing"),
        };
        let size = bits(ty) / 8;
        self.emit(Op::Atomic(Atomic { address, function, size, d, value, new, order }));
        if is_async {
            self.complete(operands, size)?;
        }
        Ok(())
    }

    fn atomic_wide(
        &mut self,
        operands: &[Operand<'a>],
        function: AtomicFunction,
        (address, order): (Address, Order),
    ) -> Result<(), Problem> {
        let mut pair = |at: usize| match self.elements(self.operand(operands, at)?, Type::B64)?[..]
        {
            [Element::Wide(low), Element::Wide(high)] => Ok(Some([low, high])),
            [Element::Discard] => Ok(None),
            _ => Problem::invalid("an operand does not have 128 bits"),
        };
        let (d, first, second) = (pair(0)?, pair(2)?, operands.get(3).map(|_| pair(3)));
        let second = second.transpose()?.flatten();
        let (compare, value) = match function {
            AtomicFunction::Exchange => (None, first),
            AtomicFunction::CompareAndSwap => (first, second),
            _ => return Problem::invalid("there is no such operation of 128 bits"),
        };
        let missing = || Problem::Invalid("an operand is missing".into());
        if function == AtomicFunction::CompareAndSwap && compare.is_none() {
            return Err(missing());
        }
        let value = value.ok_or_else(missing)?;
        self.emit(Op::AtomicWide(Box::new(AtomicWide { address, d, compare, value, order })));
        Ok(())
    }

    /// Decodes an atomic operation on a vector, which is one for each element.
    fn atomic_vector(
        &mut self,
        operands: &[Operand<'a>],
        (function, ty): (AtomicFunction, Type),
        (address, order): (Address, Order),
        is_red: bool,
    ) -> Result<(), Problem> {
        let vector = |operand: &'_ Operand<'a>| match operand {
            Operand::Vector(list) => Ok(list.clone()),
            _ => Problem::invalid("an operand is not a vector"),
        };
        let size = bits(ty) / 8;
        let values = vector(self.operand(operands, if is_red { 1 } else { 2 })?)?;
        let mut results = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let value = self.source(value, ty)?;
            let d = if is_red { None } else { Some(self.unused(bank(ty)?)) };
            let offset = address.offset.wrapping_add(at as i64 * i64::from(size));
            let address = Address { offset, ..address };
            let new = None;
            self.emit(Op::Atomic(Atomic { address, function, size, d, value, new, order }));
            results.extend(d);
        }
        // A result may be in a register of an operand.
        if !is_red {
            for (d, result) in vector(self.operand(operands, 0)?)?.iter().zip(results) {
                let d = self.target(d, ty)?;
                self.emit(Op::Move(bank(ty)?, d, result));
            }
        }
        Ok(())
    }

    fn cvta(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let is_to = words.take("to");
        let space = space(words);
        let ty = words.ty()?;
        if bits(ty) != 64 {
            return Problem::unsupported("an address of 32 bits");
        }
        let space = match space {
            Space::Param if !self.function.is_entry => Space::Local,
            space => space,
        };
        let window = match space {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Param => PARAM_WINDOW,
            _ => 0,
        };
        let amount = if is_to { window.wrapping_neg() } else { window };
        self.unary(operands, Unary::AddConstant(amount), [ty; 2])
    }

    fn copy(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let is_reduction = words.take("reduce");
        if !words.take("async") {
            return Problem::invalid("there is no such copy");
        }
        if words.take("bulk") {
            return self.copy_bulk(its, words, is_reduction);
        }
        // Copies are complete when they are issued.
        let operands = &its.operands;
        if let Some(step) = words.one_of(&["commit_group", "wait_group", "wait_all"]) {
            self.emit(Op::CopyGroup(match step {
                "commit_group" => CopyGroup::Commit,
                "wait_group" => CopyGroup::Wait(pending(operands)),
                _ => CopyGroup::WaitAll,
            }));
            return Ok(());
        }
        if words.take("mbarrier") {
            words.drop_all(|word| word == "arrive");
            let is_counted = !words.take("noinc");
            let space = space(words);
            words.try_ty();
            let address = self.address(self.operand(operands, 0)?, space)?;
            self.emit(Op::CopyGroup(CopyGroup::Arrive(address)));
            // The pending count is raised and lowered at once, as the copies are complete.
            if !is_counted {
                let operation =
                    Mbarrier::Arrive { state: None, count: None, expect: None, is_drop: false };
                let order = Order::relaxed(Scope::Cta);
                self.emit(Op::Mbarrier { address, operation, order });
            }
            return Ok(());
        }
        words.drop_all(|word| {
            matches!(word, "ca" | "cg" | "shared" | "shared::cta" | "global")
                || word.starts_with("L2::")
        });
        let to = self.address(self.operand(operands, 0)?, Space::Shared)?;
        let from = self.address(self.operand(operands, 1)?, Space::Global)?;
        let size = match self.operand(operands, 2)? {
            Operand::Immediate(value) => super::link::immediate(*value, Type::U32) as u32,
            _ => return Problem::invalid("the size of a copy is not a constant"),
        };
        let (mut read, mut ignore) = (None, None);
        match operands.get(3) {
            None => {}
            Some(operand @ (Operand::Name(_) | Operand::Not(_))) => match self.predicate(operand) {
                Ok(condition) => ignore = Some(condition),
                Err(_) => read = Some(self.source(operand, Type::U32)?),
            },
            Some(operand) => read = Some(self.source(operand, Type::U32)?),
        }
        self.emit(Op::CopyAsync { to, from, size, read, ignore });
        Ok(())
    }

    fn mbarrier(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let kind = words.one_of(&[
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "test_wait",
            "try_wait",
            "pending_count",
            "expect_tx",
            "complete_tx",
        ]);
        let is_expecting = words.take("expect_tx");
        let is_parity = words.take("parity");
        words.drop_all(|word| word == "noComplete");
        let space = space(words);
        let order = words.order();
        drop_order(words);
        words.try_ty();
        let address =
            |decoder: &mut Self, at: usize| decoder.address(decoder.operand(operands, at)?, space);
        let source = |decoder: &mut Self, at: usize, ty: Type| match operands.get(at) {
            Some(operand) => decoder.source(operand, ty).map(Some),
            None => Ok(None),
        };
        let missing = || Problem::Invalid("an operand is missing".into());
        let (address, operation) = match kind {
            Some("init") => {
                let count = source(self, 1, Type::U32)?.ok_or_else(missing)?;
                (address(self, 0)?, Mbarrier::Init { count })
            }
            Some("inval") => (address(self, 0)?, Mbarrier::Inval),
            Some("expect_tx") => {
                let bytes = source(self, 1, Type::U32)?.ok_or_else(missing)?;
                (address(self, 0)?, Mbarrier::ExpectTx { bytes })
            }
            Some("complete_tx") => {
                let bytes = source(self, 1, Type::U32)?.ok_or_else(missing)?;
                (address(self, 0)?, Mbarrier::CompleteTx { bytes })
            }
            Some(kind @ ("arrive" | "arrive_drop")) => {
                let has_state = !matches!(operands.first(), Some(Operand::Address(_)));
                let first = usize::from(has_state);
                let state = match (has_state, operands.first()) {
                    (true, Some(Operand::Discard)) | (false, _) => None,
                    (true, Some(operand)) => Some(self.target(operand, Type::B64)?),
                    (true, None) => return Err(missing()),
                };
                let more = source(self, first + 1, Type::U32)?;
                let (count, expect) = if is_expecting { (None, more) } else { (more, None) };
                let is_drop = kind == "arrive_drop";
                (address(self, first)?, Mbarrier::Arrive { state, count, expect, is_drop })
            }
            Some("test_wait" | "try_wait") => {
                let p = self.target(self.operand(operands, 0)?, Type::Pred)?;
                let operation = if is_parity {
                    let parity = source(self, 2, Type::U32)?.ok_or_else(missing)?;
                    Mbarrier::TestParity { p, parity }
                } else {
                    let state = source(self, 2, Type::B64)?.ok_or_else(missing)?;
                    Mbarrier::TestWait { p, state }
                };
                (address(self, 1)?, operation)
            }
            Some("pending_count") => {
                let state = source(self, 1, Type::B64)?.ok_or_else(missing)?;
                let d = self.target(self.operand(operands, 0)?, Type::U32)?;
                let none = Address { space, base: Base::None, offset: 0 };
                (none, Mbarrier::PendingCount { d, state })
            }
            _ => return Problem::unsupported("this operation of mbarrier"),
        };
        let is_wait = matches!(kind, Some("test_wait" | "try_wait"));
        let is_arrival = matches!(kind, Some("arrive" | "arrive_drop"));
        let order =
            order.unwrap_or(Order { scope: Scope::Cta, acquires: is_wait, releases: is_arrival });
        self.emit(Op::Mbarrier { address, operation, order });
        Ok(())
    }

    /// Returns the element of a parameter in a call, which is a register or a constant.
    pub(super) fn passed(&mut self, operand: &Operand<'a>, size: u32) -> Result<Element, Problem> {
        let ty = match size {
            1 => Type::B8,
            2 => Type::B16,
            8 => Type::B64,
            _ => Type::B32,
        };
        self.element(operand, ty)
    }
}
